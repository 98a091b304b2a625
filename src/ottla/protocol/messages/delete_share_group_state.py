"""DeleteShareGroupState: delete the state of share partitions."""

from collections.abc import Sequence

from ottla.ids import Uuid
from ottla.protocol.apis import DELETE_SHARE_GROUP_STATE
from ottla.protocol.message import Message
from ottla.protocol.schema import Struct, array, int16, int32, nullable_string, string, uuid


class PartitionData(Struct):
    partition: int = int32("0+")


class DeleteStateData(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: Sequence[PartitionData] = array(PartitionData, "0+")


class DeleteShareGroupStateRequest(Message, api=DELETE_SHARE_GROUP_STATE):
    group_id: str = string("0+")
    topics: Sequence[DeleteStateData] = array(DeleteStateData, "0+")


class PartitionResult(Struct):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+", default=None)


class DeleteStateResult(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: Sequence[PartitionResult] = array(PartitionResult, "0+")


class DeleteShareGroupStateResponse(Message, api=DELETE_SHARE_GROUP_STATE):
    results: Sequence[DeleteStateResult] = array(DeleteStateResult, "0+")
