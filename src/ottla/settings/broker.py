# ruff: noqa: E501 - a row reads best with its facts on one line.
"""The broker's settings, one row each, grouped by what they are about.

Invariant: names, types, and unless a row says otherwise defaults and valid values, are those of
Kafka 4.3, with the ZooKeeper settings of 3.9. Sizes are bytes; a name says its unit of time.
"""

from typing import Final

from ottla.settings import compression, connection, ignored, security, unsupported
from ottla.settings.config_def import CLUSTER_WIDE, PER_BROKER, ConfigDef, Setting, settings_in
from ottla.settings.config_types import (
    BOOLEAN,
    DOUBLE,
    INT,
    INT_MAX,
    LIST,
    LONG,
    LONG_MAX,
    SHORT,
    STRING,
)
from ottla.settings.validators import (
    NON_EMPTY_LIST,
    at_least,
    between,
    either,
    list_of,
    matching,
    one_of,
    some_of,
)

# The authorizers of Kafka, before and since KRaft. Ottla's own stands in for all of them.
ACL_AUTHORIZER: Final = "acl"
AUTHORIZERS: Final = {
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer": ACL_AUTHORIZER,
    "kafka.security.authorizer.AclAuthorizer": ACL_AUTHORIZER,
    "kafka.security.auth.SimpleAclAuthorizer": ACL_AUTHORIZER,
}
RACK_AWARE: Final = "rack-aware"
REPLICA_SELECTORS: Final = {
    "org.apache.kafka.common.replica.RackAwareReplicaSelector": RACK_AWARE,
    "org.apache.kafka.common.replica.LeaderSelector": "leader",
}
GROUP_ASSIGNORS: Final = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
SHARE_ASSIGNORS: Final = {"org.apache.kafka.coordinator.group.assignor.SimpleAssignor": "simple"}

# fmt: off
# Who this broker is, and who coordinates it with the others.
NODE_ID = Setting("node.id", INT, None, at_least(0), kafka_default="(required)",
    doc="The number of this broker, different from that of every other in the cluster. broker.id means "
        "the same; with neither, the broker keeps the id in its data directory or chooses one.")
BROKER_ID = Setting("broker.id", INT, -1, at_least(-1),
    doc="The older name of node.id; -1 is unset. When both are given they have to agree.")
BROKER_RACK = Setting("broker.rack", STRING, None,
    doc="The rack, zone or host this broker stands in. Replicas of a partition are put on different "
        "racks, and consumers with the same client.rack may read here.")
ZOOKEEPER_CONNECT = Setting("zookeeper.connect", STRING, None, matching(r"[^\s,/]+(\s*,\s*[^\s,/]+)*(/\S*)?", "host:port,host:port,.../path"),
    doc="The ZooKeeper servers that coordinate the cluster, with an optional path that keeps it apart "
        "from others. Unset, the broker coordinates itself and is a cluster of one.")
ZOOKEEPER_SESSION_TIMEOUT_MS = Setting("zookeeper.session.timeout.ms", INT, 18_000, at_least(1),
    doc="Milliseconds without a sign of life after which ZooKeeper gives this broker up and its "
        "leaderships go to others. Shorter reacts sooner and bears shorter pauses.")
ZOOKEEPER_CONNECTION_TIMEOUT_MS = Setting("zookeeper.connection.timeout.ms", INT, None, at_least(1),
    doc="Milliseconds to wait for ZooKeeper at start; null takes zookeeper.session.timeout.ms.")
CONTROLLED_SHUTDOWN_ENABLE = Setting("controlled.shutdown.enable", BOOLEAN, True,
    doc="Whether a broker that stops hands its leaderships over first, so that nobody waits for an election.")
CONTROLLER_SOCKET_TIMEOUT_MS = Setting("controller.socket.timeout.ms", INT, 30_000,
    doc="Milliseconds that the controller waits for a broker's answer to its orders.")

# Listeners: where connections come in.
LISTENERS = Setting("listeners", LIST, ("PLAINTEXT://127.0.0.1:9092",), NON_EMPTY_LIST, dynamic=PER_BROKER, kafka_default="PLAINTEXT://:9092",
    doc="The addresses to listen on, as name://host:port; port 0 takes a free one. An empty host means "
        "every interface, which is Kafka's default; Ottla opens itself to the network only when told to.")
ADVERTISED_LISTENERS = Setting("advertised.listeners", LIST, None, NON_EMPTY_LIST,
    doc="The addresses that clients and other brokers are told to use. Set it when they reach the "
        "broker by another name or port than it listens on; null takes listeners.")
LISTENER_SECURITY_PROTOCOL_MAP = Setting("listener.security.protocol.map", STRING,
    "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", matching(r"\s*[^:,\s]+\s*:\s*[^:,\s]+\s*(,\s*[^:,\s]+\s*:\s*[^:,\s]+\s*)*", "name:protocol,name:protocol,..."), dynamic=PER_BROKER,
    doc="Which protocol each listener speaks. Needed when listeners have names of their own, such as "
        "INTERNAL and EXTERNAL.")
INTER_BROKER_LISTENER_NAME = Setting("inter.broker.listener.name", STRING, None,
    doc="The listener that brokers use among themselves; null takes the one whose protocol is "
        "security.inter.broker.protocol, or the only one there is.")
SECURITY_INTER_BROKER_PROTOCOL = Setting("security.inter.broker.protocol", STRING, "PLAINTEXT", one_of(*security.PROTOCOLS),
    doc="The protocol that brokers use among themselves. Give this or inter.broker.listener.name, not both.")
CONTROLLER_LISTENER_NAMES = Setting("controller.listener.names", LIST, (), kafka_default="(required)",
    doc="Listeners that a Kafka file sets apart for its controllers. Ottla has none such and does not "
        "open them, so the rest of the file can stay as it is.")
SOCKET_LISTEN_BACKLOG_SIZE = Setting("socket.listen.backlog.size", INT, 50, at_least(1),
    doc="Connections the operating system queues before the broker has accepted them. Raise it, and the "
        "system's own limit, when many clients reconnect at once.")
SOCKET_RECEIVE_BUFFER_BYTES = Setting("socket.receive.buffer.bytes", INT, 102_400, at_least(-1),
    doc="The TCP receive buffer of a connection; -1 leaves it to the operating system.")
SOCKET_SEND_BUFFER_BYTES = Setting("socket.send.buffer.bytes", INT, 102_400, at_least(-1),
    doc="The TCP send buffer of a connection; -1 leaves it to the operating system.")
SOCKET_REQUEST_MAX_BYTES = Setting("socket.request.max.bytes", INT, 104_857_600, at_least(1),
    doc="The largest request a connection may send; a longer one closes it before any memory is taken.")
QUEUED_MAX_REQUEST_BYTES = Setting("queued.max.request.bytes", LONG, 33_554_432, kafka_default="-1",
    doc="Memory for requests that have not come whole or are being served, of all connections together. When it "
        "is used up, large requests wait, and one at a time goes on, whatever its size; a quarter is kept for "
        "those of about a megabyte. A value of 0 or less does not limit it.")
OTTLA_QUEUED_MAX_RESPONSE_BYTES = Setting("ottla.queued.max.response.bytes", LONG, 33_554_432,
    doc="Memory for answers that clients have not taken, of all connections together: half for those that are known "
        "to read, half for the others. When it is used up, answers wait, and who takes nothing for 10 seconds, or 2 "
        "when it never read, is closed while others wait. 0 or less does not limit it. Ottla's own.")
CONNECTIONS_MAX_IDLE_MS = Setting("connections.max.idle.ms", LONG, 600_000,
    doc="Milliseconds after which a connection without traffic is closed.")
CONNECTIONS_MAX_REAUTH_MS = Setting("connections.max.reauth.ms", LONG, 0, at_least(0), per_listener=True,
    doc="Milliseconds after which a SASL client has to log in again on its connection; 0 never asks. Set "
        "it so that a withdrawn credential stops working.")
CONNECTION_FAILED_AUTHENTICATION_DELAY_MS = Setting("connection.failed.authentication.delay.ms", INT, 100, at_least(0),
    doc="Milliseconds before a failed login is answered, so that guessing is slow. Keep it below "
        "connections.max.idle.ms.")
MAX_CONNECTIONS = Setting("max.connections", INT, INT_MAX, at_least(0), dynamic=CLUSTER_WIDE, per_listener=True,
    doc="The most connections at a time, of the broker or of one listener. Beyond it new ones wait until "
        "others have left, as many as socket.listen.backlog.size; the rest is closed. When the broker's is "
        "lowered, and in favour of inter.broker.listener.name, those that were silent for longest are closed.")
MAX_CONNECTIONS_PER_IP = Setting("max.connections.per.ip", INT, INT_MAX, at_least(0), dynamic=CLUSTER_WIDE,
    doc="The most connections at a time from one address. Beyond it new ones are closed.")
MAX_CONNECTIONS_PER_IP_OVERRIDES = Setting("max.connections.per.ip.overrides", STRING, "", matching(r"([^\s,]+:[0-9]{1,10}(\s*,\s*[^\s,]+:[0-9]{1,10})*)?", "host:count,host:count,..."), dynamic=CLUSTER_WIDE,
    doc="Addresses with a number of connections of their own in place of max.connections.per.ip.")
MAX_CONNECTION_CREATION_RATE = Setting("max.connection.creation.rate", INT, INT_MAX, at_least(0), dynamic=CLUSTER_WIDE, per_listener=True,
    doc="The most new connections a second, of the broker or of one listener. More wait for their second, "
        "as many as socket.listen.backlog.size; the rest is closed.")

# Logging in, and what is then allowed.
SASL_ENABLED_MECHANISMS = Setting("sasl.enabled.mechanisms", LIST, (), some_of(*security.MECHANISMS, any_case=True), dynamic=PER_BROKER, per_listener=True, kafka_default="GSSAPI",
    doc="The ways to log in that a SASL listener offers; such a listener has to name at least one. Kafka "
        "assumes Kerberos, which Ottla does not have.")
SASL_MECHANISM_INTER_BROKER_PROTOCOL = Setting("sasl.mechanism.inter.broker.protocol", STRING, None, one_of(*security.MECHANISMS, any_case=True), dynamic=PER_BROKER, per_listener=True, kafka_default="GSSAPI",
    doc="How brokers log in to each other; null takes the mechanism that is enabled, if there is just one.")
SASL_SERVER_MAX_RECEIVE_SIZE = Setting("sasl.server.max.receive.size", INT, 524_288, at_least(1), per_listener=True,
    doc="The largest request a connection may send before it has logged in.")
SSL_CLIENT_AUTH = Setting("ssl.client.auth", STRING, "none", one_of("required", "requested", "none"), dynamic=PER_BROKER, per_listener=True,
    doc="Whether clients of a TLS listener have to show a certificate, may, or need not.")
SSL_PRINCIPAL_MAPPING_RULES = Setting("ssl.principal.mapping.rules", STRING, "DEFAULT", per_listener=True,
    doc="Turns the subject of a client's certificate into a user name, as RULE:pattern/replacement/ with L "
        "or U for lower or upper case; the first match wins and DEFAULT is the whole subject.")
SSL_ALLOW_DN_CHANGES = Setting("ssl.allow.dn.changes", BOOLEAN, False, per_listener=True,
    doc="Whether a certificate that is exchanged while the broker runs may have another subject.")
SSL_ALLOW_SAN_CHANGES = Setting("ssl.allow.san.changes", BOOLEAN, False, per_listener=True,
    doc="Whether a certificate that is exchanged while the broker runs may have other host names.")
AUTHORIZER_CLASS_NAME = Setting("authorizer.class.name", STRING, "", one_of("", ACL_AUTHORIZER, aliases=AUTHORIZERS),
    doc="Empty lets everyone do everything; `acl`, or the class name of one of Kafka's own authorizers, "
        "checks every request against the ACLs. No class is loaded.")
SUPER_USERS = Setting("super.users", STRING, "", matching(r"([^:;]+:[^;]+(;|$))*", "User:name;User:name;..."),
    doc="Users that no ACL limits, separated by semicolons. The brokers' own user belongs here.")
ALLOW_EVERYONE_IF_NO_ACL_FOUND = Setting("allow.everyone.if.no.acl.found", BOOLEAN, False,
    doc="Whether something without any ACL is open to all. Off, it is open to super users alone.")

# Topics and their partitions.
NUM_PARTITIONS = Setting("num.partitions", INT, 1, at_least(1),
    doc="Partitions of a topic that is created without saying how many.")
DEFAULT_REPLICATION_FACTOR = Setting("default.replication.factor", INT, 1, at_least(1),
    doc="Replicas of a topic that is created without saying how many. Three in a cluster bears the loss "
        "of a broker while another is being restarted.")
AUTO_CREATE_TOPICS_ENABLE = Setting("auto.create.topics.enable", BOOLEAN, True,
    doc="Whether a topic comes into being when a client first names it. Turn it off where a typing error "
        "should not make a topic.")
DELETE_TOPIC_ENABLE = Setting("delete.topic.enable", BOOLEAN, True,
    doc="Whether topics can be deleted at all.")
OTTLA_TOPIC_NAME_POLICY = Setting("ottla.topic.name.policy", LIST, (), list_of(matching(r"([A-Za-z0-9._-]|\{[a-z_]+(:[A-Za-z0-9._-]+(\|[A-Za-z0-9._-]+)*)?\})+", "{part}.{part:word|word},...")), dynamic=CLUSTER_WIDE,
    doc="Forms that the name of a new topic has to have, one of them. `{env:dev|prod}.{team}.{name}` wants "
        "dev or prod and then two words of letters, digits, - and _, with dots between. Empty allows every "
        "legal name. Topics that are there keep theirs. Ottla's own; Kafka has a Java class for it.")
MIN_INSYNC_REPLICAS = Setting("min.insync.replicas", INT, 1, at_least(1), dynamic=CLUSTER_WIDE,
    doc="Replicas that must be in sync for a write with acks=all to be accepted. Two of three replicas "
        "keeps acknowledged records through the loss of any one broker.")
UNCLEAN_LEADER_ELECTION_ENABLE = Setting("unclean.leader.election.enable", BOOLEAN, False, dynamic=CLUSTER_WIDE,
    doc="Whether a replica that lags may lead when all in sync are gone. On, the partition comes back "
        "sooner and acknowledged records are lost.")
AUTO_LEADER_REBALANCE_ENABLE = Setting("auto.leader.rebalance.enable", BOOLEAN, True,
    doc="Whether leaderships go back to their preferred brokers by themselves after a restart.")
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS = Setting("leader.imbalance.check.interval.seconds", LONG, 300, at_least(1),
    doc="Seconds between two looks at whether leaderships are where they should be.")
MESSAGE_MAX_BYTES = Setting("message.max.bytes", INT, 1_048_588, at_least(0), dynamic=CLUSTER_WIDE,
    doc="The largest record batch that topics without max.message.bytes take, as it arrives, compressed. "
        "Followers and consumers still fetch a batch that is larger than their own limit.")
MAX_DECOMPRESSED_MESSAGE_BYTES = Setting("max.decompressed.message.bytes", INT, 33_554_432, at_least(0), dynamic=CLUSTER_WIDE,
    doc="What a compressed batch may become when it is unpacked to be checked. A batch that holds more is "
        "refused, so that a few kilobytes cannot fill the broker's memory.")
COMPRESSION_TYPE = Setting("compression.type", STRING, "producer", one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), dynamic=CLUSTER_WIDE,
    doc="How batches are stored. `producer` keeps what the producer chose and is by far the cheapest: "
        "anything else makes the broker compress again.")

# The log: directories, segments, flushing.
LOG_DIR = Setting("log.dir", LIST, (".ottla/data",), NON_EMPTY_LIST, kafka_default="/tmp/kafka-logs",
    doc="The directory of the data, read when log.dirs is not set; a relative one starts at the working "
        "directory. Kafka's default lies under /tmp, which many systems empty at start.")
LOG_DIRS = Setting("log.dirs", LIST, None, NON_EMPTY_LIST,
    doc="The directories of the data, usually one per disk; null takes log.dir. A new partition goes "
        "where the fewest are.")
CORDONED_LOG_DIRS = Setting("cordoned.log.dirs", LIST, (), dynamic=PER_BROKER,
    doc="Directories that get no new partitions, to be emptied before a disk is taken out; `*` is all.")
LOG_SEGMENT_BYTES = Setting("log.segment.bytes", INT, 1_073_741_824, at_least(1_048_576), dynamic=CLUSTER_WIDE,
    doc="The size at which a segment file is closed and the next begun, for topics without segment.bytes. "
        "Retention and compaction work on closed segments.")
LOG_ROLL_MS = Setting("log.roll.ms", LONG, None, at_least(1), dynamic=CLUSTER_WIDE,
    doc="Milliseconds after which a segment is closed even if it is small, for topics without segment.ms; "
        "null takes log.roll.hours.")
LOG_ROLL_HOURS = Setting("log.roll.hours", INT, 168, at_least(1),
    doc="Hours after which a segment is closed even if it is small, when log.roll.ms is not set.")
LOG_ROLL_JITTER_MS = Setting("log.roll.jitter.ms", LONG, None, at_least(0), dynamic=CLUSTER_WIDE,
    doc="Up to so many milliseconds are taken by chance off the time a segment stays open, so that not "
        "all are closed at once; null takes log.roll.jitter.hours.")
LOG_ROLL_JITTER_HOURS = Setting("log.roll.jitter.hours", INT, 0, at_least(0),
    doc="Up to so many hours are taken by chance off the time a segment stays open, when "
        "log.roll.jitter.ms is not set.")
LOG_INDEX_INTERVAL_BYTES = Setting("log.index.interval.bytes", INT, 4096, at_least(0), dynamic=CLUSTER_WIDE,
    doc="Bytes of log between two index entries, for topics without index.interval.bytes. Fewer find an "
        "offset in fewer reads and make larger indexes.")
LOG_INDEX_SIZE_MAX_BYTES = Setting("log.index.size.max.bytes", INT, 10_485_760, at_least(4), dynamic=CLUSTER_WIDE,
    doc="The largest index of a segment, for topics without segment.index.bytes. A full one closes the segment.")
LOG_PREALLOCATE = Setting("log.preallocate", BOOLEAN, False, dynamic=CLUSTER_WIDE,
    doc="The same for topics without preallocate, and without effect as well.")
LOG_FLUSH_INTERVAL_MESSAGES = Setting("log.flush.interval.messages", LONG, LONG_MAX, at_least(1), dynamic=CLUSTER_WIDE,
    doc="Records after which a partition is forced to disk, for topics without flush.messages. Replicas "
        "are the usual safety; forcing every write costs most of the throughput.")
LOG_FLUSH_INTERVAL_MS = Setting("log.flush.interval.ms", LONG, None, at_least(0), dynamic=CLUSTER_WIDE,
    doc="Milliseconds that a record may wait before it is forced to disk, for topics without flush.ms; "
        "null takes log.flush.scheduler.interval.ms.")
LOG_FLUSH_SCHEDULER_INTERVAL_MS = Setting("log.flush.scheduler.interval.ms", LONG, LONG_MAX, at_least(1),
    doc="Milliseconds between two looks at which partitions are due to be forced to disk.")
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS = Setting("log.flush.offset.checkpoint.interval.ms", INT, 60_000, at_least(0),
    doc="Milliseconds between two writes of the offsets up to which logs are on disk. After a crash "
        "recovery begins there.")
LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS = Setting("log.flush.start.offset.checkpoint.interval.ms", INT, 60_000, at_least(0),
    doc="Milliseconds between two writes of the first offset of each log, so that deleted records stay deleted.")
NUM_RECOVERY_THREADS_PER_DATA_DIR = Setting("num.recovery.threads.per.data.dir", INT, 2, at_least(1), dynamic=CLUSTER_WIDE,
    doc="How many logs of a directory are checked at a time after a crash; Ottla uses child processes, "
        "not threads. Raise it on machines with many cores and fast disks.")

# Retention: what is deleted when.
LOG_CLEANUP_POLICY = Setting("log.cleanup.policy", LIST, ("delete",), some_of("compact", "delete"), dynamic=CLUSTER_WIDE,
    doc="What happens to old data of topics without cleanup.policy: `delete` drops whole segments, "
        "`compact` keeps the newest record of each key, both does both, empty keeps all.")
LOG_RETENTION_MS = Setting("log.retention.ms", LONG, None, either(at_least(1), -1), dynamic=CLUSTER_WIDE,
    doc="Milliseconds that records are kept, for topics without retention.ms; -1 is for ever, null takes "
        "log.retention.minutes.")
LOG_RETENTION_MINUTES = Setting("log.retention.minutes", INT, None, either(at_least(1), -1),
    doc="Minutes that records are kept, when log.retention.ms is not set; -1 is for ever, null takes "
        "log.retention.hours.")
LOG_RETENTION_HOURS = Setting("log.retention.hours", INT, 168, either(at_least(1), -1),
    doc="Hours that records are kept, when neither of the finer settings is set; -1 is for ever.")
LOG_RETENTION_BYTES = Setting("log.retention.bytes", LONG, -1, dynamic=CLUSTER_WIDE,
    doc="The size to which a partition is cut down, for topics without retention.bytes; below zero is no "
        "limit. It counts per partition, not per topic.")
LOG_RETENTION_CHECK_INTERVAL_MS = Setting("log.retention.check.interval.ms", LONG, 300_000, at_least(1),
    doc="Milliseconds between two searches for segments to delete.")
LOG_SEGMENT_DELETE_DELAY_MS = Setting("log.segment.delete.delay.ms", LONG, 60_000, at_least(0), dynamic=CLUSTER_WIDE,
    doc="Milliseconds that the file of a deleted segment stays, for readers that still have it open.")
LOG_MESSAGE_TIMESTAMP_TYPE = Setting("log.message.timestamp.type", STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"), dynamic=CLUSTER_WIDE,
    doc="Whether records of topics without message.timestamp.type keep the producer's time or get the broker's.")
LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS = Setting("log.message.timestamp.before.max.ms", LONG, LONG_MAX, at_least(0), dynamic=CLUSTER_WIDE,
    doc="How many milliseconds a record's own time may lie before the broker's, or it is rejected.")
LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS = Setting("log.message.timestamp.after.max.ms", LONG, 3_600_000, at_least(0), dynamic=CLUSTER_WIDE,
    doc="How many milliseconds a record's own time may lie ahead of the broker's, or it is rejected. A "
        "record from the future would keep its segment too long.")

# Compaction.
LOG_CLEANER_ENABLE = Setting("log.cleaner.enable", BOOLEAN, True,
    doc="Whether compaction runs. Off, compacted topics grow for ever, the committed offsets among them.")
LOG_CLEANER_THREADS = Setting("log.cleaner.threads", INT, 1, at_least(0), dynamic=CLUSTER_WIDE,
    doc="How many logs are compacted at a time; Ottla uses child processes, not threads.")
LOG_CLEANER_BACKOFF_MS = Setting("log.cleaner.backoff.ms", LONG, 15_000, at_least(0), dynamic=CLUSTER_WIDE,
    doc="Milliseconds to rest when no log needs compaction.")
LOG_CLEANER_DEDUPE_BUFFER_SIZE = Setting("log.cleaner.dedupe.buffer.size", LONG, 134_217_728, dynamic=CLUSTER_WIDE,
    doc="Memory for the table of keys, all of log.cleaner.threads together. More of it compacts more of a "
        "log in one pass.")
LOG_CLEANER_IO_BUFFER_LOAD_FACTOR = Setting("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, dynamic=CLUSTER_WIDE,
    doc="How full the table of keys may get, above 0 and up to 1. Fuller compacts more of a log in one "
        "pass and finds keys more slowly.")
LOG_CLEANER_IO_BUFFER_SIZE = Setting("log.cleaner.io.buffer.size", INT, 524_288, at_least(0), dynamic=CLUSTER_WIDE,
    doc="Memory for reading and writing logs while compacting, all of log.cleaner.threads together.")
LOG_CLEANER_IO_MAX_BYTES_PER_SECOND = Setting("log.cleaner.io.max.bytes.per.second", DOUBLE, 1.7976931348623157e308, dynamic=CLUSTER_WIDE,
    doc="The most bytes that compaction reads and writes a second. Lower it when it slows clients down.")
LOG_CLEANER_MIN_CLEANABLE_RATIO = Setting("log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, between(0, 1), dynamic=CLUSTER_WIDE,
    doc="The share of a log that must be uncompacted before it is worth a pass, for topics without "
        "min.cleanable.dirty.ratio. Lower saves disk and costs reading.")
LOG_CLEANER_MIN_COMPACTION_LAG_MS = Setting("log.cleaner.min.compaction.lag.ms", LONG, 0, at_least(0), dynamic=CLUSTER_WIDE,
    doc="Milliseconds for which every record stays, whatever its key, for topics without min.compaction.lag.ms.")
LOG_CLEANER_MAX_COMPACTION_LAG_MS = Setting("log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, at_least(1), dynamic=CLUSTER_WIDE,
    doc="Milliseconds after which a record is compacted even if little else is due, for topics without "
        "max.compaction.lag.ms.")
LOG_CLEANER_DELETE_RETENTION_MS = Setting("log.cleaner.delete.retention.ms", LONG, 86_400_000, at_least(0), dynamic=CLUSTER_WIDE,
    doc="Milliseconds for which the mark of a deleted key stays, for topics without delete.retention.ms. "
        "A consumer slower than that may miss the deletion.")

# Replication.
NUM_REPLICA_FETCHERS = Setting("num.replica.fetchers", INT, 1, at_least(1), dynamic=CLUSTER_WIDE,
    doc="Connections on which this broker follows each other broker. Raise it when followers lag though "
        "network and CPU are idle.")
REPLICA_FETCH_MAX_BYTES = Setting("replica.fetch.max.bytes", INT, 1_048_576, at_least(0),
    doc="Bytes of one partition that a follower asks for at once. A batch that is larger still comes through.")
REPLICA_FETCH_RESPONSE_MAX_BYTES = Setting("replica.fetch.response.max.bytes", INT, 10_485_760, at_least(0),
    doc="Bytes of all partitions together that a follower asks for at once.")
REPLICA_FETCH_MIN_BYTES = Setting("replica.fetch.min.bytes", INT, 1,
    doc="Bytes that a leader waits for before it answers a follower, up to replica.fetch.wait.max.ms.")
REPLICA_FETCH_WAIT_MAX_MS = Setting("replica.fetch.wait.max.ms", INT, 500, at_least(0),
    doc="Milliseconds that a follower's fetch may wait at the leader for new records. Keep it well below "
        "replica.lag.time.max.ms.")
REPLICA_FETCH_BACKOFF_MS = Setting("replica.fetch.backoff.ms", INT, 1000, at_least(0),
    doc="Milliseconds before a follower fetches a partition again after an error.")
REPLICA_LAG_TIME_MAX_MS = Setting("replica.lag.time.max.ms", LONG, 30_000, at_least(1),
    doc="Milliseconds for which a follower may not have caught up before it leaves the replicas in sync. "
        "Writes with acks=all wait that long for a broker that died.")
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS = Setting("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, at_least(1),
    doc="Milliseconds between two writes of the high watermarks to disk.")
REPLICA_SOCKET_TIMEOUT_MS = Setting("replica.socket.timeout.ms", INT, 30_000, at_least(1),
    doc="Milliseconds that a follower waits for its leader's answer; at least replica.fetch.wait.max.ms.")
REPLICA_SOCKET_RECEIVE_BUFFER_BYTES = Setting("replica.socket.receive.buffer.bytes", INT, 65_536, at_least(-1),
    doc="The TCP receive buffer of a follower; -1 leaves it to the operating system.")
REPLICA_SELECTOR_CLASS = Setting("replica.selector.class", STRING, None, one_of("leader", RACK_AWARE, "", aliases=REPLICA_SELECTORS),
    doc="Which replica a consumer is sent to: the leader, or with `rack-aware` one in the consumer's rack. "
        "The class names of Kafka's two selectors mean the same; none is loaded.")
REQUEST_TIMEOUT_MS = Setting("request.timeout.ms", INT, 30_000, at_least(0),
    doc="Milliseconds that this broker waits for another's answer, other than a fetch, before it tries again.")
MAX_REQUEST_PARTITION_SIZE_LIMIT = Setting("max.request.partition.size.limit", INT, 2000, at_least(1),
    doc="Partitions in one answer to a client that describes topics; it asks again for the rest.")

# Fetching.
FETCH_MAX_BYTES = Setting("fetch.max.bytes", INT, 57_671_680, at_least(1024),
    doc="The most bytes in one answer to a consumer, whatever it asks for.")
MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS = Setting("max.incremental.fetch.session.cache.slots", INT, 1000, at_least(0),
    doc="Fetch sessions the broker remembers, so that a consumer names only what changed. Raise it to the "
        "number of consumers and followers.")

# Groups of consumers: the classic protocol, then the one of KIP-848.
GROUP_COORDINATOR_REBALANCE_PROTOCOLS = Setting("group.coordinator.rebalance.protocols", LIST, ("classic", "consumer"), some_of("consumer", "classic", "share", empty_allowed=False), kafka_default="classic,consumer,streams",
    doc="The kinds of groups that may form; `share` turns queues on. Kafka also lists streams, which "
        "Ottla does not have.")
GROUP_INITIAL_REBALANCE_DELAY_MS = Setting("group.initial.rebalance.delay.ms", INT, 3000, at_least(0),
    doc="Milliseconds that an empty classic group waits for more members before it assigns partitions. "
        "0 is pleasant in tests.")
GROUP_MIN_SESSION_TIMEOUT_MS = Setting("group.min.session.timeout.ms", INT, 6000, at_least(1),
    doc="The shortest session.timeout.ms that a member of a classic group may ask for.")
GROUP_MAX_SESSION_TIMEOUT_MS = Setting("group.max.session.timeout.ms", INT, 1_800_000, at_least(1),
    doc="The longest session.timeout.ms that a member of a classic group may ask for.")
GROUP_MAX_SIZE = Setting("group.max.size", INT, INT_MAX, at_least(1),
    doc="The most members of one classic group.")
GROUP_CONSUMER_ASSIGNORS = Setting("group.consumer.assignors", LIST, ("uniform", "range"), some_of("uniform", "range", empty_allowed=False, aliases=GROUP_ASSIGNORS),
    doc="How the broker spreads partitions over the members of a group; the first is the one taken when "
        "members do not ask for another.")
GROUP_CONSUMER_MIGRATION_POLICY = Setting("group.consumer.migration.policy", STRING, "bidirectional", one_of("disabled", "downgrade", "upgrade", "bidirectional", any_case=True),
    doc="Whether a running group may change between the classic and the consumer protocol while its "
        "members are updated one by one, and in which direction.")
GROUP_CONSUMER_SESSION_TIMEOUT_MS = Setting("group.consumer.session.timeout.ms", INT, 45_000, at_least(1),
    doc="Milliseconds without a heartbeat after which a member is removed from its group.")
GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS = Setting("group.consumer.min.session.timeout.ms", INT, 45_000, at_least(1),
    doc="The shortest session timeout that a group may be given.")
GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS = Setting("group.consumer.max.session.timeout.ms", INT, 60_000, at_least(1),
    doc="The longest session timeout that a group may be given.")
GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS = Setting("group.consumer.heartbeat.interval.ms", INT, 5000, at_least(1),
    doc="Milliseconds between two heartbeats that the broker tells members to keep. Lower notices changes sooner.")
GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS = Setting("group.consumer.min.heartbeat.interval.ms", INT, 5000, at_least(1),
    doc="The shortest heartbeat interval that a group may be given.")
GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS = Setting("group.consumer.max.heartbeat.interval.ms", INT, 15_000, at_least(1),
    doc="The longest heartbeat interval that a group may be given.")
GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS = Setting("group.consumer.assignment.interval.ms", INT, 1000, at_least(0), dynamic=CLUSTER_WIDE,
    doc="The least number of milliseconds between two assignments of one group, so that many members "
        "joining cost one.")
GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS = Setting("group.consumer.min.assignment.interval.ms", INT, 0, at_least(0),
    doc="The shortest assignment interval that a group may be given.")
GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS = Setting("group.consumer.max.assignment.interval.ms", INT, 15_000, at_least(0),
    doc="The longest assignment interval that a group may be given.")
GROUP_CONSUMER_MAX_SIZE = Setting("group.consumer.max.size", INT, INT_MAX, at_least(1),
    doc="The most members of one group of the consumer protocol.")

# Share groups: queues (KIP-932).
GROUP_SHARE_ASSIGNORS = Setting("group.share.assignors", LIST, ("simple",), some_of("simple", empty_allowed=False, aliases=SHARE_ASSIGNORS),
    doc="How partitions are spread over the members of a share group.")
GROUP_SHARE_SESSION_TIMEOUT_MS = Setting("group.share.session.timeout.ms", INT, 45_000, at_least(1),
    doc="Milliseconds without a heartbeat after which a member is removed from its share group.")
GROUP_SHARE_MIN_SESSION_TIMEOUT_MS = Setting("group.share.min.session.timeout.ms", INT, 45_000, at_least(1),
    doc="The shortest session timeout that a share group may be given.")
GROUP_SHARE_MAX_SESSION_TIMEOUT_MS = Setting("group.share.max.session.timeout.ms", INT, 60_000, at_least(1),
    doc="The longest session timeout that a share group may be given.")
GROUP_SHARE_HEARTBEAT_INTERVAL_MS = Setting("group.share.heartbeat.interval.ms", INT, 5000, at_least(1),
    doc="Milliseconds between two heartbeats that the broker tells members of a share group to keep.")
GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS = Setting("group.share.min.heartbeat.interval.ms", INT, 5000, at_least(1),
    doc="The shortest heartbeat interval that a share group may be given.")
GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS = Setting("group.share.max.heartbeat.interval.ms", INT, 15_000, at_least(1),
    doc="The longest heartbeat interval that a share group may be given.")
GROUP_SHARE_ASSIGNMENT_INTERVAL_MS = Setting("group.share.assignment.interval.ms", INT, 1000, at_least(0), dynamic=CLUSTER_WIDE,
    doc="The least number of milliseconds between two assignments of one share group.")
GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS = Setting("group.share.min.assignment.interval.ms", INT, 0, at_least(0),
    doc="The shortest assignment interval that a share group may be given.")
GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS = Setting("group.share.max.assignment.interval.ms", INT, 15_000, at_least(0),
    doc="The longest assignment interval that a share group may be given.")
GROUP_SHARE_MAX_SIZE = Setting("group.share.max.size", INT, 200, between(1, 1000),
    doc="The most members of one share group.")
GROUP_SHARE_MAX_SHARE_SESSIONS = Setting("group.share.max.share.sessions", INT, 2000, at_least(1),
    doc="The most share sessions one broker keeps.")
GROUP_SHARE_DELIVERY_COUNT_LIMIT = Setting("group.share.delivery.count.limit", INT, 5, between(2, 10),
    doc="How often a record is handed out before it counts as undeliverable.")
GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT = Setting("group.share.min.delivery.count.limit", INT, 2, between(2, 5),
    doc="The lowest delivery limit that a share group may be given.")
GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT = Setting("group.share.max.delivery.count.limit", INT, 10, between(5, 25),
    doc="The highest delivery limit that a share group may be given.")
GROUP_SHARE_RECORD_LOCK_DURATION_MS = Setting("group.share.record.lock.duration.ms", INT, 30_000, between(1000, 3_600_000),
    doc="Milliseconds that a member has for a record before it is handed to another. Make it longer than "
        "the slowest record takes.")
GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS = Setting("group.share.min.record.lock.duration.ms", INT, 15_000, between(1000, 30_000),
    doc="The shortest lock that a share group may be given.")
GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS = Setting("group.share.max.record.lock.duration.ms", INT, 60_000, between(30_000, 3_600_000),
    doc="The longest lock that a share group may be given.")
GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS = Setting("group.share.partition.max.record.locks", INT, 2000, between(100, 10_000),
    doc="Records of one partition that may be handed out and not yet settled.")
GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS = Setting("group.share.min.partition.max.record.locks", INT, 100, between(100, 2000),
    doc="The lowest number of unsettled records that a share group may be given.")
GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS = Setting("group.share.max.partition.max.record.locks", INT, 4000, between(2000, 10_000),
    doc="The highest number of unsettled records that a share group may be given.")
SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS = Setting("share.coordinator.state.topic.num.partitions", INT, 50, at_least(1),
    doc="Partitions of the topic that holds the state of share groups. It cannot be changed once the topic exists.")
SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR = Setting("share.coordinator.state.topic.replication.factor", SHORT, 3, at_least(1),
    doc="Replicas of the topic that holds the state of share groups.")
SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR = Setting("share.coordinator.state.topic.min.isr", SHORT, 2, at_least(1),
    doc="Replicas of the topic with the state of share groups that must be in sync for a write to it.")
SHARE_COORDINATOR_STATE_TOPIC_SEGMENT_BYTES = Setting("share.coordinator.state.topic.segment.bytes", INT, 104_857_600, at_least(1),
    doc="The size of a segment of the topic that holds the state of share groups. Smaller ones load faster.")
SHARE_COORDINATOR_STATE_TOPIC_COMPRESSION_CODEC = Setting("share.coordinator.state.topic.compression.codec", INT, 0, between(0, 4),
    doc="How the topic that holds the state of share groups is compressed: 0 not at all, 1 gzip, 2 snappy, 3 lz4, 4 zstd.")
SHARE_COORDINATOR_LOAD_BUFFER_SIZE = Setting("share.coordinator.load.buffer.size", INT, 5_242_880, at_least(1),
    doc="Bytes read at a time while the state of share groups is loaded.")
SHARE_COORDINATOR_SNAPSHOT_UPDATE_RECORDS_PER_SNAPSHOT = Setting("share.coordinator.snapshot.update.records.per.snapshot", INT, 500, between(0, 500),
    doc="Changes of a share partition that are written before its whole state is written once more.")
SHARE_COORDINATOR_WRITE_TIMEOUT_MS = Setting("share.coordinator.write.timeout.ms", INT, 5000, at_least(1),
    doc="Milliseconds for a change of a share group's state to reach all replicas in sync.")

# Committed offsets.
OFFSETS_TOPIC_NUM_PARTITIONS = Setting("offsets.topic.num.partitions", INT, 50, at_least(1),
    doc="Partitions of the topic that holds committed offsets. It cannot be changed once the topic exists.")
OFFSETS_TOPIC_REPLICATION_FACTOR = Setting("offsets.topic.replication.factor", SHORT, 3, at_least(1),
    doc="Replicas of the topic that holds committed offsets.")
OFFSETS_TOPIC_SEGMENT_BYTES = Setting("offsets.topic.segment.bytes", INT, 104_857_600, at_least(1),
    doc="The size of a segment of the topic that holds committed offsets, 1 MiB at least. Smaller ones load "
        "faster.")
OFFSETS_TOPIC_COMPRESSION_CODEC = Setting("offsets.topic.compression.codec", INT, 0, between(0, 4),
    doc="How the topic that holds committed offsets is compressed: 0 not at all, 1 gzip, 2 snappy, 3 lz4, 4 zstd.")
OFFSETS_LOAD_BUFFER_SIZE = Setting("offsets.load.buffer.size", INT, 5_242_880, at_least(1),
    doc="Bytes read at a time while committed offsets are loaded.")
OFFSETS_COMMIT_TIMEOUT_MS = Setting("offsets.commit.timeout.ms", INT, 5000, at_least(1),
    doc="Milliseconds for a commit to reach all replicas in sync.")
OFFSETS_RETENTION_MINUTES = Setting("offsets.retention.minutes", INT, 10_080, at_least(1),
    doc="Minutes that offsets are kept after their group is empty. Raise it when consumers pause for "
        "longer than a week.")
OFFSETS_RETENTION_CHECK_INTERVAL_MS = Setting("offsets.retention.check.interval.ms", LONG, 600_000, at_least(1),
    doc="Milliseconds between two searches for offsets that have expired.")
OFFSET_METADATA_MAX_BYTES = Setting("offset.metadata.max.bytes", INT, 4096, at_least(0),
    doc="The longest note that a client may store with a committed offset.")

# Producers and transactions.
PRODUCER_ID_EXPIRATION_MS = Setting("producer.id.expiration.ms", INT, 86_400_000, at_least(1), dynamic=CLUSTER_WIDE,
    doc="Milliseconds after which a partition forgets a producer that has sent nothing. A retry that is "
        "older would be written twice.")
TRANSACTION_STATE_LOG_NUM_PARTITIONS = Setting("transaction.state.log.num.partitions", INT, 50, at_least(1),
    doc="Partitions of the topic that holds transactions. It cannot be changed once the topic exists.")
TRANSACTION_STATE_LOG_REPLICATION_FACTOR = Setting("transaction.state.log.replication.factor", SHORT, 3, at_least(1),
    doc="Replicas of the topic that holds transactions.")
TRANSACTION_STATE_LOG_MIN_ISR = Setting("transaction.state.log.min.isr", INT, 2, at_least(1),
    doc="Replicas of the topic with transactions that must be in sync for a write to it.")
TRANSACTION_STATE_LOG_SEGMENT_BYTES = Setting("transaction.state.log.segment.bytes", INT, 104_857_600, at_least(1),
    doc="The size of a segment of the topic that holds transactions. Smaller ones load faster.")
TRANSACTION_STATE_LOG_LOAD_BUFFER_SIZE = Setting("transaction.state.log.load.buffer.size", INT, 5_242_880, at_least(1),
    doc="Bytes read at a time while transactions are loaded.")
TRANSACTION_MAX_TIMEOUT_MS = Setting("transaction.max.timeout.ms", INT, 900_000, at_least(1),
    doc="The longest transaction.timeout.ms that a producer may ask for. A hanging transaction holds "
        "back readers of committed records for that long.")
TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS = Setting("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10_000, at_least(1),
    doc="Milliseconds between two searches for transactions that have run out of time.")
TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS = Setting("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000, at_least(1),
    doc="Milliseconds between two searches for transactional ids that have expired.")
TRANSACTIONAL_ID_EXPIRATION_MS = Setting("transactional.id.expiration.ms", INT, 604_800_000, at_least(1),
    doc="Milliseconds after which an unused transactional id is forgotten.")
TRANSACTION_PARTITION_VERIFICATION_ENABLE = Setting("transaction.partition.verification.enable", BOOLEAN, True, dynamic=CLUSTER_WIDE,
    doc="Whether a partition asks the coordinator before it takes the first record of a transaction. It "
        "keeps late records out of the next transaction; leave it on.")
TRANSACTION_TWO_PHASE_COMMIT_ENABLE = Setting("transaction.two.phase.commit.enable", BOOLEAN, False,
    doc="Whether producers may keep a prepared transaction open without a time limit, for commits that "
        "span other systems. Exactly-once pipelines need it.")
ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MS = Setting("add.partitions.to.txn.retry.backoff.ms", INT, 20, at_least(1),
    doc="Milliseconds before a partition asks the coordinator again about a transaction that is still ending.")
ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS = Setting("add.partitions.to.txn.retry.backoff.max.ms", INT, 100, at_least(0),
    doc="Milliseconds after which a partition stops asking the coordinator about a transaction that is "
        "still ending, and lets the producer try again.")

# Watching a broker.
OTTLA_METRICS_LISTENER = Setting("ottla.metrics.listener", STRING, "", matching(r"((\[[0-9a-fA-F:.]+\]|[^:/\[\]\s]*):[0-9]{1,5})?", "host:port"),
    doc="Where /metrics, for Prometheus, and /healthz are, such as 127.0.0.1:9192; without a host on every "
        "interface, and empty nowhere. Everybody who gets there may read names of topics and groups. A port "
        "that is taken is a warning. Ottla's own; Kafka has JMX for it.")

# Quotas: over which time rates are taken.
QUOTA_WINDOW_NUM = Setting("quota.window.num", INT, 11, at_least(1),
    doc="Windows over which a client's rate is averaged. More of them forgive bursts.")
QUOTA_WINDOW_SIZE_SECONDS = Setting("quota.window.size.seconds", INT, 1, at_least(1),
    doc="Seconds of one window of a client's quota.")
REPLICATION_QUOTA_WINDOW_NUM = Setting("replication.quota.window.num", INT, 11, at_least(1),
    doc="Windows over which throttled replication is averaged.")
REPLICATION_QUOTA_WINDOW_SIZE_SECONDS = Setting("replication.quota.window.size.seconds", INT, 1, at_least(1),
    doc="Seconds of one window of throttled replication.")
CONTROLLER_QUOTA_WINDOW_NUM = Setting("controller.quota.window.num", INT, 11, at_least(1),
    doc="Windows over which the rate of creating and deleting topics and partitions is averaged.")
CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS = Setting("controller.quota.window.size.seconds", INT, 1, at_least(1),
    doc="Seconds of one window of the rate of creating and deleting topics and partitions.")
# fmt: on

BROKER: Final = ConfigDef(
    "broker",
    (
        *settings_in(globals()),
        *compression.LEVELS,
        *security.ROWS,
        connection.SOCKET_CONNECTION_SETUP_TIMEOUT_MS,
        connection.SOCKET_CONNECTION_SETUP_TIMEOUT_MAX_MS,
    ),
    ignored=ignored.BROKER,
    unsupported=unsupported.BROKER,
)
