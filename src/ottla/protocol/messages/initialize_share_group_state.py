"""InitializeShareGroupState: create the state of share partitions."""

from collections.abc import Sequence

from ottla.ids import Uuid
from ottla.protocol.apis import INITIALIZE_SHARE_GROUP_STATE
from ottla.protocol.message import Message
from ottla.protocol.schema import Struct, array, int16, int32, int64, nullable_string, string, uuid


class PartitionData(Struct):
    partition: int = int32("0+")
    state_epoch: int = int32("0+")
    start_offset: int = int64("0+")


class InitializeStateData(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: Sequence[PartitionData] = array(PartitionData, "0+")


class InitializeShareGroupStateRequest(Message, api=INITIALIZE_SHARE_GROUP_STATE):
    group_id: str = string("0+")
    topics: Sequence[InitializeStateData] = array(InitializeStateData, "0+")


class PartitionResult(Struct):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+", default=None)


class InitializeStateResult(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: Sequence[PartitionResult] = array(PartitionResult, "0+")


class InitializeShareGroupStateResponse(Message, api=INITIALIZE_SHARE_GROUP_STATE):
    results: Sequence[InitializeStateResult] = array(InitializeStateResult, "0+")
