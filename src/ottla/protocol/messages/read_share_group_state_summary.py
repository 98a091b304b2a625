"""ReadShareGroupStateSummary: the start offsets of share partitions."""

from collections.abc import Sequence

from ottla.ids import Uuid
from ottla.protocol.apis import READ_SHARE_GROUP_STATE_SUMMARY
from ottla.protocol.message import Message
from ottla.protocol.schema import Struct, array, int16, int32, int64, nullable_string, string, uuid


class PartitionData(Struct):
    partition: int = int32("0+")
    leader_epoch: int = int32("0+")


class ReadStateSummaryData(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: Sequence[PartitionData] = array(PartitionData, "0+")


class ReadShareGroupStateSummaryRequest(Message, api=READ_SHARE_GROUP_STATE_SUMMARY):
    group_id: str = string("0+")
    topics: Sequence[ReadStateSummaryData] = array(ReadStateSummaryData, "0+")


class PartitionResult(Struct):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+", default=None)
    state_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)


class ReadStateSummaryResult(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: Sequence[PartitionResult] = array(PartitionResult, "0+")


class ReadShareGroupStateSummaryResponse(Message, api=READ_SHARE_GROUP_STATE_SUMMARY):
    results: Sequence[ReadStateSummaryResult] = array(ReadStateSummaryResult, "0+")
