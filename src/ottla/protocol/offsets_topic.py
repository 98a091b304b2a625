"""The records of __consumer_offsets: committed offsets and group metadata.

The first two bytes of a key are the record type (TYPES), those of a value its version.
"""

from collections.abc import Sequence
from typing import Final

from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol.coordinator_records import CoordinatorRecordType, CoordinatorRecordTypes
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    INT32S,
    STRINGS,
    Struct,
    array,
    int8,
    int32,
    int64,
    nullable_array,
    nullable_string,
    nullable_struct,
    octets,
    string,
    uuid,
)


class ConsumerGroupCurrentMemberAssignmentKey(Message, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class TopicPartitions(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: Sequence[int] = array(INT32S, "0+")
    assignment_epochs: Sequence[int] | None = nullable_array(INT32S, "0+", default=(), tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    assigned_partitions: Sequence[TopicPartitions] = array(TopicPartitions, "0+")
    partitions_pending_revocation: Sequence[TopicPartitions] = array(TopicPartitions, "0+")


class ConsumerGroupMemberMetadataKey(Message, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class ClassicProtocol(Struct):
    name: str = string("0+")
    metadata: bytes = octets("0+")


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = int32("0+", default=0)
    supported_protocols: Sequence[ClassicProtocol] = array(ClassicProtocol, "0+", default=())


class ConsumerGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    instance_id: str | None = nullable_string("0+")
    rack_id: str | None = nullable_string("0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: Sequence[str] = array(STRINGS, "0+")
    subscribed_topic_regex: str | None = nullable_string("0+")
    rebalance_timeout_ms: int = int32("0+", default=-1)
    server_assignor: str | None = nullable_string("0+")
    classic_member_metadata: ClassicMemberMetadata | None = nullable_struct(
        ClassicMemberMetadata, "0+", factory=ClassicMemberMetadata, tag=0
    )


class ConsumerGroupMetadataKey(Message, versions="0"):
    group_id: str = string("0")


class ConsumerGroupMetadataValue(Message, versions="0", flexible="0+"):
    epoch: int = int32("0+")
    metadata_hash: int = int64("0+", default=0, tag=0)


class ConsumerGroupPartitionMetadataKey(Message, versions="0"):
    group_id: str = string("0")


class PartitionMetadata(Struct):
    partition: int = int32("0+")
    racks: Sequence[str] = array(STRINGS, "0+")


class TopicMetadata(Struct):
    topic_id: Uuid = uuid("0+")
    topic_name: str = string("0+")
    num_partitions: int = int32("0+")
    partition_metadata: Sequence[PartitionMetadata] = array(PartitionMetadata, "0+")


class ConsumerGroupPartitionMetadataValue(Message, versions="0", flexible="0+"):
    topics: Sequence[TopicMetadata] = array(TopicMetadata, "0+")


class ConsumerGroupRegularExpressionKey(Message, versions="0"):
    group_id: str = string("0")
    regular_expression: str = string("0")


class ConsumerGroupRegularExpressionValue(Message, versions="0", flexible="0+"):
    topics: Sequence[str] = array(STRINGS, "0+")
    version: int = int64("0+")
    timestamp: int = int64("0+")


class ConsumerGroupTargetAssignmentMemberKey(Message, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class TopicPartition(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: Sequence[int] = array(INT32S, "0+")


class ConsumerGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    topic_partitions: Sequence[TopicPartition] = array(TopicPartition, "0+")


class ConsumerGroupTargetAssignmentMetadataKey(Message, versions="0"):
    group_id: str = string("0")


class ConsumerGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+"):
    assignment_epoch: int = int32("0+")
    assignment_timestamp: int = int64("0+", default=0, tag=0, ignorable=True)


class GroupMetadataKey(Message, versions="0"):
    group: str = string("0")


class MemberMetadata(Struct):
    member_id: str = string("0+")
    group_instance_id: str | None = nullable_string("3+", default=None, ignorable=True)
    client_id: str = string("0+")
    client_host: str = string("0+")
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32("0+")
    subscription: bytes = octets("0+")
    assignment: bytes = octets("0+")


class GroupMetadataValue(Message, versions="0-4", flexible="4+"):
    protocol_type: str = string("0+")
    generation: int = int32("0+")
    protocol: str | None = nullable_string("0+")
    leader: str | None = nullable_string("0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: Sequence[MemberMetadata] = array(MemberMetadata, "0+")


class OffsetCommitKey(Message, versions="0"):
    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    offset: int = int64("0+")
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string("0+")
    commit_timestamp: int = int64("0+")
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: Uuid = uuid("4+", default=ZERO_UUID, tag=0, ignorable=True)


# Type 0 is an offset commit of releases before 0.8.2; since then it is type 1.
TYPES: Final = CoordinatorRecordTypes(
    {
        0: CoordinatorRecordType(OffsetCommitKey, OffsetCommitValue),
        1: CoordinatorRecordType(OffsetCommitKey, OffsetCommitValue),
        2: CoordinatorRecordType(GroupMetadataKey, GroupMetadataValue),
        3: CoordinatorRecordType(ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
        4: CoordinatorRecordType(
            ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue
        ),
        5: CoordinatorRecordType(ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
        6: CoordinatorRecordType(
            ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue
        ),
        7: CoordinatorRecordType(
            ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue
        ),
        8: CoordinatorRecordType(
            ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue
        ),
        16: CoordinatorRecordType(
            ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue
        ),
    }
)
