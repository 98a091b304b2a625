"""OffsetCommit: commit offsets of a group."""

from collections.abc import Sequence

from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol.apis import OFFSET_COMMIT
from ottla.protocol.message import Message
from ottla.protocol.schema import Struct, array, int16, int32, int64, nullable_string, string, uuid


class OffsetCommitRequestPartition(Struct):
    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
    committed_metadata: str | None = nullable_string("0+")


class OffsetCommitRequestTopic(Struct):
    name: str = string("0-9", default="", ignorable=True)
    topic_id: Uuid = uuid("10+", default=ZERO_UUID, ignorable=True)
    partitions: Sequence[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition, "0+")


class OffsetCommitRequest(Message, api=OFFSET_COMMIT):
    group_id: str = string("0+")
    generation_id_or_member_epoch: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("1+", ignorable=True)
    group_instance_id: str | None = nullable_string("7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    topics: Sequence[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic, "0+")


class OffsetCommitResponsePartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class OffsetCommitResponseTopic(Struct):
    name: str = string("0-9", default="", ignorable=True)
    topic_id: Uuid = uuid("10+", default=ZERO_UUID, ignorable=True)
    partitions: Sequence[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition, "0+")


class OffsetCommitResponse(Message, api=OFFSET_COMMIT):
    throttle_time_ms: int = int32("3+", default=0, ignorable=True)
    topics: Sequence[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic, "0+")
