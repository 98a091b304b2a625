"""DescribeShareGroupOffsets: the start offsets of share groups."""

from collections.abc import Sequence

from ottla.ids import Uuid
from ottla.protocol.apis import DESCRIBE_SHARE_GROUP_OFFSETS
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    INT32S,
    Struct,
    array,
    int16,
    int32,
    int64,
    nullable_array,
    nullable_string,
    string,
    uuid,
)


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = string("0+")
    partitions: Sequence[int] = array(INT32S, "0+")


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: str = string("0+")
    topics: Sequence[DescribeShareGroupOffsetsRequestTopic] | None = nullable_array(
        DescribeShareGroupOffsetsRequestTopic, "0+"
    )


class DescribeShareGroupOffsetsRequest(Message, api=DESCRIBE_SHARE_GROUP_OFFSETS):
    groups: Sequence[DescribeShareGroupOffsetsRequestGroup] = array(
        DescribeShareGroupOffsetsRequestGroup, "0+"
    )


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = int32("0+")
    start_offset: int = int64("0+")
    leader_epoch: int = int32("0+")
    lag: int = int64("1+", default=-1, ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+", default=None)


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = string("0+")
    topic_id: Uuid = uuid("0+")
    partitions: Sequence[DescribeShareGroupOffsetsResponsePartition] = array(
        DescribeShareGroupOffsetsResponsePartition, "0+"
    )


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: str = string("0+")
    topics: Sequence[DescribeShareGroupOffsetsResponseTopic] = array(
        DescribeShareGroupOffsetsResponseTopic, "0+"
    )
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+", default=None)


class DescribeShareGroupOffsetsResponse(Message, api=DESCRIBE_SHARE_GROUP_OFFSETS):
    throttle_time_ms: int = int32("0+")
    groups: Sequence[DescribeShareGroupOffsetsResponseGroup] = array(
        DescribeShareGroupOffsetsResponseGroup, "0+"
    )
