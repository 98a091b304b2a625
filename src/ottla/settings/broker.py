# ruff: noqa: E501 - one line per row
"""The broker settings, grouped by topic.

Names and types are those of Kafka 4.3, and of Kafka 3.9 for ZooKeeper. So are defaults and valid
values, unless the row has a `kafka_default`. Sizes are in bytes; names contain the unit of time.
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
    list_of,
    matching,
    one_of,
    range_or,
    some_of,
)

# Kafka's authorizers. Ottla uses its own in place of them.
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

_ZOOKEEPER: Final = r"(\[[0-9a-fA-F:.]+\]|[^\s,/:\[\]]+)(:[0-9]{1,5})?"
_ZOOKEEPERS: Final = rf"{_ZOOKEEPER}(\s*,\s*{_ZOOKEEPER})*(/\S*)?"

# fmt: off
# Identity and coordination.
NODE_ID = Setting("node.id", INT, None, at_least(0), kafka_default="(required)",
    doc="Id of this broker, unique in the cluster. broker.id is the older name. If neither is set, the broker "
        "uses the id stored in its data directory, or generates one.")
BROKER_ID = Setting("broker.id", INT, -1, at_least(-1),
    doc="Older name of node.id; -1 means unset. If both are set, they must be equal.")
BROKER_RACK = Setting("broker.rack", STRING, None,
    doc="Rack, zone or host of this broker. The controller places the replicas of a partition on different "
        "racks. Consumers with the same client.rack can fetch from this broker.")
OTTLA_BROKER_HOST = Setting("ottla.broker.host", STRING, None,
    doc="Machine of this broker; null means the host's name. The controller places the replicas of a partition on "
        "different racks first, then on different machines. Brokers that share a machine must have the same value.")
BROKER_ID_GENERATION_ENABLE = Setting("broker.id.generation.enable", BOOLEAN, True,
    doc="Generate an id for a broker of a ZooKeeper cluster that has none. If false, such a broker does not start. A "
        "broker without zookeeper.connect gets the id 1.")
RESERVED_BROKER_MAX_ID = Setting("reserved.broker.max.id", INT, 1000, at_least(0),
    doc="Largest id that can be set as node.id without a conflict: generated ids are larger.")
ZOOKEEPER_CONNECT = Setting("zookeeper.connect", STRING, None, matching(_ZOOKEEPERS, "host:port,host:port,.../path"),
    doc="ZooKeeper servers (3.6 or later) that coordinate the cluster, with an optional chroot path, which the first broker "
        "creates. If unset, the broker uses its embedded coordination and forms a cluster of one.")
ZOOKEEPER_SESSION_TIMEOUT_MS = Setting("zookeeper.session.timeout.ms", INT, 9_000, at_least(1), kafka_default="18000",
    doc="ZooKeeper session timeout in milliseconds. When the session expires, the broker loses its leaderships. "
        "A lower value shortens failover but tolerates only shorter pauses.")
ZOOKEEPER_CONNECTION_TIMEOUT_MS = Setting("zookeeper.connection.timeout.ms", INT, None, at_least(1),
    doc="Maximum time in milliseconds to wait for ZooKeeper at startup; null means zookeeper.session.timeout.ms.")
OTTLA_FAST_FAILOVER_ENABLE = Setting("ottla.fast.failover.enable", BOOLEAN, True, dynamic=CLUSTER_WIDE,
    doc="Replace a broker whose process is dead before its ZooKeeper session expires: when its connections end and "
        "every address of its inter-broker listener refuses connections. Disable it if a firewall or a proxy between "
        "the brokers refuses connections to live brokers. Specific to Ottla.")
CONTROLLED_SHUTDOWN_ENABLE = Setting("controlled.shutdown.enable", BOOLEAN, True,
    doc="Move the leaderships to other brokers before the broker shuts down, so that clients do not wait for an "
        "election.")
CONTROLLER_SOCKET_TIMEOUT_MS = Setting("controller.socket.timeout.ms", INT, 30_000,
    doc="Time in milliseconds that the controller waits for a broker's response.")

# Listeners and connections.
LISTENERS = Setting("listeners", LIST, ("PLAINTEXT://127.0.0.1:9092",), NON_EMPTY_LIST, dynamic=PER_BROKER, kafka_default="PLAINTEXT://:9092",
    doc="Addresses to listen on, as name://host:port. Port 0 selects a free port. An empty host means all "
        "interfaces; this is Kafka's default, while Ottla listens on loopback unless configured.")
ADVERTISED_LISTENERS = Setting("advertised.listeners", LIST, None, NON_EMPTY_LIST,
    doc="Addresses that the broker returns to clients and other brokers. Set it if they reach the broker under "
        "another host or port; null means the value of listeners.")
LISTENER_SECURITY_PROTOCOL_MAP = Setting("listener.security.protocol.map", STRING,
    "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", matching(r"\s*[^:,\s]+\s*:\s*[^:,\s]+\s*(,\s*[^:,\s]+\s*:\s*[^:,\s]+\s*)*", "name:protocol,name:protocol,..."), dynamic=PER_BROKER,
    doc="Security protocol of each listener name. Required for custom listener names such as INTERNAL and "
        "EXTERNAL.")
INTER_BROKER_LISTENER_NAME = Setting("inter.broker.listener.name", STRING, None,
    doc="Listener for traffic between brokers; null means the listener with security.inter.broker.protocol, or "
        "the only listener.")
SECURITY_INTER_BROKER_PROTOCOL = Setting("security.inter.broker.protocol", STRING, "PLAINTEXT", one_of(*security.PROTOCOLS),
    doc="Security protocol for traffic between brokers. Set this or inter.broker.listener.name, not both.")
CONTROLLER_LISTENER_NAMES = Setting("controller.listener.names", LIST, (), kafka_default="(required)",
    doc="Listeners that a Kafka configuration reserves for KRaft controllers. Ottla does not open them, so that "
        "the file can be used unchanged.")
SOCKET_LISTEN_BACKLOG_SIZE = Setting("socket.listen.backlog.size", INT, 4096, at_least(1), kafka_default="50",
    doc="Number of pending connections that the operating system queues before the broker accepts them; "
        "net.core.somaxconn of Linux limits it. When thousands of clients reconnect at once, connections above it "
        "are delayed by seconds, so Ottla's default is higher than Kafka's.")
SOCKET_RECEIVE_BUFFER_BYTES = Setting("socket.receive.buffer.bytes", INT, -1, at_least(-1), kafka_default="102400",
    doc="Size of the TCP receive buffer (SO_RCVBUF) of a connection. With -1 the operating system chooses the "
        "size and adjusts it to the load.")
SOCKET_SEND_BUFFER_BYTES = Setting("socket.send.buffer.bytes", INT, -1, at_least(-1), kafka_default="102400",
    doc="Size of the TCP send buffer (SO_SNDBUF) of a connection. With -1 the operating system chooses the size "
        "and adjusts it to the load.")
SOCKET_REQUEST_MAX_BYTES = Setting("socket.request.max.bytes", INT, 104_857_600, at_least(1),
    doc="Maximum size of a request in bytes. The broker closes the connection of a larger request before it "
        "allocates memory for it.")
QUEUED_MAX_REQUEST_BYTES = Setting("queued.max.request.bytes", LONG, 33_554_432, kafka_default="-1",
    doc="Memory in bytes for requests of all connections that are being received or processed. When it is "
        "exhausted, large requests wait and proceed one at a time. A quarter is reserved for requests of up to "
        "about 1 MiB. 0 or less means unlimited.")
OTTLA_QUEUED_MAX_RESPONSE_BYTES = Setting("ottla.queued.max.response.bytes", LONG, 33_554_432,
    doc="Memory in bytes for responses that clients have not read. Half is reserved for clients that are known "
        "to read. When it is exhausted, responses wait, and the broker closes clients that read nothing for 10 s "
        "(2 s if they never did). 0 or less means unlimited. Specific to Ottla.")
CONNECTIONS_MAX_IDLE_MS = Setting("connections.max.idle.ms", LONG, 600_000,
    doc="Time in milliseconds after which the broker closes an idle connection. A client that waits for a "
        "response is idle, too.")
CONNECTIONS_MAX_REAUTH_MS = Setting("connections.max.reauth.ms", LONG, 0, at_least(0), per_listener=True,
    doc="Maximum time in milliseconds that a SASL session stays valid before the client must re-authenticate on "
        "the connection; 0 disables it. Set it so that revoked credentials stop working.")
CONNECTION_FAILED_AUTHENTICATION_DELAY_MS = Setting("connection.failed.authentication.delay.ms", INT, 100, at_least(0),
    doc="Delay in milliseconds before the broker responds to a failed authentication, to slow down password "
        "guessing. It must be less than connections.max.idle.ms.")
MAX_CONNECTIONS = Setting("max.connections", INT, INT_MAX, at_least(0), dynamic=CLUSTER_WIDE, per_listener=True,
    doc="Maximum number of connections of the broker, or of one listener. Up to socket.listen.backlog.size more "
        "wait; the broker closes the rest. If the limit is lowered, or the inter-broker listener needs a "
        "connection, it closes the connections idle for longest. The limit of open files may allow "
        "fewer. Clients cannot set 0.")
MAX_CONNECTIONS_PER_IP = Setting("max.connections.per.ip", INT, INT_MAX, at_least(0), dynamic=CLUSTER_WIDE,
    doc="Maximum number of connections from one IP address. The broker closes new connections above it. Clients "
        "cannot set 0.")
MAX_CONNECTIONS_PER_IP_OVERRIDES = Setting("max.connections.per.ip.overrides", STRING, "", matching(r"([^\s,]+:[0-9]{1,10}(\s*,\s*[^\s,]+:[0-9]{1,10})*)?", "host:count,host:count,..."), dynamic=CLUSTER_WIDE,
    doc="Limits for single IP addresses that replace max.connections.per.ip. Clients cannot set 0.")
MAX_CONNECTION_CREATION_RATE = Setting("max.connection.creation.rate", INT, INT_MAX, at_least(0), dynamic=CLUSTER_WIDE, per_listener=True,
    doc="Maximum number of new connections per second, of the broker or of one listener. Up to "
        "socket.listen.backlog.size more wait; the broker closes the rest. Clients cannot set 0.")

# Authentication and authorization.
SASL_ENABLED_MECHANISMS = Setting("sasl.enabled.mechanisms", LIST, (), some_of(*security.MECHANISMS, any_case=True), dynamic=PER_BROKER, per_listener=True, kafka_default="GSSAPI",
    doc="SASL mechanisms that a listener accepts. A SASL listener requires at least one. Kafka's default is "
        "GSSAPI (Kerberos), which Ottla does not support.")
SASL_MECHANISM_INTER_BROKER_PROTOCOL = Setting("sasl.mechanism.inter.broker.protocol", STRING, None, one_of(*security.MECHANISMS, any_case=True), dynamic=PER_BROKER, per_listener=True, kafka_default="GSSAPI",
    doc="SASL mechanism between brokers; null means the enabled mechanism, if there is exactly one.")
SASL_SERVER_MAX_RECEIVE_SIZE = Setting("sasl.server.max.receive.size", INT, 524_288, at_least(1), per_listener=True,
    doc="Maximum size in bytes of a request on a connection that is not authenticated yet.")
SSL_CLIENT_AUTH = Setting("ssl.client.auth", STRING, "none", one_of("required", "requested", "none"), dynamic=PER_BROKER, per_listener=True,
    doc="Client certificates on TLS listeners: `required`, `requested` (optional), or `none`.")
SSL_PRINCIPAL_MAPPING_RULES = Setting("ssl.principal.mapping.rules", STRING, "DEFAULT", per_listener=True,
    doc="Rules that map the distinguished name of a client certificate to a principal: "
        "RULE:pattern/replacement/[LU]. The first match applies; L and U change the case. DEFAULT uses the whole "
        "name.")
SSL_ALLOW_DN_CHANGES = Setting("ssl.allow.dn.changes", BOOLEAN, False, per_listener=True,
    doc="Allow a certificate that is replaced at runtime to have a different distinguished name.")
SSL_ALLOW_SAN_CHANGES = Setting("ssl.allow.san.changes", BOOLEAN, False, per_listener=True,
    doc="Allow a certificate that is replaced at runtime to have different subject alternative names.")
AUTHORIZER_CLASS_NAME = Setting("authorizer.class.name", STRING, "", one_of("", ACL_AUTHORIZER, aliases=AUTHORIZERS, otherwise="ACLs are not supported yet: remove the setting"),
    doc="Authorizer: empty allows every request, `acl` or the class name of one of Kafka's authorizers enforces "
        "ACLs. Ottla does not load Java classes.")
SUPER_USERS = Setting("super.users", STRING, "", matching(r"([^:;]+:[^;]+(;|$))*", "User:name;User:name;..."),
    doc="Principals that bypass ACLs, separated by semicolons. Include the principal of the brokers.")
ALLOW_EVERYONE_IF_NO_ACL_FOUND = Setting("allow.everyone.if.no.acl.found", BOOLEAN, False,
    doc="Allow everyone to access a resource that has no ACLs. If false, only super users can access it.")

# Topics and partitions.
NUM_PARTITIONS = Setting("num.partitions", INT, 1, at_least(1),
    doc="Default number of partitions of a new topic.")
DEFAULT_REPLICATION_FACTOR = Setting("default.replication.factor", INT, 1, at_least(1),
    doc="Default replication factor of a new topic. A factor of 3 tolerates the failure of one broker while "
        "another restarts.")
AUTO_CREATE_TOPICS_ENABLE = Setting("auto.create.topics.enable", BOOLEAN, True,
    doc="Create a topic when a client first requests it. Disable it where a misspelt name must not create a "
        "topic.")
DELETE_TOPIC_ENABLE = Setting("delete.topic.enable", BOOLEAN, True,
    doc="Allow topics to be deleted.")
OTTLA_PARTITIONS_MAX = Setting("ottla.partitions.max", INT, None, at_least(1),
    doc="Maximum number of partitions of this broker; more are refused with POLICY_VIOLATION. Existing ones are "
        "always opened. At most five eighths of the limit of open files take effect, or 100. null means the least of an "
        "eighth of it, one partition per 256 KiB of memory, and 20,000. Specific to Ottla.")
OTTLA_TOPIC_NAME_POLICY = Setting("ottla.topic.name.policy", LIST, (), list_of(matching(r"([A-Za-z0-9._-]|\{[a-z_]+(:[A-Za-z0-9._-]+(\|[A-Za-z0-9._-]+)*)?\})+", "{part}.{part:word|word},...")), dynamic=CLUSTER_WIDE,
    doc="Patterns of which the name of a new topic must match one. `{env:dev|prod}.{team}.{name}` requires dev "
        "or prod and two words of letters, digits, - and _. Empty allows every legal name. Existing topics are "
        "not checked. Specific to Ottla; Kafka uses a Java class.")
MIN_INSYNC_REPLICAS = Setting("min.insync.replicas", INT, 1, at_least(1), dynamic=CLUSTER_WIDE,
    doc="Minimum number of in-sync replicas for a write with acks=all. With 2 of 3 replicas, acknowledged "
        "records survive the loss of any one broker.")
UNCLEAN_LEADER_ELECTION_ENABLE = Setting("unclean.leader.election.enable", BOOLEAN, False, dynamic=CLUSTER_WIDE,
    doc="Allow a replica that is not in sync to become leader if no in-sync replica is alive. The partition "
        "becomes available sooner, but acknowledged records can be lost.")
AUTO_LEADER_REBALANCE_ENABLE = Setting("auto.leader.rebalance.enable", BOOLEAN, True,
    doc="Move leaderships back to the preferred replicas automatically.")
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS = Setting("leader.imbalance.check.interval.seconds", LONG, 300, at_least(1),
    doc="Interval in seconds between checks for leaders that are not the preferred replica.")
LEADER_IMBALANCE_PER_BROKER_PERCENTAGE = Setting("leader.imbalance.per.broker.percentage", INT, 10, at_least(0),
    doc="Percentage of the partitions that prefer a broker and are led by others, above which their leaderships move back to "
        "it. Kafka 4 does not have it, and always moves them back.")
OTTLA_BALANCE_ENABLE = Setting("ottla.balance.enable", BOOLEAN, False, dynamic=CLUSTER_WIDE,
    doc="Let the controller move replicas and leaders when brokers come, go or drift, until no broker stores, receives or "
        "sends more than ottla.balance.goal.percent of the mean. It waits while replicas are not in sync. Specific to Ottla.")
OTTLA_BALANCE_GOAL_PERCENT = Setting("ottla.balance.goal.percent", INT, 120, at_least(101), dynamic=CLUSTER_WIDE,
    doc="Highest load of a broker in percent of the mean, for ottla.balance.enable. Specific to Ottla.")
OTTLA_BALANCE_CHECK_INTERVAL_MS = Setting("ottla.balance.check.interval.ms", LONG, 60_000, at_least(10), dynamic=CLUSTER_WIDE,
    doc="Interval in milliseconds between checks of the balance, for ottla.balance.enable. Loads above the goal must last for "
        "two checks. Specific to Ottla.")
OTTLA_BALANCE_STABLE_MS = Setting("ottla.balance.stable.ms", LONG, 300_000, at_least(0), dynamic=CLUSTER_WIDE,
    doc="Time in milliseconds without changes of brokers, with all replicas in sync and without reassignments, before the "
        "controller balances. If it is less than ottla.balance.window.ms, the measured traffic includes that before the change. "
        "Specific to Ottla.")
OTTLA_BALANCE_PARTITIONS_MAX = Setting("ottla.balance.partitions.max", INT, 10, at_least(1), dynamic=CLUSTER_WIDE,
    doc="Maximum number of partitions that the controller reassigns at the same time to balance. Specific to Ottla.")
OTTLA_BALANCE_THROTTLE_BYTES_PER_SECOND = Setting("ottla.balance.throttle.bytes.per.second", LONG, 10_485_760, at_least(1), dynamic=CLUSTER_WIDE,
    doc="Bytes per second that each broker sends to, and fetches for, replicas that reassignments add, while "
        "ottla.balance.enable is set. leader.replication.throttled.rate and follower.replication.throttled.rate take "
        "precedence. Specific to Ottla.")
OTTLA_BALANCE_TRAFFIC_MIN_BYTES_PER_SECOND = Setting("ottla.balance.traffic.min.bytes.per.second", LONG, 1_000_000, at_least(0), dynamic=CLUSTER_WIDE,
    doc="Bytes in, or out, per second of a broker that need no balance, for ottla.balance.enable. Specific to Ottla.")
OTTLA_BALANCE_WINDOW_MS = Setting("ottla.balance.window.ms", LONG, 300_000, at_least(1000),
    doc="Time in milliseconds over which a broker measures the bytes in and out of its partitions, for "
        "`ottla cluster balance` and ottla.balance.enable. Specific to Ottla.")
MESSAGE_MAX_BYTES = Setting("message.max.bytes", INT, 1_048_588, at_least(0), dynamic=CLUSTER_WIDE,
    doc="Maximum size in bytes of a record batch, after compression, for topics without max.message.bytes. "
        "Followers and consumers can fetch a batch that exceeds their own limits.")
MAX_DECOMPRESSED_MESSAGE_BYTES = Setting("max.decompressed.message.bytes", INT, 33_554_432, at_least(0), dynamic=CLUSTER_WIDE,
    doc="Maximum size in bytes of a batch after decompression. The broker rejects a batch that expands to more, "
        "so that a small batch cannot exhaust its memory.")
COMPRESSION_TYPE = Setting("compression.type", STRING, "producer", one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), dynamic=CLUSTER_WIDE,
    doc="Compression of stored batches. `producer` keeps the codec of the producer and needs the least CPU; with "
        "any other value the broker recompresses batches.")

# The log: directories, segments, flushing.
LOG_DIR = Setting("log.dir", LIST, (".ottla/data",), NON_EMPTY_LIST, kafka_default="/tmp/kafka-logs",
    doc="Data directory, used if log.dirs is not set. A relative path starts at the working directory. Kafka's "
        "default is below /tmp, which many systems clear at boot.")
LOG_DIRS = Setting("log.dirs", LIST, None, NON_EMPTY_LIST,
    doc="Data directories, usually one per disk; null means log.dir. A new partition goes to the directory with "
        "the fewest partitions.")
CORDONED_LOG_DIRS = Setting("cordoned.log.dirs", LIST, (), dynamic=PER_BROKER,
    doc="Data directories that receive no new partitions, for example before a disk is removed; `*` means all.")
LOG_SEGMENT_BYTES = Setting("log.segment.bytes", INT, 1_073_741_824, at_least(1_048_576), dynamic=CLUSTER_WIDE,
    doc="Segment size in bytes at which the log rolls a new segment, for topics without segment.bytes. Retention "
        "and compaction apply to closed segments only.")
LOG_ROLL_MS = Setting("log.roll.ms", LONG, None, at_least(1), dynamic=CLUSTER_WIDE,
    doc="Time in milliseconds after which the log rolls a new segment even if it is not full, for topics without "
        "segment.ms; null means log.roll.hours.")
LOG_ROLL_HOURS = Setting("log.roll.hours", INT, 168, at_least(1),
    doc="Time in hours after which the log rolls a new segment even if it is not full, if log.roll.ms is not "
        "set.")
LOG_ROLL_JITTER_MS = Setting("log.roll.jitter.ms", LONG, None, at_least(0), dynamic=CLUSTER_WIDE,
    doc="Maximum random time in milliseconds that is subtracted from log.roll.ms, so that segments do not all "
        "roll at once; null means log.roll.jitter.hours.")
LOG_ROLL_JITTER_HOURS = Setting("log.roll.jitter.hours", INT, 0, at_least(0),
    doc="Maximum random time in hours that is subtracted from the roll time, if log.roll.jitter.ms is not set.")
LOG_INDEX_INTERVAL_BYTES = Setting("log.index.interval.bytes", INT, 4096, at_least(0), dynamic=CLUSTER_WIDE,
    doc="Number of log bytes between two index entries, for topics without index.interval.bytes. Fewer bytes "
        "make lookups faster and indexes larger.")
LOG_INDEX_SIZE_MAX_BYTES = Setting("log.index.size.max.bytes", INT, 10_485_760, at_least(4), dynamic=CLUSTER_WIDE,
    doc="Maximum size in bytes of an index file, for topics without segment.index.bytes. A full index closes its "
        "segment.")
LOG_PREALLOCATE = Setting("log.preallocate", BOOLEAN, False, dynamic=CLUSTER_WIDE,
    doc="Accepted for topics without preallocate. No effect: Ottla does not preallocate segment files.")
LOG_FLUSH_INTERVAL_MESSAGES = Setting("log.flush.interval.messages", LONG, LONG_MAX, at_least(1), dynamic=CLUSTER_WIDE,
    doc="Number of records after which a partition is flushed to disk (fsync), for topics without "
        "flush.messages. With 1, the broker acknowledges records only after an fsync, which costs throughput. By default, "
        "acknowledged records are in the page cache of every in-sync replica.")
LOG_FLUSH_INTERVAL_MS = Setting("log.flush.interval.ms", LONG, None, at_least(0), dynamic=CLUSTER_WIDE,
    doc="Maximum time in milliseconds before a record is flushed to disk, for topics without flush.ms; null "
        "means log.flush.scheduler.interval.ms.")
LOG_FLUSH_SCHEDULER_INTERVAL_MS = Setting("log.flush.scheduler.interval.ms", LONG, LONG_MAX, at_least(1),
    doc="Interval in milliseconds between checks for logs that need to be flushed to disk.")
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS = Setting("log.flush.offset.checkpoint.interval.ms", INT, 60_000, at_least(0),
    doc="Interval in milliseconds between checkpoints of the recovery points. After a crash, recovery starts at "
        "the last checkpoint.")
LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS = Setting("log.flush.start.offset.checkpoint.interval.ms", INT, 60_000, at_least(0),
    doc="Interval in milliseconds between checkpoints of the log start offsets, so that deleted records stay "
        "deleted after a restart.")
NUM_RECOVERY_THREADS_PER_DATA_DIR = Setting("num.recovery.threads.per.data.dir", INT, 2, at_least(1), dynamic=CLUSTER_WIDE,
    doc="Number of threads per data directory that check logs after a crash. Logs that need no check are opened "
        "by one thread. Raise it for many cores and fast disks.")

# Retention.
LOG_CLEANUP_POLICY = Setting("log.cleanup.policy", LIST, ("delete",), some_of("compact", "delete"), dynamic=CLUSTER_WIDE,
    doc="Cleanup policy for topics without cleanup.policy: `delete` removes old segments, `compact` keeps the "
        "latest record of each key. Both can be combined; empty keeps everything.")
LOG_RETENTION_MS = Setting("log.retention.ms", LONG, None, range_or(at_least(1), -1), dynamic=CLUSTER_WIDE,
    doc="Retention time in milliseconds for topics without retention.ms; -1 means unlimited, null means "
        "log.retention.minutes.")
LOG_RETENTION_MINUTES = Setting("log.retention.minutes", INT, None, range_or(at_least(1), -1),
    doc="Retention time in minutes, if log.retention.ms is not set; -1 means unlimited, null means "
        "log.retention.hours.")
LOG_RETENTION_HOURS = Setting("log.retention.hours", INT, 168, range_or(at_least(1), -1),
    doc="Retention time in hours, if neither log.retention.ms nor log.retention.minutes is set; -1 means "
        "unlimited.")
LOG_RETENTION_BYTES = Setting("log.retention.bytes", LONG, -1, dynamic=CLUSTER_WIDE,
    doc="Maximum size in bytes of a partition before old segments are deleted, for topics without "
        "retention.bytes; a negative value means unlimited. It applies per partition, not per topic.")
LOG_RETENTION_CHECK_INTERVAL_MS = Setting("log.retention.check.interval.ms", LONG, 300_000, at_least(1),
    doc="Interval in milliseconds between checks for segments to delete.")
LOG_SEGMENT_DELETE_DELAY_MS = Setting("log.segment.delete.delay.ms", LONG, 60_000, at_least(0), dynamic=CLUSTER_WIDE,
    doc="Time in milliseconds before the file of a deleted segment is removed, so that readers can finish.")
LOG_MESSAGE_TIMESTAMP_TYPE = Setting("log.message.timestamp.type", STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"), dynamic=CLUSTER_WIDE,
    doc="Timestamp of records, for topics without message.timestamp.type: `CreateTime` (set by the producer) or "
        "`LogAppendTime` (set by the broker).")
LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS = Setting("log.message.timestamp.before.max.ms", LONG, LONG_MAX, at_least(0), dynamic=CLUSTER_WIDE,
    doc="Maximum time in milliseconds that a record timestamp may be earlier than the broker's clock. The broker "
        "rejects older records.")
LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS = Setting("log.message.timestamp.after.max.ms", LONG, 3_600_000, at_least(0), dynamic=CLUSTER_WIDE,
    doc="Maximum time in milliseconds that a record timestamp may be later than the broker's clock. The broker "
        "rejects such records, because they would delay retention.")

# Compaction.
LOG_CLEANER_ENABLE = Setting("log.cleaner.enable", BOOLEAN, True,
    doc="Enable log compaction. If false, compacted topics grow without limit, including __consumer_offsets.")
LOG_CLEANER_THREADS = Setting("log.cleaner.threads", INT, 1, at_least(0), dynamic=CLUSTER_WIDE,
    doc="Number of logs that are compacted in parallel. Ottla uses child processes instead of threads.")
LOG_CLEANER_BACKOFF_MS = Setting("log.cleaner.backoff.ms", LONG, 15_000, at_least(0), dynamic=CLUSTER_WIDE,
    doc="Time in milliseconds that the cleaner sleeps when there are no logs to compact.")
LOG_CLEANER_DEDUPE_BUFFER_SIZE = Setting("log.cleaner.dedupe.buffer.size", LONG, 134_217_728, dynamic=CLUSTER_WIDE,
    doc="Memory in bytes for the key map of compaction, shared by all log.cleaner.threads. More memory compacts "
        "a larger part of a log in one pass.")
LOG_CLEANER_IO_BUFFER_LOAD_FACTOR = Setting("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, dynamic=CLUSTER_WIDE,
    doc="Maximum load factor of the key map, above 0 and at most 1. A higher value compacts a larger part of a "
        "log in one pass, but with more hash collisions.")
LOG_CLEANER_IO_BUFFER_SIZE = Setting("log.cleaner.io.buffer.size", INT, 524_288, at_least(0), dynamic=CLUSTER_WIDE,
    doc="Memory in bytes for reading and writing logs during compaction, shared by all log.cleaner.threads.")
LOG_CLEANER_IO_MAX_BYTES_PER_SECOND = Setting("log.cleaner.io.max.bytes.per.second", DOUBLE, 1.7976931348623157e308, dynamic=CLUSTER_WIDE,
    doc="Maximum I/O rate of compaction, reads and writes, in bytes per second. Lower it if compaction slows "
        "clients down.")
LOG_CLEANER_MIN_CLEANABLE_RATIO = Setting("log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, between(0, 1), dynamic=CLUSTER_WIDE,
    doc="Minimum ratio of dirty log to total log for a log to be compacted, for topics without "
        "min.cleanable.dirty.ratio. A lower ratio saves disk space but costs more I/O.")
LOG_CLEANER_MIN_COMPACTION_LAG_MS = Setting("log.cleaner.min.compaction.lag.ms", LONG, 0, at_least(0), dynamic=CLUSTER_WIDE,
    doc="Minimum time in milliseconds that a record stays uncompacted, for topics without min.compaction.lag.ms.")
LOG_CLEANER_MAX_COMPACTION_LAG_MS = Setting("log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, at_least(1), dynamic=CLUSTER_WIDE,
    doc="Maximum time in milliseconds that a record stays uncompacted, for topics without max.compaction.lag.ms.")
LOG_CLEANER_DELETE_RETENTION_MS = Setting("log.cleaner.delete.retention.ms", LONG, 86_400_000, at_least(0), dynamic=CLUSTER_WIDE,
    doc="Time in milliseconds that tombstones are retained, for topics without delete.retention.ms. A consumer "
        "that takes longer to read the log can miss deletions.")

# Replication.
NUM_REPLICA_FETCHERS = Setting("num.replica.fetchers", INT, 1, at_least(1), dynamic=CLUSTER_WIDE,
    doc="Number of fetcher connections to each other broker. Raise it if followers lag although network and CPU "
        "are idle.")
REPLICA_FETCH_MAX_BYTES = Setting("replica.fetch.max.bytes", INT, 1_048_576, at_least(0),
    doc="Maximum number of bytes per partition in a follower's fetch. A first batch that is larger is still "
        "returned.")
REPLICA_FETCH_RESPONSE_MAX_BYTES = Setting("replica.fetch.response.max.bytes", INT, 10_485_760, at_least(0),
    doc="Maximum number of bytes of all partitions in the response to a follower's fetch.")
REPLICA_FETCH_MIN_BYTES = Setting("replica.fetch.min.bytes", INT, 1,
    doc="Minimum number of bytes for the response to a follower's fetch. The leader waits for them up to "
        "replica.fetch.wait.max.ms.")
REPLICA_FETCH_WAIT_MAX_MS = Setting("replica.fetch.wait.max.ms", INT, 500, at_least(0),
    doc="Maximum time in milliseconds that the leader delays the response to a follower's fetch. It must be less "
        "than replica.lag.time.max.ms, or followers leave the ISR of idle topics.")
REPLICA_FETCH_BACKOFF_MS = Setting("replica.fetch.backoff.ms", INT, 1000, at_least(0),
    doc="Time in milliseconds that a follower waits after a fetch error on a partition.")
REPLICA_LAG_TIME_MAX_MS = Setting("replica.lag.time.max.ms", LONG, 30_000, at_least(1),
    doc="Time in milliseconds after which a follower that has not caught up is removed from the ISR. Writes with "
        "acks=all wait up to this long for a failed broker.")
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS = Setting("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, at_least(1),
    doc="Interval in milliseconds between checkpoints of the high watermarks.")
REPLICA_SOCKET_TIMEOUT_MS = Setting("replica.socket.timeout.ms", INT, 30_000, at_least(1),
    doc="Time in milliseconds that a follower waits for a fetch response; at least replica.fetch.wait.max.ms.")
REPLICA_SOCKET_RECEIVE_BUFFER_BYTES = Setting("replica.socket.receive.buffer.bytes", INT, 65_536, at_least(-1),
    doc="Size of the TCP receive buffer of a follower's connection; -1 means the default of the operating "
        "system.")
REPLICA_SELECTOR_CLASS = Setting("replica.selector.class", STRING, None, one_of("leader", RACK_AWARE, "", aliases=REPLICA_SELECTORS),
    doc="Replica that consumers fetch from: the leader (`leader`), or a replica in the consumer's rack "
        "(`rack-aware`). The class names of Kafka's selectors are accepted; Ottla does not load Java classes.")
REQUEST_TIMEOUT_MS = Setting("request.timeout.ms", INT, 30_000, at_least(0),
    doc="Time in milliseconds that this broker waits for a response of another broker, except for fetches, "
        "before it retries.")
MAX_REQUEST_PARTITION_SIZE_LIMIT = Setting("max.request.partition.size.limit", INT, 2000, at_least(1),
    doc="Maximum number of partitions in one DescribeTopicPartitions response. Clients request the rest with a "
        "cursor.")

# Fetching.
FETCH_MAX_BYTES = Setting("fetch.max.bytes", INT, 57_671_680, at_least(1024),
    doc="Maximum number of bytes in one fetch response, regardless of the value that the client requests.")
MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS = Setting("max.incremental.fetch.session.cache.slots", INT, 1000, at_least(0),
    doc="Maximum number of fetch sessions in the cache. Set it to at least the number of consumers and "
        "followers.")

# Classic and consumer groups (KIP-848).
GROUP_COORDINATOR_REBALANCE_PROTOCOLS = Setting("group.coordinator.rebalance.protocols", LIST, ("classic", "consumer"), some_of("consumer", "classic", "share", empty_allowed=False), kafka_default="classic,consumer,streams",
    doc="Enabled group protocols; `share` enables share groups. Ottla does not support `streams`.")
GROUP_INITIAL_REBALANCE_DELAY_MS = Setting("group.initial.rebalance.delay.ms", INT, 3000, at_least(0),
    doc="Time in milliseconds that the coordinator waits for more members before the first rebalance of an empty "
        "classic group. Use 0 in tests.")
GROUP_MIN_SESSION_TIMEOUT_MS = Setting("group.min.session.timeout.ms", INT, 6000, at_least(1),
    doc="Minimum session.timeout.ms of a classic group member in milliseconds.")
GROUP_MAX_SESSION_TIMEOUT_MS = Setting("group.max.session.timeout.ms", INT, 1_800_000, at_least(1),
    doc="Maximum session.timeout.ms of a classic group member in milliseconds.")
GROUP_MAX_SIZE = Setting("group.max.size", INT, INT_MAX, at_least(1),
    doc="Maximum number of members of a classic group.")
GROUP_CONSUMER_ASSIGNORS = Setting("group.consumer.assignors", LIST, ("uniform", "range"), some_of("uniform", "range", empty_allowed=False, aliases=GROUP_ASSIGNORS),
    doc="Server-side assignors of consumer groups. The first is the default for members that do not request one.")
GROUP_CONSUMER_MIGRATION_POLICY = Setting("group.consumer.migration.policy", STRING, "bidirectional", one_of("disabled", "downgrade", "upgrade", "bidirectional", any_case=True),
    doc="Online migration of groups between the classic and the consumer protocol: `upgrade`, `downgrade`, "
        "`bidirectional` or `disabled`.")
GROUP_CONSUMER_SESSION_TIMEOUT_MS = Setting("group.consumer.session.timeout.ms", INT, 45_000, at_least(1),
    doc="Time in milliseconds without a heartbeat after which a member is removed from its consumer group.")
GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS = Setting("group.consumer.min.session.timeout.ms", INT, 45_000, at_least(1),
    doc="Minimum session timeout of a consumer group in milliseconds.")
GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS = Setting("group.consumer.max.session.timeout.ms", INT, 60_000, at_least(1),
    doc="Maximum session timeout of a consumer group in milliseconds.")
GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS = Setting("group.consumer.heartbeat.interval.ms", INT, 5000, at_least(1),
    doc="Heartbeat interval of consumer group members in milliseconds. Members learn of changes sooner with a "
        "lower value.")
GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS = Setting("group.consumer.min.heartbeat.interval.ms", INT, 5000, at_least(1),
    doc="Minimum heartbeat interval of a consumer group in milliseconds.")
GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS = Setting("group.consumer.max.heartbeat.interval.ms", INT, 15_000, at_least(1),
    doc="Maximum heartbeat interval of a consumer group in milliseconds.")
GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS = Setting("group.consumer.assignment.interval.ms", INT, 1000, at_least(0), dynamic=CLUSTER_WIDE,
    doc="Minimum time in milliseconds between two assignments of a consumer group, so that many joins cause one "
        "assignment.")
GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS = Setting("group.consumer.min.assignment.interval.ms", INT, 0, at_least(0),
    doc="Minimum assignment interval of a consumer group in milliseconds.")
GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS = Setting("group.consumer.max.assignment.interval.ms", INT, 15_000, at_least(0),
    doc="Maximum assignment interval of a consumer group in milliseconds.")
GROUP_CONSUMER_MAX_SIZE = Setting("group.consumer.max.size", INT, INT_MAX, at_least(1),
    doc="Maximum number of members of a consumer group.")

# Share groups (KIP-932).
GROUP_SHARE_ASSIGNORS = Setting("group.share.assignors", LIST, ("simple",), some_of("simple", empty_allowed=False, aliases=SHARE_ASSIGNORS),
    doc="Server-side assignors of share groups.")
GROUP_SHARE_SESSION_TIMEOUT_MS = Setting("group.share.session.timeout.ms", INT, 45_000, at_least(1),
    doc="Time in milliseconds without a heartbeat after which a member is removed from its share group.")
GROUP_SHARE_MIN_SESSION_TIMEOUT_MS = Setting("group.share.min.session.timeout.ms", INT, 45_000, at_least(1),
    doc="Minimum session timeout of a share group in milliseconds.")
GROUP_SHARE_MAX_SESSION_TIMEOUT_MS = Setting("group.share.max.session.timeout.ms", INT, 60_000, at_least(1),
    doc="Maximum session timeout of a share group in milliseconds.")
GROUP_SHARE_HEARTBEAT_INTERVAL_MS = Setting("group.share.heartbeat.interval.ms", INT, 5000, at_least(1),
    doc="Heartbeat interval of share group members in milliseconds.")
GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS = Setting("group.share.min.heartbeat.interval.ms", INT, 5000, at_least(1),
    doc="Minimum heartbeat interval of a share group in milliseconds.")
GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS = Setting("group.share.max.heartbeat.interval.ms", INT, 15_000, at_least(1),
    doc="Maximum heartbeat interval of a share group in milliseconds.")
GROUP_SHARE_ASSIGNMENT_INTERVAL_MS = Setting("group.share.assignment.interval.ms", INT, 1000, at_least(0), dynamic=CLUSTER_WIDE,
    doc="Minimum time in milliseconds between two assignments of a share group.")
GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS = Setting("group.share.min.assignment.interval.ms", INT, 0, at_least(0),
    doc="Minimum assignment interval of a share group in milliseconds.")
GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS = Setting("group.share.max.assignment.interval.ms", INT, 15_000, at_least(0),
    doc="Maximum assignment interval of a share group in milliseconds.")
GROUP_SHARE_MAX_SIZE = Setting("group.share.max.size", INT, 200, between(1, 1000),
    doc="Maximum number of members of a share group.")
GROUP_SHARE_MAX_SHARE_SESSIONS = Setting("group.share.max.share.sessions", INT, 2000, at_least(1),
    doc="Maximum number of share sessions per broker.")
GROUP_SHARE_DELIVERY_COUNT_LIMIT = Setting("group.share.delivery.count.limit", INT, 5, between(2, 10),
    doc="Maximum number of delivery attempts of a record in a share group. The record is then archived.")
GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT = Setting("group.share.min.delivery.count.limit", INT, 2, between(2, 5),
    doc="Minimum delivery count limit of a share group.")
GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT = Setting("group.share.max.delivery.count.limit", INT, 10, between(5, 25),
    doc="Maximum delivery count limit of a share group.")
GROUP_SHARE_RECORD_LOCK_DURATION_MS = Setting("group.share.record.lock.duration.ms", INT, 30_000, between(1000, 3_600_000),
    doc="Time in milliseconds that a member holds the lock of a record before another member can acquire it. Set "
        "it longer than the slowest record takes to process.")
GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS = Setting("group.share.min.record.lock.duration.ms", INT, 15_000, between(1000, 30_000),
    doc="Minimum record lock duration of a share group in milliseconds.")
GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS = Setting("group.share.max.record.lock.duration.ms", INT, 60_000, between(30_000, 3_600_000),
    doc="Maximum record lock duration of a share group in milliseconds.")
GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS = Setting("group.share.partition.max.record.locks", INT, 2000, between(100, 10_000),
    doc="Maximum number of record locks per share partition.")
GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS = Setting("group.share.min.partition.max.record.locks", INT, 100, between(100, 2000),
    doc="Minimum value of the record lock limit of a share group.")
GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS = Setting("group.share.max.partition.max.record.locks", INT, 4000, between(2000, 10_000),
    doc="Maximum value of the record lock limit of a share group.")
SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS = Setting("share.coordinator.state.topic.num.partitions", INT, 50, at_least(1),
    doc="Number of partitions of __share_group_state. It cannot change after the topic is created.")
SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR = Setting("share.coordinator.state.topic.replication.factor", SHORT, 3, at_least(1),
    doc="Replication factor of __share_group_state.")
SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR = Setting("share.coordinator.state.topic.min.isr", SHORT, 2, at_least(1),
    doc="Minimum number of in-sync replicas for writes to __share_group_state.")
SHARE_COORDINATOR_STATE_TOPIC_SEGMENT_BYTES = Setting("share.coordinator.state.topic.segment.bytes", INT, 104_857_600, at_least(1),
    doc="Segment size of __share_group_state in bytes. Smaller segments load faster.")
SHARE_COORDINATOR_STATE_TOPIC_COMPRESSION_CODEC = Setting("share.coordinator.state.topic.compression.codec", INT, 0, between(0, 4),
    doc="Compression codec of __share_group_state: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.")
SHARE_COORDINATOR_LOAD_BUFFER_SIZE = Setting("share.coordinator.load.buffer.size", INT, 5_242_880, at_least(1),
    doc="Batch size in bytes for reading __share_group_state when a share coordinator loads.")
SHARE_COORDINATOR_SNAPSHOT_UPDATE_RECORDS_PER_SNAPSHOT = Setting("share.coordinator.snapshot.update.records.per.snapshot", INT, 500, between(0, 500),
    doc="Number of update records of a share partition between two snapshots.")
SHARE_COORDINATOR_WRITE_TIMEOUT_MS = Setting("share.coordinator.write.timeout.ms", INT, 5000, at_least(1),
    doc="Time in milliseconds for a write to __share_group_state to reach all in-sync replicas.")

# Committed offsets.
OFFSETS_TOPIC_NUM_PARTITIONS = Setting("offsets.topic.num.partitions", INT, 50, at_least(1),
    doc="Number of partitions of __consumer_offsets. It cannot change after the topic is created.")
OFFSETS_TOPIC_REPLICATION_FACTOR = Setting("offsets.topic.replication.factor", SHORT, 3, at_least(1),
    doc="Replication factor of __consumer_offsets.")
OFFSETS_TOPIC_SEGMENT_BYTES = Setting("offsets.topic.segment.bytes", INT, 104_857_600, at_least(1),
    doc="Segment size of __consumer_offsets in bytes, at least 1 MiB. Smaller segments load faster.")
OFFSETS_TOPIC_COMPRESSION_CODEC = Setting("offsets.topic.compression.codec", INT, 0, between(0, 4),
    doc="Compression codec of __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.")
OFFSETS_LOAD_BUFFER_SIZE = Setting("offsets.load.buffer.size", INT, 5_242_880, at_least(1),
    doc="Batch size in bytes for reading __consumer_offsets when a group coordinator loads.")
OFFSETS_COMMIT_TIMEOUT_MS = Setting("offsets.commit.timeout.ms", INT, 5000, at_least(1),
    doc="Time in milliseconds for an offset commit to reach all in-sync replicas.")
OFFSETS_RETENTION_MINUTES = Setting("offsets.retention.minutes", INT, 10_080, at_least(1),
    doc="Time in minutes that committed offsets are retained after their group becomes empty. Raise it if "
        "consumers pause for longer than a week.")
OFFSETS_RETENTION_CHECK_INTERVAL_MS = Setting("offsets.retention.check.interval.ms", LONG, 600_000, at_least(1),
    doc="Interval in milliseconds between checks for expired offsets.")
OFFSET_METADATA_MAX_BYTES = Setting("offset.metadata.max.bytes", INT, 4096, at_least(0),
    doc="Maximum size in bytes of the metadata that a client stores with a committed offset.")

# Producers and transactions.
PRODUCER_ID_EXPIRATION_MS = Setting("producer.id.expiration.ms", INT, 86_400_000, at_least(1), dynamic=CLUSTER_WIDE,
    doc="Time in milliseconds after which a partition forgets an inactive producer id. A retry after that time "
        "is not recognised as a duplicate.")
TRANSACTION_STATE_LOG_NUM_PARTITIONS = Setting("transaction.state.log.num.partitions", INT, 50, at_least(1),
    doc="Number of partitions of __transaction_state. It cannot change after the topic is created.")
TRANSACTION_STATE_LOG_REPLICATION_FACTOR = Setting("transaction.state.log.replication.factor", SHORT, 3, at_least(1),
    doc="Replication factor of __transaction_state.")
TRANSACTION_STATE_LOG_MIN_ISR = Setting("transaction.state.log.min.isr", INT, 2, at_least(1),
    doc="Minimum number of in-sync replicas for writes to __transaction_state.")
TRANSACTION_STATE_LOG_SEGMENT_BYTES = Setting("transaction.state.log.segment.bytes", INT, 104_857_600, at_least(1),
    doc="Segment size of __transaction_state in bytes. Smaller segments load faster.")
TRANSACTION_STATE_LOG_LOAD_BUFFER_SIZE = Setting("transaction.state.log.load.buffer.size", INT, 5_242_880, at_least(1),
    doc="Batch size in bytes for reading __transaction_state when a transaction coordinator loads.")
TRANSACTION_MAX_TIMEOUT_MS = Setting("transaction.max.timeout.ms", INT, 900_000, at_least(1),
    doc="Maximum transaction.timeout.ms of a producer in milliseconds. A hanging transaction blocks "
        "read_committed consumers for up to this time.")
TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS = Setting("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10_000, at_least(1),
    doc="Interval in milliseconds between checks for transactions that have timed out.")
TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS = Setting("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000, at_least(1),
    doc="Interval in milliseconds between checks for expired transactional ids.")
TRANSACTIONAL_ID_EXPIRATION_MS = Setting("transactional.id.expiration.ms", INT, 604_800_000, at_least(1),
    doc="Time in milliseconds after which an unused transactional id expires.")
TRANSACTION_PARTITION_VERIFICATION_ENABLE = Setting("transaction.partition.verification.enable", BOOLEAN, True, dynamic=CLUSTER_WIDE,
    doc="Verify with the coordinator that a partition belongs to the transaction before its first record is "
        "appended. This keeps late records out of the next transaction; keep it enabled.")
TRANSACTION_TWO_PHASE_COMMIT_ENABLE = Setting("transaction.two.phase.commit.enable", BOOLEAN, False,
    doc="Allow producers to keep a prepared transaction open without a timeout, for two-phase commits with other "
        "systems. Exactly-once pipelines require it.")
ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MS = Setting("add.partitions.to.txn.retry.backoff.ms", INT, 20, at_least(1),
    doc="Time in milliseconds before a partition is added again to a transaction while the previous one is still "
        "completing.")
ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS = Setting("add.partitions.to.txn.retry.backoff.max.ms", INT, 100, at_least(0),
    doc="Time in milliseconds after which the broker stops retrying to add a partition to a transaction and "
        "returns the error to the producer.")

# Metrics.
OTTLA_METRICS_LISTENER = Setting("ottla.metrics.listener", STRING, "", matching(r"((\[[0-9a-fA-F:.]+\]|[^:/\[\]\s]*):[0-9]{1,5})?", "host:port"),
    doc="Address of /metrics (Prometheus) and /healthz, for example 127.0.0.1:9192. No host means all "
        "interfaces; empty disables it. Anyone who can connect can read topic and group names. The broker logs a "
        "warning if the port is in use. Specific to Ottla; Kafka uses JMX.")

# Quota windows.
QUOTA_WINDOW_NUM = Setting("quota.window.num", INT, 11, at_least(1),
    doc="Number of windows over which client quota rates are measured. More windows tolerate longer bursts.")
QUOTA_WINDOW_SIZE_SECONDS = Setting("quota.window.size.seconds", INT, 1, at_least(1),
    doc="Length in seconds of a window of client quotas.")
REPLICATION_QUOTA_WINDOW_NUM = Setting("replication.quota.window.num", INT, 11, at_least(1),
    doc="Number of windows over which replication quota rates are measured.")
REPLICATION_QUOTA_WINDOW_SIZE_SECONDS = Setting("replication.quota.window.size.seconds", INT, 1, at_least(1),
    doc="Length in seconds of a window of replication quotas.")
LEADER_REPLICATION_THROTTLED_RATE = Setting("leader.replication.throttled.rate", LONG, LONG_MAX, at_least(0), dynamic=CLUSTER_WIDE,
    doc="Bytes per second that this broker sends to followers of the replicas in leader.replication.throttled.replicas, "
        "unless they are in sync. Reassignment tools set it.")
FOLLOWER_REPLICATION_THROTTLED_RATE = Setting("follower.replication.throttled.rate", LONG, LONG_MAX, at_least(0), dynamic=CLUSTER_WIDE,
    doc="Bytes per second that this broker fetches for the replicas in follower.replication.throttled.replicas, unless "
        "they have caught up. Reassignment tools set it.")
CONTROLLER_QUOTA_WINDOW_NUM = Setting("controller.quota.window.num", INT, 11, at_least(1),
    doc="Number of windows over which the rate of topic and partition changes is measured.")
CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS = Setting("controller.quota.window.size.seconds", INT, 1, at_least(1),
    doc="Length in seconds of a window of the quota of topic and partition changes.")
# fmt: on

BROKER: Final = ConfigDef(
    "broker",
    (
        *settings_in(globals()),
        *compression.LEVELS,
        *security.ROWS,
        connection.SOCKET_CONNECTION_SETUP_TIMEOUT_MS,
        connection.SOCKET_CONNECTION_SETUP_TIMEOUT_MAX_MS,
        *ignored.BROKER_SETTINGS,
    ),
    ignored=ignored.BROKER,
    unsupported=unsupported.BROKER,
)
