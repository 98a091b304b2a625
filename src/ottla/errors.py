# ruff: noqa: E501 - the table reads best with one row per line, however long.
"""What can go wrong, as one table of Kafka's error codes and four exceptions.

Invariant: the number and name of a row are Kafka's and never change; a row that asks for
fresh metadata is also retriable; every text is ours and says what happened and what to do.
"""

from enum import IntEnum
from typing import Final, Self

# How a client may react. A row is one of these three.
FINAL: Final = (False, False)  # the same request fails again: change something first
RETRIABLE: Final = (True, False)  # the same request may succeed a little later
REFRESH: Final = (True, True)  # the same, after the client has fetched metadata anew


class Row(int):
    """A code with what there is to know about it; an int, so that codes compare as such."""

    retriable: bool
    refresh_metadata: bool
    text: str

    def __new__(cls, code: int, reaction: tuple[bool, bool], text: str) -> Self:
        """Make a row of the table below."""
        self = int.__new__(cls, code)
        self.retriable, self.refresh_metadata = reaction
        self.text = text
        return self


class ErrorCode(IntEnum):
    """One row per code of the protocol: number, reaction, text."""

    retriable: bool
    refresh_metadata: bool
    text: str

    def __new__(cls, row: Row) -> Self:
        """Make the member of a row; its value is the code alone."""
        self = int.__new__(cls, row)
        self._value_ = int(row)
        self.retriable = row.retriable
        self.refresh_metadata = row.refresh_metadata
        self.text = row.text
        return self

    # fmt: off
    UNKNOWN_SERVER_ERROR = Row(-1, FINAL, "The server met a failure that has no code of its own. Its log names the cause.")
    NONE = Row(0, FINAL, "The request succeeded.")
    OFFSET_OUT_OF_RANGE = Row(1, FINAL, "The offset lies outside what the partition holds. Continue from its first or its last offset.")
    CORRUPT_MESSAGE = Row(2, RETRIABLE, "A record batch is malformed or its checksum does not match. Send it again; if that fails too, the sender builds it wrongly.")
    UNKNOWN_TOPIC_OR_PARTITION = Row(3, REFRESH, "This broker hosts no such topic or partition. Check the name and fetch metadata again.")
    INVALID_FETCH_SIZE = Row(4, FINAL, "The number of bytes asked for makes no sense. Ask for more than zero.")
    LEADER_NOT_AVAILABLE = Row(5, REFRESH, "The partition has no leader just now. Wait for the election and try again.")
    NOT_LEADER_OR_FOLLOWER = Row(6, REFRESH, "This broker does not hold the role the request needs for the partition. Fetch metadata and ask the leader.")
    REQUEST_TIMED_OUT = Row(7, RETRIABLE, "The deadline passed before the work was done, and it may still be done. Try again, or allow more time.")
    BROKER_NOT_AVAILABLE = Row(8, FINAL, "No live broker has the id asked for. Check the id and that the broker runs.")
    REPLICA_NOT_AVAILABLE = Row(9, REFRESH, "The replica asked for cannot serve this partition now. Fetch metadata and try another one.")
    MESSAGE_TOO_LARGE = Row(10, FINAL, "The batch is larger than the topic takes. Send smaller batches or raise max.message.bytes.")
    STALE_CONTROLLER_EPOCH = Row(11, FINAL, "The order came from a controller that has been replaced. That controller has to step down.")
    OFFSET_METADATA_TOO_LARGE = Row(12, FINAL, "The note stored with a committed offset is too long. Shorten it or raise offset.metadata.max.bytes.")
    NETWORK_EXCEPTION = Row(13, REFRESH, "The connection broke before an answer came, so the outcome is unknown. Reconnect and try again.")
    COORDINATOR_LOAD_IN_PROGRESS = Row(14, RETRIABLE, "The coordinator is still reading its state from the log. Try again in a moment.")
    COORDINATOR_NOT_AVAILABLE = Row(15, RETRIABLE, "No broker can act as coordinator at present. Look the coordinator up again shortly.")
    NOT_COORDINATOR = Row(16, RETRIABLE, "Another broker coordinates this group or transactional id. Look the coordinator up and ask there.")
    INVALID_TOPIC_EXCEPTION = Row(17, FINAL, "The topic has a name that is not allowed, or is an internal one closed to this operation. Choose another topic.")
    RECORD_LIST_TOO_LARGE = Row(18, FINAL, "The batch would not fit into one segment file. Send smaller batches or raise segment.bytes.")
    NOT_ENOUGH_REPLICAS = Row(19, RETRIABLE, "Fewer replicas are in sync than min.insync.replicas demands, so nothing was written. Try again when some have caught up.")
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = Row(20, RETRIABLE, "The leader wrote the records, then too few replicas were in sync to confirm them. Without idempotence a retry may write them twice.")
    INVALID_REQUIRED_ACKS = Row(21, FINAL, "The value of acks is not a known one. Use 0, 1, or -1 for all.")
    ILLEGAL_GENERATION = Row(22, FINAL, "The group has moved on to another generation. Join it again to learn the current one.")
    INCONSISTENT_GROUP_PROTOCOL = Row(23, FINAL, "The member has no protocol in common with the rest of the group. Configure all members with the same type and a shared assignor.")
    INVALID_GROUP_ID = Row(24, FINAL, "The group id is empty or otherwise unusable. Set group.id.")
    UNKNOWN_MEMBER_ID = Row(25, FINAL, "The group has no member of this id: it never joined or was removed. Join as a new member.")
    INVALID_SESSION_TIMEOUT = Row(26, FINAL, "The session timeout is outside the broker's limits. Keep it between group.min.session.timeout.ms and group.max.session.timeout.ms.")
    REBALANCE_IN_PROGRESS = Row(27, FINAL, "The group is dividing its partitions anew. Join again to receive a share.")
    INVALID_COMMIT_OFFSET_SIZE = Row(28, FINAL, "The offset commit would make too large a record for the offsets topic. Commit fewer partitions or shorter notes at a time.")
    TOPIC_AUTHORIZATION_FAILED = Row(29, FINAL, "The principal may not do this with the topic. Grant it the permission.")
    GROUP_AUTHORIZATION_FAILED = Row(30, FINAL, "The principal may not do this with the group. Have an ACL on the group allow it.")
    CLUSTER_AUTHORIZATION_FAILED = Row(31, FINAL, "The principal may not do this with the cluster. Have an ACL on the cluster allow it.")
    INVALID_TIMESTAMP = Row(32, FINAL, "A record's timestamp is too far from the broker's clock. Correct it, or widen the limits on the topic's timestamps.")
    UNSUPPORTED_SASL_MECHANISM = Row(33, FINAL, "The listener does not offer this SASL mechanism. Use one of those in the answer.")
    ILLEGAL_SASL_STATE = Row(34, FINAL, "The request does not belong at this point of the login. Do the handshake first, then authenticate.")
    UNSUPPORTED_VERSION = Row(35, FINAL, "The server does not speak this version of the API or lacks the feature. Ask ApiVersions what it offers.")
    TOPIC_ALREADY_EXISTS = Row(36, FINAL, "A topic of this name, or one that collides with it, exists already. Use it or pick another name.")
    INVALID_PARTITIONS = Row(37, FINAL, "The number of partitions is not possible: it is below one or does not grow the topic. Ask for more.")
    INVALID_REPLICATION_FACTOR = Row(38, FINAL, "The replication factor is below one or above the number of brokers. Lower it or add brokers.")
    INVALID_REPLICA_ASSIGNMENT = Row(39, FINAL, "The replica assignment repeats or omits something or names an unknown broker. Correct the list.")
    INVALID_CONFIG = Row(40, FINAL, "A setting is unknown here or its value is not accepted. Correct it.")
    NOT_CONTROLLER = Row(41, RETRIABLE, "This broker is not the controller. Find out which one is and ask there.")
    INVALID_REQUEST = Row(42, FINAL, "The request contradicts itself or breaks a rule of its API. The client that built it needs correcting.")
    UNSUPPORTED_FOR_MESSAGE_FORMAT = Row(43, FINAL, "The records are stored in a format too old for this operation. Use a topic with the current format.")
    POLICY_VIOLATION = Row(44, FINAL, "A policy set by the cluster's owners forbids this. Ask them, or change the request to comply.")
    OUT_OF_ORDER_SEQUENCE_NUMBER = Row(45, FINAL, "The batch does not follow the producer's last one: something in between was lost. Start the producer afresh to go on.")
    DUPLICATE_SEQUENCE_NUMBER = Row(46, FINAL, "The broker stored this batch earlier and no longer remembers where. Count it as delivered.")
    INVALID_PRODUCER_EPOCH = Row(47, FINAL, "The producer's epoch is older than one already seen here. Abort and initialise the producer again.")
    INVALID_TXN_STATE = Row(48, FINAL, "The transaction is in a state that does not permit this step. Begin, fill and end it in that order.")
    INVALID_PRODUCER_ID_MAPPING = Row(49, FINAL, "The producer id is not the one that belongs to the transactional id. Initialise the producer again.")
    INVALID_TRANSACTION_TIMEOUT = Row(50, FINAL, "The transaction timeout is above what the broker allows. Stay within transaction.max.timeout.ms.")
    CONCURRENT_TRANSACTIONS = Row(51, RETRIABLE, "The previous step of this transaction is still being carried out. Try again shortly.")
    TRANSACTION_COORDINATOR_FENCED = Row(52, FINAL, "The transaction's end was ordered by a coordinator that has been replaced. Its successor will order it.")
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = Row(53, FINAL, "The principal may not use this transactional id. Have an ACL on the id allow it.")
    SECURITY_DISABLED = Row(54, FINAL, "The cluster runs without an authorizer, so it has no ACLs. Configure one to use them.")
    OPERATION_NOT_ATTEMPTED = Row(55, FINAL, "This part was not tried, because another part of the request failed. Settle that one and send this again.")
    KAFKA_STORAGE_ERROR = Row(56, REFRESH, "The broker could not read or write the partition's files. Fetch metadata; another replica may lead now.")
    LOG_DIR_NOT_FOUND = Row(57, FINAL, "The broker has no such log directory. Name one of those in log.dirs.")
    SASL_AUTHENTICATION_FAILED = Row(58, FINAL, "The login was refused. Check the user, the secret and the mechanism.")
    UNKNOWN_PRODUCER_ID = Row(59, FINAL, "The broker remembers nothing of this producer, for its records are gone. Initialise the producer again.")
    REASSIGNMENT_IN_PROGRESS = Row(60, FINAL, "Replicas of the partition are being moved already. Wait for the move or cancel it.")
    DELEGATION_TOKEN_AUTH_DISABLED = Row(61, FINAL, "The cluster does not use delegation tokens. Have its owners turn them on.")
    DELEGATION_TOKEN_NOT_FOUND = Row(62, FINAL, "There is no such delegation token. Create one, or check its HMAC.")
    DELEGATION_TOKEN_OWNER_MISMATCH = Row(63, FINAL, "The delegation token belongs to somebody else. Only its owner or a renewer may change it.")
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = Row(64, FINAL, "Delegation tokens are not handed out over this connection. Log in with SASL or TLS, and not with a token.")
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = Row(65, FINAL, "The principal may not do this with the delegation token. Have an ACL on the token allow it.")
    DELEGATION_TOKEN_EXPIRED = Row(66, FINAL, "The delegation token has run out. Create a new one.")
    INVALID_PRINCIPAL_TYPE = Row(67, FINAL, "The kind of principal is not supported here. Use User.")
    NON_EMPTY_GROUP = Row(68, FINAL, "The group still has members. Stop them first.")
    GROUP_ID_NOT_FOUND = Row(69, FINAL, "There is no group of this id. Check the spelling and the kind of group.")
    FETCH_SESSION_ID_NOT_FOUND = Row(70, RETRIABLE, "The broker has dropped this fetch session. Open a new one with a full fetch.")
    INVALID_FETCH_SESSION_EPOCH = Row(71, RETRIABLE, "The fetch is out of turn in its session. Open a new session with a full fetch.")
    LISTENER_NOT_FOUND = Row(72, REFRESH, "The leader has no address on the listener through which you asked. Give every broker that listener.")
    TOPIC_DELETION_DISABLED = Row(73, FINAL, "The cluster does not allow topics to be deleted. Set delete.topic.enable to change that.")
    FENCED_LEADER_EPOCH = Row(74, REFRESH, "The leader epoch in the request is older than the broker's. Fetch metadata to learn the current one.")
    UNKNOWN_LEADER_EPOCH = Row(75, RETRIABLE, "The leader epoch in the request is newer than any the broker has heard of. Give it time to catch up.")
    UNSUPPORTED_COMPRESSION_TYPE = Row(76, FINAL, "The other side cannot handle this compression. Use another codec or a newer version of the request.")
    STALE_BROKER_EPOCH = Row(77, FINAL, "The broker has registered anew since this epoch was issued. Use the epoch of the last registration.")
    OFFSET_NOT_AVAILABLE = Row(78, RETRIABLE, "The new leader does not yet know how far its followers are. Try again in a moment.")
    MEMBER_ID_REQUIRED = Row(79, FINAL, "A new member receives its id first. Join again with the id in this answer.")
    PREFERRED_LEADER_NOT_AVAILABLE = Row(80, REFRESH, "The preferred leader is down or not in sync. Elect it when it is back.")
    GROUP_MAX_SIZE_REACHED = Row(81, FINAL, "The group is full. Stop a member or raise group.max.size.")
    FENCED_INSTANCE_ID = Row(82, FINAL, "Another process has joined with the same group.instance.id. Give each its own.")
    ELIGIBLE_LEADERS_NOT_AVAILABLE = Row(83, REFRESH, "None of the replicas that may lead is alive. Bring one back, or accept an unclean election.")
    ELECTION_NOT_NEEDED = Row(84, REFRESH, "The partition already has the leader that the election would choose. Nothing needs to be done.")
    NO_REASSIGNMENT_IN_PROGRESS = Row(85, FINAL, "No replica of the partition is being moved. There is nothing to cancel.")
    GROUP_SUBSCRIBED_TO_TOPIC = Row(86, FINAL, "The group is consuming the topic, so its offsets must stay. Unsubscribe first.")
    INVALID_RECORD = Row(87, FINAL, "A record breaks a rule of its topic or of the format. Correct that record; the others were not written either.")
    UNSTABLE_OFFSET_COMMIT = Row(88, RETRIABLE, "An open transaction is about to change these offsets. Ask again when it has ended.")
    THROTTLING_QUOTA_EXCEEDED = Row(89, RETRIABLE, "Changes come faster than the quota allows. Wait for the time given in the answer.")
    PRODUCER_FENCED = Row(90, FINAL, "A newer producer has taken over this transactional id. Close this one.")
    RESOURCE_NOT_FOUND = Row(91, FINAL, "What the request names does not exist. Check the name.")
    DUPLICATE_RESOURCE = Row(92, FINAL, "The request names the same thing twice, or it exists already. Name it once.")
    UNACCEPTABLE_CREDENTIAL = Row(93, FINAL, "The new credential does not meet the rules. Check the mechanism, the iterations and that nothing is empty.")
    INCONSISTENT_VOTER_SET = Row(94, FINAL, "The two sides disagree on who votes for the controller. Give all of them the same voters.")
    INVALID_UPDATE_VERSION = Row(95, FINAL, "The update builds on a version that is not the current one. Read the current state and apply the change to that.")
    FEATURE_UPDATE_FAILED = Row(96, FINAL, "The feature level could not be changed. Check that every broker supports the level asked for.")
    PRINCIPAL_DESERIALIZATION_FAILURE = Row(97, FINAL, "A forwarded request names its principal in a form that cannot be read. Use one principal builder on all brokers.")
    SNAPSHOT_NOT_FOUND = Row(98, FINAL, "The metadata snapshot is not here any more. Ask for the latest one.")
    POSITION_OUT_OF_RANGE = Row(99, FINAL, "The position lies beyond the end of the snapshot. Start reading it from the beginning.")
    UNKNOWN_TOPIC_ID = Row(100, REFRESH, "The broker knows no topic of this id. It may be new or deleted; fetch metadata.")
    DUPLICATE_BROKER_REGISTRATION = Row(101, FINAL, "A live broker has this id already. Give each broker its own.")
    BROKER_ID_NOT_REGISTERED = Row(102, FINAL, "No broker of this id has registered. Start it, or correct the id.")
    INCONSISTENT_TOPIC_ID = Row(103, REFRESH, "The topic's id on disk and in the request differ: it was deleted and made again. Fetch metadata.")
    INCONSISTENT_CLUSTER_ID = Row(104, FINAL, "The request was meant for another cluster. Check the addresses and the cluster id.")
    TRANSACTIONAL_ID_NOT_FOUND = Row(105, FINAL, "Nothing is known of this transactional id. It was never used or has expired.")
    FETCH_SESSION_TOPIC_ID_ERROR = Row(106, RETRIABLE, "The fetch session mixes topics with and without ids. Open a new session.")
    INELIGIBLE_REPLICA = Row(107, FINAL, "The replica may not join those in sync: it is fenced or shutting down. It has to register first.")
    NEW_LEADER_ELECTED = Row(108, FINAL, "The change was accepted and made another broker the leader. Stop leading the partition.")
    OFFSET_MOVED_TO_TIERED_STORAGE = Row(109, FINAL, "The leader holds this offset in remote storage only. Begin copying at its first local offset.")
    FENCED_MEMBER_EPOCH = Row(110, FINAL, "The group has fenced this member's epoch. Give up all partitions and join with epoch 0.")
    UNRELEASED_INSTANCE_ID = Row(111, FINAL, "The static member that holds this instance id is still there. Stop it, or wait for its session to end.")
    UNSUPPORTED_ASSIGNOR = Row(112, FINAL, "The group coordinator does not offer this assignor. Choose one from group.consumer.assignors.")
    STALE_MEMBER_EPOCH = Row(113, FINAL, "The member's epoch is behind the one the group gave it. Wait for the next heartbeat and use the epoch in it.")
    MISMATCHED_ENDPOINT_TYPE = Row(114, FINAL, "The request suits the other kind of endpoint, broker or controller. Connect to that one.")
    UNSUPPORTED_ENDPOINT_TYPE = Row(115, FINAL, "The kind of endpoint asked for does not exist here. Ask for brokers.")
    UNKNOWN_CONTROLLER_ID = Row(116, FINAL, "There is no controller of this id. Check the id.")
    UNKNOWN_SUBSCRIPTION_ID = Row(117, FINAL, "The telemetry subscription has changed or never was. Fetch the subscription again.")
    TELEMETRY_TOO_LARGE = Row(118, FINAL, "The client's metrics are more than the broker takes at once. Send fewer.")
    INVALID_REGISTRATION = Row(119, FINAL, "The controller does not accept how the broker registers. Compare its listeners, features and directories with the cluster's.")
    TRANSACTION_ABORTABLE = Row(120, FINAL, "The transaction cannot be committed any more. Abort it and do its work again.")
    INVALID_RECORD_STATE = Row(121, FINAL, "The record was not handed to this member or has been settled already. Drop the acknowledgement.")
    SHARE_SESSION_NOT_FOUND = Row(122, RETRIABLE, "The broker has dropped this share session. Begin a new one.")
    INVALID_SHARE_SESSION_EPOCH = Row(123, RETRIABLE, "The request is out of turn in its share session. Begin another session.")
    FENCED_STATE_EPOCH = Row(124, FINAL, "The share group's state is kept under a newer epoch. The writer with the old one must stop.")
    INVALID_VOTER_KEY = Row(125, FINAL, "The voter's key is not the one of the replica that received it. Correct id and directory id.")
    DUPLICATE_VOTER = Row(126, FINAL, "This voter is in the set already. Nothing has to be added.")
    VOTER_NOT_FOUND = Row(127, FINAL, "This voter is not in the set. Nothing can be removed.")
    INVALID_REGULAR_EXPRESSION = Row(128, FINAL, "The pattern of topic names is not valid RE2 syntax. Correct the expression.")
    REBOOTSTRAP_REQUIRED = Row(129, FINAL, "What the client knows of the cluster is out of date. Begin again from the bootstrap servers.")
    STREAMS_INVALID_TOPOLOGY = Row(130, FINAL, "The topology that the streams application sent is not valid. Correct the application.")
    STREAMS_INVALID_TOPOLOGY_EPOCH = Row(131, FINAL, "The epoch of the streams topology is not acceptable. Raise it by one with each new topology.")
    STREAMS_TOPOLOGY_FENCED = Row(132, FINAL, "The streams group runs a newer topology. Update this instance.")
    SHARE_SESSION_LIMIT_REACHED = Row(133, RETRIABLE, "The broker holds as many share sessions as it may. Try again when one has closed.")
    # fmt: on

    @classmethod
    def of(cls, code: int) -> "ErrorCode":
        """The row of a code from the wire; a code of a later Kafka is UNKNOWN_SERVER_ERROR."""
        try:
            return cls(code)
        except ValueError:
            return cls.UNKNOWN_SERVER_ERROR


class OttlaError(Exception):
    """Every failure that Ottla raises on purpose."""


class ProtocolViolation(OttlaError):
    """The peer's bytes are wrong, so nothing after them can be trusted: the connection closes."""


MESSAGE_CHARACTERS_MAX: Final = 4000
"""What a client is told may quote what it sent, and has to fit into an answer."""


class RequestError(OttlaError):
    """The request failed, with a row of the table; the client reacts, per partition."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        if message is not None and len(message) > MESSAGE_CHARACTERS_MAX:
            message = f"{message[:MESSAGE_CHARACTERS_MAX]}…"
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code.name} ({self.code.value}): {self.message or self.code.text}"

    @property
    def retriable(self) -> bool:
        """True when the same request may succeed later."""
        return self.code.retriable

    @property
    def hint(self) -> str:
        """What happened in general, and what to do."""
        return self.code.text


class StorageFailure(OttlaError):
    """The disk did not do what was asked; the owner of the files steps down."""


class DiskFull(StorageFailure):
    """There was no room and nothing was changed: to be done again when there is some."""
