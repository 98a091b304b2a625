"""OffsetFetch: the committed offsets of groups."""

from collections.abc import Sequence

from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol.apis import OFFSET_FETCH
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    INT32S,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    nullable_array,
    nullable_string,
    string,
    uuid,
)


class OffsetFetchRequestTopic(Struct):
    name: str = string("0-7")
    partition_indexes: Sequence[int] = array(INT32S, "0-7")


class OffsetFetchRequestTopics(Struct):
    name: str = string("8-9", default="", ignorable=True)
    topic_id: Uuid = uuid("10+", default=ZERO_UUID, ignorable=True)
    partition_indexes: Sequence[int] = array(INT32S, "8+")


class OffsetFetchRequestGroup(Struct):
    group_id: str = string("8+")
    member_id: str | None = nullable_string("9+", default=None, ignorable=True)
    member_epoch: int = int32("9+", default=-1, ignorable=True)
    topics: Sequence[OffsetFetchRequestTopics] | None = nullable_array(
        OffsetFetchRequestTopics, "8+"
    )


class OffsetFetchRequest(Message, api=OFFSET_FETCH):
    group_id: str = string("0-7", default="")
    topics: Sequence[OffsetFetchRequestTopic] | None = nullable_array(
        OffsetFetchRequestTopic, "0-7", nullable="2-7", default=()
    )
    groups: Sequence[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+", default=())
    require_stable: bool = boolean("7+", default=False)


class OffsetFetchResponsePartition(Struct):
    partition_index: int = int32("0-7")
    committed_offset: int = int64("0-7")
    committed_leader_epoch: int = int32("5-7", default=-1, ignorable=True)
    metadata: str | None = nullable_string("0-7")
    error_code: int = int16("0-7")


class OffsetFetchResponseTopic(Struct):
    name: str = string("0-7")
    partitions: Sequence[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, "0-7")


class OffsetFetchResponsePartitions(Struct):
    partition_index: int = int32("8+")
    committed_offset: int = int64("8+")
    committed_leader_epoch: int = int32("8+", default=-1, ignorable=True)
    metadata: str | None = nullable_string("8+")
    error_code: int = int16("8+")


class OffsetFetchResponseTopics(Struct):
    name: str = string("8-9", default="", ignorable=True)
    topic_id: Uuid = uuid("10+", default=ZERO_UUID, ignorable=True)
    partitions: Sequence[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, "8+")


class OffsetFetchResponseGroup(Struct):
    group_id: str = string("8+")
    topics: Sequence[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, "8+")
    error_code: int = int16("8+", default=0)


class OffsetFetchResponse(Message, api=OFFSET_FETCH):
    throttle_time_ms: int = int32("3+", default=0, ignorable=True)
    topics: Sequence[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7", default=())
    error_code: int = int16("2-7", default=0, ignorable=True)
    groups: Sequence[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+", default=())
