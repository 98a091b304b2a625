"""ListOffsets: the offset of a timestamp, or the earliest or latest offset."""

from collections.abc import Sequence

from ottla.protocol.apis import LIST_OFFSETS
from ottla.protocol.message import Message
from ottla.protocol.schema import Struct, array, int8, int16, int32, int64, string


class ListOffsetsPartition(Struct):
    partition_index: int = int32("0+")
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64("0+")


class ListOffsetsTopic(Struct):
    name: str = string("0+")
    partitions: Sequence[ListOffsetsPartition] = array(ListOffsetsPartition, "0+")


class ListOffsetsRequest(Message, api=LIST_OFFSETS):
    replica_id: int = int32("0+")
    isolation_level: int = int8("2+", default=0)
    topics: Sequence[ListOffsetsTopic] = array(ListOffsetsTopic, "0+")
    timeout_ms: int = int32("10+", default=0, ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = string("0+")
    partitions: Sequence[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse, "0+")


class ListOffsetsResponse(Message, api=LIST_OFFSETS):
    throttle_time_ms: int = int32("2+", default=0, ignorable=True)
    topics: Sequence[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse, "0+")
