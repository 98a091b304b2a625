"""The table of APIs: key, name and versions.

Invariant: each key has one row. Messages take their versions from their row.
"""

from typing import Final

from ottla.protocol.message import Api, Use

BASIC, COMMON, SPECIAL, RARE, BROKERS = Use

# For two APIs the advertised versions differ from the supported ones. Produce 0 to 2 are
# advertised, because librdkafka requires them (KAFKA-18659), but not supported. InitProducerId 6
# (two-phase commit, KIP-939) is not advertised, as in Kafka 4.3.

PRODUCE = Api(0, "Produce", BASIC, "3-13", flexible="9+", advertised="0-13", hot=True)
FETCH = Api(1, "Fetch", BASIC, "4-18", flexible="12+", hot=True)
LIST_OFFSETS = Api(2, "ListOffsets", BASIC, "1-11", flexible="6+")
METADATA = Api(3, "Metadata", BASIC, "0-13", flexible="9+")
LEADER_AND_ISR = Api(4, "LeaderAndIsr", BROKERS, "0-7", flexible="4+")
STOP_REPLICA = Api(5, "StopReplica", BROKERS, "0-4", flexible="2+")
UPDATE_METADATA = Api(6, "UpdateMetadata", BROKERS, "0-8", flexible="6+")
CONTROLLED_SHUTDOWN = Api(7, "ControlledShutdown", BROKERS, "0-3", flexible="3+")
OFFSET_COMMIT = Api(8, "OffsetCommit", BASIC, "2-10", flexible="8+")
OFFSET_FETCH = Api(9, "OffsetFetch", BASIC, "1-10", flexible="6+")
FIND_COORDINATOR = Api(10, "FindCoordinator", BASIC, "0-6", flexible="3+")
JOIN_GROUP = Api(11, "JoinGroup", BASIC, "0-9", flexible="6+")
HEARTBEAT = Api(12, "Heartbeat", BASIC, "0-4", flexible="4+")
LEAVE_GROUP = Api(13, "LeaveGroup", BASIC, "0-5", flexible="4+")
SYNC_GROUP = Api(14, "SyncGroup", BASIC, "0-5", flexible="4+")
DESCRIBE_GROUPS = Api(15, "DescribeGroups", COMMON, "0-6", flexible="5+")
LIST_GROUPS = Api(16, "ListGroups", COMMON, "0-5", flexible="3+")
SASL_HANDSHAKE = Api(17, "SaslHandshake", COMMON, "0-1")
API_VERSIONS = Api(18, "ApiVersions", BASIC, "0-4", flexible="3+")
CREATE_TOPICS = Api(19, "CreateTopics", BASIC, "2-7", flexible="5+")
DELETE_TOPICS = Api(20, "DeleteTopics", BASIC, "1-6", flexible="4+")
DELETE_RECORDS = Api(21, "DeleteRecords", COMMON, "0-2", flexible="2+")
INIT_PRODUCER_ID = Api(22, "InitProducerId", BASIC, "0-6", flexible="2+", advertised="0-5")
OFFSET_FOR_LEADER_EPOCH = Api(23, "OffsetForLeaderEpoch", BASIC, "2-4", flexible="4+")
ADD_PARTITIONS_TO_TXN = Api(24, "AddPartitionsToTxn", COMMON, "0-5", flexible="3+")
ADD_OFFSETS_TO_TXN = Api(25, "AddOffsetsToTxn", COMMON, "0-4", flexible="3+")
END_TXN = Api(26, "EndTxn", COMMON, "0-5", flexible="3+")
WRITE_TXN_MARKERS = Api(27, "WriteTxnMarkers", BROKERS, "1-2", flexible="1+")
TXN_OFFSET_COMMIT = Api(28, "TxnOffsetCommit", COMMON, "0-5", flexible="3+")
DESCRIBE_ACLS = Api(29, "DescribeAcls", SPECIAL, "1-3", flexible="2+")
CREATE_ACLS = Api(30, "CreateAcls", SPECIAL, "1-3", flexible="2+")
DELETE_ACLS = Api(31, "DeleteAcls", SPECIAL, "1-3", flexible="2+")
DESCRIBE_CONFIGS = Api(32, "DescribeConfigs", BASIC, "1-4", flexible="4+")
ALTER_CONFIGS = Api(33, "AlterConfigs", COMMON, "0-2", flexible="2+")
ALTER_REPLICA_LOG_DIRS = Api(34, "AlterReplicaLogDirs", RARE, "1-2", flexible="2+")
DESCRIBE_LOG_DIRS = Api(35, "DescribeLogDirs", COMMON, "1-5", flexible="2+")
SASL_AUTHENTICATE = Api(36, "SaslAuthenticate", COMMON, "0-2", flexible="2+")
CREATE_PARTITIONS = Api(37, "CreatePartitions", COMMON, "0-3", flexible="2+")
DELETE_GROUPS = Api(42, "DeleteGroups", COMMON, "0-2", flexible="2+")
ELECT_LEADERS = Api(43, "ElectLeaders", COMMON, "0-2", flexible="2+")
INCREMENTAL_ALTER_CONFIGS = Api(44, "IncrementalAlterConfigs", COMMON, "0-1", flexible="1+")
ALTER_PARTITION_REASSIGNMENTS = Api(45, "AlterPartitionReassignments", COMMON, "0-1", flexible="0+")
LIST_PARTITION_REASSIGNMENTS = Api(46, "ListPartitionReassignments", COMMON, "0", flexible="0+")
OFFSET_DELETE = Api(47, "OffsetDelete", COMMON, "0")
DESCRIBE_CLIENT_QUOTAS = Api(48, "DescribeClientQuotas", SPECIAL, "0-1", flexible="1+")
ALTER_CLIENT_QUOTAS = Api(49, "AlterClientQuotas", SPECIAL, "0-1", flexible="1+")
DESCRIBE_USER_SCRAM_CREDENTIALS = Api(
    50, "DescribeUserScramCredentials", SPECIAL, "0", flexible="0+"
)
ALTER_USER_SCRAM_CREDENTIALS = Api(51, "AlterUserScramCredentials", SPECIAL, "0", flexible="0+")
ALTER_PARTITION = Api(56, "AlterPartition", BROKERS, "2-3", flexible="0+")
UPDATE_FEATURES = Api(57, "UpdateFeatures", SPECIAL, "0-2", flexible="0+")
ENVELOPE = Api(58, "Envelope", BROKERS, "0", flexible="0+")
DESCRIBE_CLUSTER = Api(60, "DescribeCluster", BASIC, "0-2", flexible="0+")
DESCRIBE_PRODUCERS = Api(61, "DescribeProducers", SPECIAL, "0", flexible="0+")
UNREGISTER_BROKER = Api(64, "UnregisterBroker", RARE, "0", flexible="0+")
DESCRIBE_TRANSACTIONS = Api(65, "DescribeTransactions", SPECIAL, "0", flexible="0+")
LIST_TRANSACTIONS = Api(66, "ListTransactions", SPECIAL, "0-2", flexible="0+")
ALLOCATE_PRODUCER_IDS = Api(67, "AllocateProducerIds", BROKERS, "0", flexible="0+")
CONSUMER_GROUP_HEARTBEAT = Api(68, "ConsumerGroupHeartbeat", COMMON, "0-1", flexible="0+")
CONSUMER_GROUP_DESCRIBE = Api(69, "ConsumerGroupDescribe", COMMON, "0-1", flexible="0+")
GET_TELEMETRY_SUBSCRIPTIONS = Api(71, "GetTelemetrySubscriptions", RARE, "0", flexible="0+")
PUSH_TELEMETRY = Api(72, "PushTelemetry", RARE, "0", flexible="0+")
ASSIGN_REPLICAS_TO_DIRS = Api(73, "AssignReplicasToDirs", BROKERS, "0", flexible="0+")
LIST_CONFIG_RESOURCES = Api(74, "ListConfigResources", SPECIAL, "0-1", flexible="0+")
DESCRIBE_TOPIC_PARTITIONS = Api(75, "DescribeTopicPartitions", COMMON, "0", flexible="0+")
SHARE_GROUP_HEARTBEAT = Api(76, "ShareGroupHeartbeat", SPECIAL, "1", flexible="0+")
SHARE_GROUP_DESCRIBE = Api(77, "ShareGroupDescribe", SPECIAL, "1", flexible="0+")
SHARE_FETCH = Api(78, "ShareFetch", SPECIAL, "1-2", flexible="0+")
SHARE_ACKNOWLEDGE = Api(79, "ShareAcknowledge", SPECIAL, "1-2", flexible="0+")
INITIALIZE_SHARE_GROUP_STATE = Api(83, "InitializeShareGroupState", BROKERS, "0", flexible="0+")
READ_SHARE_GROUP_STATE = Api(84, "ReadShareGroupState", BROKERS, "0", flexible="0+")
WRITE_SHARE_GROUP_STATE = Api(85, "WriteShareGroupState", BROKERS, "0-1", flexible="0+")
DELETE_SHARE_GROUP_STATE = Api(86, "DeleteShareGroupState", BROKERS, "0", flexible="0+")
READ_SHARE_GROUP_STATE_SUMMARY = Api(
    87, "ReadShareGroupStateSummary", BROKERS, "0-1", flexible="0+"
)
DESCRIBE_SHARE_GROUP_OFFSETS = Api(90, "DescribeShareGroupOffsets", SPECIAL, "0-1", flexible="0+")
ALTER_SHARE_GROUP_OFFSETS = Api(91, "AlterShareGroupOffsets", SPECIAL, "0", flexible="0+")
DELETE_SHARE_GROUP_OFFSETS = Api(92, "DeleteShareGroupOffsets", SPECIAL, "0", flexible="0+")

API_OF_KEY: Final[dict[int, Api]] = {
    row.key: row for row in tuple(globals().values()) if isinstance(row, Api)
}
