# ruff: noqa: E501 - one line per row
"""Kafka's error codes as one table, and the exceptions of Ottla.

Invariant: code and name of a row are Kafka's. A row that requires fresh metadata is retriable. Each
text states what happened and what to do.
"""

from enum import IntEnum
from typing import Final, Self

# How a client reacts to an error.
FINAL: Final = (False, False)  # not retriable
RETRIABLE: Final = (True, False)  # retry the same request later
REFRESH: Final = (True, True)  # refresh metadata, then retry


class Row(int):
    """One row of the table: an error code with its reaction and text."""

    retriable: bool
    refresh_metadata: bool
    text: str

    def __new__(cls, code: int, reaction: tuple[bool, bool], text: str) -> Self:
        """Create a row."""
        self = int.__new__(cls, code)
        self.retriable, self.refresh_metadata = reaction
        self.text = text
        return self


class ErrorCode(IntEnum):
    """The error codes of the protocol."""

    retriable: bool
    refresh_metadata: bool
    text: str

    def __new__(cls, row: Row) -> Self:
        """Create the enum member of a row; its value is the code."""
        self = int.__new__(cls, row)
        self._value_ = int(row)
        self.retriable = row.retriable
        self.refresh_metadata = row.refresh_metadata
        self.text = row.text
        return self

    # fmt: off
    UNKNOWN_SERVER_ERROR = Row(-1, FINAL, "The server failed with an unexpected error. Check the broker log for the cause.")
    NONE = Row(0, FINAL, "The request succeeded.")
    OFFSET_OUT_OF_RANGE = Row(1, FINAL, "The offset is outside the range of the partition. Reset it to the earliest or latest offset.")
    CORRUPT_MESSAGE = Row(2, RETRIABLE, "A record batch is malformed or its CRC does not match. Send it again; if it fails again, the producer builds it incorrectly.")
    UNKNOWN_TOPIC_OR_PARTITION = Row(3, REFRESH, "This broker does not host the topic or partition. Check the name and refresh metadata.")
    INVALID_FETCH_SIZE = Row(4, FINAL, "The fetch size is invalid. Use a value greater than 0.")
    LEADER_NOT_AVAILABLE = Row(5, REFRESH, "The partition has no leader at the moment. Retry after the leader election.")
    NOT_LEADER_OR_FOLLOWER = Row(6, REFRESH, "This broker is not the leader, or not a replica, of the partition. Refresh metadata and send the request to the leader.")
    REQUEST_TIMED_OUT = Row(7, RETRIABLE, "The request timed out, but it can still take effect. Retry it or raise the timeout.")
    BROKER_NOT_AVAILABLE = Row(8, FINAL, "No live broker has this id. Check the id and that the broker is running.")
    REPLICA_NOT_AVAILABLE = Row(9, REFRESH, "The replica is not available for this partition. Refresh metadata and use another replica.")
    MESSAGE_TOO_LARGE = Row(10, FINAL, "The batch exceeds the maximum size of the topic. Send smaller batches or raise max.message.bytes.")
    STALE_CONTROLLER_EPOCH = Row(11, FINAL, "The request came from a controller with an old epoch. A newer controller is active.")
    OFFSET_METADATA_TOO_LARGE = Row(12, FINAL, "The metadata of the committed offset is too large. Shorten it or raise offset.metadata.max.bytes.")
    NETWORK_EXCEPTION = Row(13, REFRESH, "The connection failed before a response arrived, so the result is unknown. Reconnect and retry.")
    COORDINATOR_LOAD_IN_PROGRESS = Row(14, RETRIABLE, "The coordinator is loading its state from the log. Retry later.")
    COORDINATOR_NOT_AVAILABLE = Row(15, RETRIABLE, "The coordinator is not available. Find the coordinator again and retry.")
    NOT_COORDINATOR = Row(16, RETRIABLE, "Another broker is the coordinator of this group or transactional id. Find the coordinator and retry there.")
    INVALID_TOPIC_EXCEPTION = Row(17, FINAL, "The topic name is invalid, or the operation is not allowed on an internal topic. Use another topic.")
    RECORD_LIST_TOO_LARGE = Row(18, FINAL, "The batch is larger than a segment. Send smaller batches or raise segment.bytes.")
    NOT_ENOUGH_REPLICAS = Row(19, RETRIABLE, "Fewer replicas are in sync than min.insync.replicas requires, so nothing was written. Retry when replicas have caught up.")
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = Row(20, RETRIABLE, "The leader appended the records, but then too few replicas were in sync. Without idempotence a retry can duplicate them.")
    INVALID_REQUIRED_ACKS = Row(21, FINAL, "The value of acks is invalid. Use 0, 1 or -1 (all).")
    ILLEGAL_GENERATION = Row(22, FINAL, "The generation of the member is not the current one. Rejoin the group.")
    INCONSISTENT_GROUP_PROTOCOL = Row(23, FINAL, "The member has no protocol in common with the group. Use the same protocol type and a shared assignor in all members.")
    INVALID_GROUP_ID = Row(24, FINAL, "The group id is invalid or empty. Set group.id.")
    UNKNOWN_MEMBER_ID = Row(25, FINAL, "The group does not have this member: it never joined, or it was removed. Join as a new member.")
    INVALID_SESSION_TIMEOUT = Row(26, FINAL, "The session timeout is out of range. Use a value between group.min.session.timeout.ms and group.max.session.timeout.ms.")
    REBALANCE_IN_PROGRESS = Row(27, FINAL, "The group is rebalancing. Rejoin it to receive an assignment.")
    INVALID_COMMIT_OFFSET_SIZE = Row(28, FINAL, "The offset commit is too large for a record of __consumer_offsets. Commit fewer partitions or less metadata at a time.")
    TOPIC_AUTHORIZATION_FAILED = Row(29, FINAL, "The principal is not authorized for this operation on the topic. Add an ACL for the topic.")
    GROUP_AUTHORIZATION_FAILED = Row(30, FINAL, "The principal is not authorized for this operation on the group. Add an ACL for the group.")
    CLUSTER_AUTHORIZATION_FAILED = Row(31, FINAL, "The principal is not authorized for this operation on the cluster. Add an ACL for the cluster.")
    INVALID_TIMESTAMP = Row(32, FINAL, "The timestamp of a record is too far from the broker's clock. Correct it, or raise the timestamp limits of the topic.")
    UNSUPPORTED_SASL_MECHANISM = Row(33, FINAL, "The listener does not support this SASL mechanism. Use one of the mechanisms in the response.")
    ILLEGAL_SASL_STATE = Row(34, FINAL, "The request is not allowed in this state of the SASL authentication. Send SaslHandshake first, then SaslAuthenticate.")
    UNSUPPORTED_VERSION = Row(35, FINAL, "The server does not support this API version or feature. Check its ApiVersions response.")
    TOPIC_ALREADY_EXISTS = Row(36, FINAL, "A topic with this name, or with a colliding name, already exists. Use it or choose another name.")
    INVALID_PARTITIONS = Row(37, FINAL, "The number of partitions is invalid: below 1, or not larger than the current number. Use a larger number.")
    INVALID_REPLICATION_FACTOR = Row(38, FINAL, "The replication factor is below 1 or exceeds the number of brokers. Lower it or add brokers.")
    INVALID_REPLICA_ASSIGNMENT = Row(39, FINAL, "The replica assignment has duplicates, gaps or unknown brokers. Correct the assignment.")
    INVALID_CONFIG = Row(40, FINAL, "A config name or value is invalid. Correct it.")
    NOT_CONTROLLER = Row(41, RETRIABLE, "This broker is not the controller. Refresh metadata and send the request to the controller.")
    INVALID_REQUEST = Row(42, FINAL, "The request is malformed or inconsistent. Correct the client that sent it.")
    UNSUPPORTED_FOR_MESSAGE_FORMAT = Row(43, FINAL, "The record format of the topic does not support this operation. Use a topic with the current format.")
    POLICY_VIOLATION = Row(44, FINAL, "The request violates a policy of the cluster. Change the request to comply.")
    OUT_OF_ORDER_SEQUENCE_NUMBER = Row(45, FINAL, "The sequence number does not follow the last one of this producer: records were lost. Create a new producer.")
    DUPLICATE_SEQUENCE_NUMBER = Row(46, FINAL, "The batch is a duplicate that the broker stored earlier. Treat it as delivered.")
    INVALID_PRODUCER_EPOCH = Row(47, FINAL, "The producer epoch is older than the current one. Abort and initialise the producer again.")
    INVALID_TXN_STATE = Row(48, FINAL, "The operation is not allowed in this state of the transaction. Begin, write and end the transaction in that order.")
    INVALID_PRODUCER_ID_MAPPING = Row(49, FINAL, "The producer id does not belong to the transactional id. Initialise the producer again.")
    INVALID_TRANSACTION_TIMEOUT = Row(50, FINAL, "The transaction timeout exceeds the limit of the broker. Use at most transaction.max.timeout.ms.")
    CONCURRENT_TRANSACTIONS = Row(51, RETRIABLE, "The previous operation of this transaction is still in progress. Retry later.")
    TRANSACTION_COORDINATOR_FENCED = Row(52, FINAL, "The transaction coordinator was replaced by a newer one. The new coordinator completes the transaction.")
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = Row(53, FINAL, "The principal is not authorized to use this transactional id. Add an ACL for the transactional id.")
    SECURITY_DISABLED = Row(54, FINAL, "The cluster has no authorizer, so it has no ACLs. Set authorizer.class.name to use ACLs.")
    OPERATION_NOT_ATTEMPTED = Row(55, FINAL, "This part was not attempted, because another part of the request failed. Correct that part and retry.")
    KAFKA_STORAGE_ERROR = Row(56, REFRESH, "The broker failed to read or write the files of the partition. Refresh metadata; another replica may be the leader.")
    LOG_DIR_NOT_FOUND = Row(57, FINAL, "The broker does not have this log directory. Use one of log.dirs.")
    SASL_AUTHENTICATION_FAILED = Row(58, FINAL, "SASL authentication failed. Check the user name, the password and the mechanism.")
    UNKNOWN_PRODUCER_ID = Row(59, FINAL, "The broker has no state of this producer id, because its records were deleted. Initialise the producer again.")
    REASSIGNMENT_IN_PROGRESS = Row(60, FINAL, "A reassignment of the partition is already in progress. Wait for it or cancel it.")
    DELEGATION_TOKEN_AUTH_DISABLED = Row(61, FINAL, "Delegation tokens are disabled in this cluster. Enable them or use another mechanism.")
    DELEGATION_TOKEN_NOT_FOUND = Row(62, FINAL, "The delegation token does not exist. Create one, or check its HMAC.")
    DELEGATION_TOKEN_OWNER_MISMATCH = Row(63, FINAL, "The principal is not the owner or a renewer of the delegation token. Only they can change it.")
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = Row(64, FINAL, "Delegation tokens cannot be requested on this connection. Authenticate with SASL or TLS, without a token.")
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = Row(65, FINAL, "The principal is not authorized for this operation on the delegation token. Add an ACL for the token.")
    DELEGATION_TOKEN_EXPIRED = Row(66, FINAL, "The delegation token has expired. Create a new one.")
    INVALID_PRINCIPAL_TYPE = Row(67, FINAL, "The principal type is not supported. Use User.")
    NON_EMPTY_GROUP = Row(68, FINAL, "The group still has members. Stop them first.")
    GROUP_ID_NOT_FOUND = Row(69, FINAL, "The group does not exist. Check the group id and the group type.")
    FETCH_SESSION_ID_NOT_FOUND = Row(70, RETRIABLE, "The broker evicted this fetch session. Open a new session with a full fetch.")
    INVALID_FETCH_SESSION_EPOCH = Row(71, RETRIABLE, "The epoch of the fetch session is invalid. Open a new session with a full fetch.")
    LISTENER_NOT_FOUND = Row(72, REFRESH, "The leader does not have the listener of this connection. Configure the listener on every broker.")
    TOPIC_DELETION_DISABLED = Row(73, FINAL, "Topic deletion is disabled. Set delete.topic.enable=true to allow it.")
    FENCED_LEADER_EPOCH = Row(74, REFRESH, "The leader epoch of the request is older than the broker's. Refresh metadata.")
    UNKNOWN_LEADER_EPOCH = Row(75, RETRIABLE, "The leader epoch of the request is newer than the broker's. Retry when the broker has caught up.")
    UNSUPPORTED_COMPRESSION_TYPE = Row(76, FINAL, "The compression type is not supported for this request. Use another codec or a newer request version.")
    STALE_BROKER_EPOCH = Row(77, FINAL, "The broker has registered again since this epoch. Use the epoch of the latest registration.")
    OFFSET_NOT_AVAILABLE = Row(78, RETRIABLE, "The new leader does not know the high watermark yet. Retry later.")
    MEMBER_ID_REQUIRED = Row(79, FINAL, "The group requires a member id before the member joins. Join again with the member id of this response.")
    PREFERRED_LEADER_NOT_AVAILABLE = Row(80, REFRESH, "The preferred leader is offline or not in sync. Retry the election when it is available.")
    GROUP_MAX_SIZE_REACHED = Row(81, FINAL, "The group has reached its maximum size. Stop a member or raise group.max.size.")
    FENCED_INSTANCE_ID = Row(82, FINAL, "Another member joined with the same group.instance.id. Use a unique id for each member.")
    ELIGIBLE_LEADERS_NOT_AVAILABLE = Row(83, REFRESH, "No replica that can become leader is alive. Restart one, or allow an unclean election.")
    ELECTION_NOT_NEEDED = Row(84, REFRESH, "The partition already has the leader that the election would choose. No action is needed.")
    NO_REASSIGNMENT_IN_PROGRESS = Row(85, FINAL, "No reassignment of the partition is in progress. There is nothing to cancel.")
    GROUP_SUBSCRIBED_TO_TOPIC = Row(86, FINAL, "The group is subscribed to the topic, so its offsets cannot be deleted. Unsubscribe first.")
    INVALID_RECORD = Row(87, FINAL, "A record is invalid for its topic or format. Correct it; none of the records was written.")
    UNSTABLE_OFFSET_COMMIT = Row(88, RETRIABLE, "The offsets are part of an open transaction. Retry when it has ended.")
    THROTTLING_QUOTA_EXCEEDED = Row(89, RETRIABLE, "The request exceeds a quota. Wait for the throttle time of the response and retry.")
    PRODUCER_FENCED = Row(90, FINAL, "A newer producer with the same transactional id fenced this one. Close this producer.")
    RESOURCE_NOT_FOUND = Row(91, FINAL, "The resource does not exist. Check the name.")
    DUPLICATE_RESOURCE = Row(92, FINAL, "The request names a resource twice, or the resource already exists. Name it once.")
    UNACCEPTABLE_CREDENTIAL = Row(93, FINAL, "The credential is not acceptable. Check the mechanism and the iterations, and that no value is empty.")
    INCONSISTENT_VOTER_SET = Row(94, FINAL, "The sender and the receiver have different voter sets. Configure the same voters on all controllers.")
    INVALID_UPDATE_VERSION = Row(95, FINAL, "The update is based on an old version. Read the current version and apply the change again.")
    FEATURE_UPDATE_FAILED = Row(96, FINAL, "The feature level could not be changed. Check that all brokers support the requested level.")
    PRINCIPAL_DESERIALIZATION_FAILURE = Row(97, FINAL, "The principal of a forwarded request could not be deserialized. Use the same principal builder on all brokers.")
    SNAPSHOT_NOT_FOUND = Row(98, FINAL, "The metadata snapshot does not exist any more. Fetch the latest snapshot.")
    POSITION_OUT_OF_RANGE = Row(99, FINAL, "The position is past the end of the snapshot. Read the snapshot from the start.")
    UNKNOWN_TOPIC_ID = Row(100, REFRESH, "The broker does not know this topic id. Refresh metadata; the topic may be new or deleted.")
    DUPLICATE_BROKER_REGISTRATION = Row(101, FINAL, "A live broker is already registered with this id. Use a unique id for each broker.")
    BROKER_ID_NOT_REGISTERED = Row(102, FINAL, "No broker is registered with this id. Start the broker or correct the id.")
    INCONSISTENT_TOPIC_ID = Row(103, REFRESH, "The topic id of the log differs from the request: the topic was deleted and created again. Refresh metadata.")
    INCONSISTENT_CLUSTER_ID = Row(104, FINAL, "The request is for another cluster. Check the addresses and the cluster id.")
    TRANSACTIONAL_ID_NOT_FOUND = Row(105, FINAL, "The transactional id does not exist. It was never used or has expired.")
    FETCH_SESSION_TOPIC_ID_ERROR = Row(106, RETRIABLE, "The fetch session mixes topic names and topic ids. Open a new session.")
    INELIGIBLE_REPLICA = Row(107, FINAL, "The replica cannot join the ISR, because its broker is fenced or shutting down. Wait until the broker has registered.")
    NEW_LEADER_ELECTED = Row(108, FINAL, "The change was applied and elected another leader. Stop leading the partition.")
    OFFSET_MOVED_TO_TIERED_STORAGE = Row(109, FINAL, "The leader has this offset in tiered storage only. Start at its first local offset.")
    FENCED_MEMBER_EPOCH = Row(110, FINAL, "The member epoch was fenced by the group coordinator. Release all partitions and rejoin with epoch 0.")
    UNRELEASED_INSTANCE_ID = Row(111, FINAL, "Another member still uses this group.instance.id. Stop it, or wait for its session to expire.")
    UNSUPPORTED_ASSIGNOR = Row(112, FINAL, "The group coordinator does not support this assignor. Use one of group.consumer.assignors.")
    STALE_MEMBER_EPOCH = Row(113, FINAL, "The member epoch is older than the current one. Use the epoch of the next heartbeat response.")
    MISMATCHED_ENDPOINT_TYPE = Row(114, FINAL, "The request is for the other endpoint type, broker or controller. Connect to that endpoint.")
    UNSUPPORTED_ENDPOINT_TYPE = Row(115, FINAL, "The endpoint type is not supported. Request brokers.")
    UNKNOWN_CONTROLLER_ID = Row(116, FINAL, "No controller has this id. Check the id.")
    UNKNOWN_SUBSCRIPTION_ID = Row(117, FINAL, "The telemetry subscription has changed or does not exist. Fetch the subscription again.")
    TELEMETRY_TOO_LARGE = Row(118, FINAL, "The client metrics exceed the maximum size. Send fewer metrics.")
    INVALID_REGISTRATION = Row(119, FINAL, "The controller rejected the broker registration. Check the listeners, features and directories of the broker.")
    TRANSACTION_ABORTABLE = Row(120, FINAL, "The transaction can no longer be committed. Abort it and start it again.")
    INVALID_RECORD_STATE = Row(121, FINAL, "The record is not acquired by this member, or already acknowledged. Drop the acknowledgement.")
    SHARE_SESSION_NOT_FOUND = Row(122, RETRIABLE, "The broker evicted this share session. Open a new session.")
    INVALID_SHARE_SESSION_EPOCH = Row(123, RETRIABLE, "The epoch of the share session is invalid. Open a new session.")
    FENCED_STATE_EPOCH = Row(124, FINAL, "The state epoch of the share partition is newer. The writer with the old epoch must stop.")
    INVALID_VOTER_KEY = Row(125, FINAL, "The voter key does not match the receiving replica. Correct the id and the directory id.")
    DUPLICATE_VOTER = Row(126, FINAL, "The voter is already in the voter set. No action is needed.")
    VOTER_NOT_FOUND = Row(127, FINAL, "The voter is not in the voter set. There is nothing to remove.")
    INVALID_REGULAR_EXPRESSION = Row(128, FINAL, "The regular expression is not valid RE2 syntax. Correct it.")
    REBOOTSTRAP_REQUIRED = Row(129, FINAL, "The client's metadata is too old. Start again from the bootstrap servers.")
    STREAMS_INVALID_TOPOLOGY = Row(130, FINAL, "The topology of the streams application is invalid. Correct the application.")
    STREAMS_INVALID_TOPOLOGY_EPOCH = Row(131, FINAL, "The topology epoch is invalid. Increase it by one with each new topology.")
    STREAMS_TOPOLOGY_FENCED = Row(132, FINAL, "The streams group has a newer topology. Update this application instance.")
    SHARE_SESSION_LIMIT_REACHED = Row(133, RETRIABLE, "The broker has reached its limit of share sessions. Retry when a session has closed.")
    # fmt: on

    @classmethod
    def of(cls, code: int) -> "ErrorCode":
        """Return the row of a code; an unknown code is UNKNOWN_SERVER_ERROR, as in Kafka."""
        try:
            return cls(code)
        except ValueError:
            return cls.UNKNOWN_SERVER_ERROR


class OttlaError(Exception):
    """Base class of Ottla's exceptions."""


class ProtocolViolation(OttlaError):
    """The peer sent invalid bytes; the connection is closed."""


MESSAGE_CHARACTERS_MAX: Final = 4000
"""A message can quote the request, and must fit into a string of the response."""


class RequestError(OttlaError):
    """A request failed with an error code."""

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
        """Whether a retry can succeed."""
        return self.code.retriable

    @property
    def hint(self) -> str:
        """The text of the error code: what happened and what to do."""
        return self.code.text


class StorageFailure(OttlaError):
    """A disk operation failed; the owner of the files steps down."""


class StorageExhausted(StorageFailure):
    """Disk space or file descriptors ran out and nothing was changed; retry when there are some."""


class DiskFull(StorageExhausted):
    """The disk is full."""


RAISE_OPEN_FILES: Final = "raise the limit: ulimit -n, or LimitNOFILE= of a systemd service"
"""What to do about too many open files."""


CREATE_TOPIC: Final = "create the topic with Admin.create_topic"
"""Advice of the client, which the command line words in its own way."""


class DescriptorsExhausted(StorageExhausted):
    """The process or the machine has too many open files."""
