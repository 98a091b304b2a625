"""OffsetDelete: delete committed offsets of a group."""

from collections.abc import Sequence

from ottla.protocol.apis import OFFSET_DELETE
from ottla.protocol.message import Message
from ottla.protocol.schema import Struct, array, int16, int32, string


class OffsetDeleteRequestPartition(Struct):
    partition_index: int = int32("0+")


class OffsetDeleteRequestTopic(Struct):
    name: str = string("0+")
    partitions: Sequence[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition, "0+")


class OffsetDeleteRequest(Message, api=OFFSET_DELETE):
    group_id: str = string("0+")
    topics: Sequence[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic, "0+")


class OffsetDeleteResponsePartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class OffsetDeleteResponseTopic(Struct):
    name: str = string("0+")
    partitions: Sequence[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition, "0+")


class OffsetDeleteResponse(Message, api=OFFSET_DELETE):
    error_code: int = int16("0+")
    throttle_time_ms: int = int32("0+", ignorable=True)
    topics: Sequence[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic, "0+")
