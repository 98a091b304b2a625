"""AlterShareGroupOffsets: set the start offsets of a share group."""

from collections.abc import Sequence

from ottla.ids import Uuid
from ottla.protocol.apis import ALTER_SHARE_GROUP_OFFSETS
from ottla.protocol.message import Message
from ottla.protocol.schema import Struct, array, int16, int32, int64, nullable_string, string, uuid


class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: int = int32("0+")
    start_offset: int = int64("0+")


class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = string("0+")
    partitions: Sequence[AlterShareGroupOffsetsRequestPartition] = array(
        AlterShareGroupOffsetsRequestPartition, "0+"
    )


class AlterShareGroupOffsetsRequest(Message, api=ALTER_SHARE_GROUP_OFFSETS):
    group_id: str = string("0+")
    topics: Sequence[AlterShareGroupOffsetsRequestTopic] = array(
        AlterShareGroupOffsetsRequestTopic, "0+"
    )


class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+", default=None)


class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = string("0+")
    topic_id: Uuid = uuid("0+")
    partitions: Sequence[AlterShareGroupOffsetsResponsePartition] = array(
        AlterShareGroupOffsetsResponsePartition, "0+"
    )


class AlterShareGroupOffsetsResponse(Message, api=ALTER_SHARE_GROUP_OFFSETS):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+", default=None)
    responses: Sequence[AlterShareGroupOffsetsResponseTopic] = array(
        AlterShareGroupOffsetsResponseTopic, "0+"
    )
