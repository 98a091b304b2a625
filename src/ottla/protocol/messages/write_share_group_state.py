"""WriteShareGroupState: write the state of share partitions."""

from collections.abc import Sequence

from ottla.ids import Uuid
from ottla.protocol.apis import WRITE_SHARE_GROUP_STATE
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    nullable_string,
    string,
    uuid,
)


class StateBatch(Struct):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_state: int = int8("0+")
    delivery_count: int = int16("0+")


class PartitionData(Struct):
    partition: int = int32("0+")
    state_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)
    state_batches: Sequence[StateBatch] = array(StateBatch, "0+")


class WriteStateData(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: Sequence[PartitionData] = array(PartitionData, "0+")


class WriteShareGroupStateRequest(Message, api=WRITE_SHARE_GROUP_STATE):
    group_id: str = string("0+")
    topics: Sequence[WriteStateData] = array(WriteStateData, "0+")


class PartitionResult(Struct):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+", default=None)


class WriteStateResult(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: Sequence[PartitionResult] = array(PartitionResult, "0+")


class WriteShareGroupStateResponse(Message, api=WRITE_SHARE_GROUP_STATE):
    results: Sequence[WriteStateResult] = array(WriteStateResult, "0+")
