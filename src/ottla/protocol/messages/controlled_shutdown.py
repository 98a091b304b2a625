"""ControlledShutdown: a broker asks the controller to move its leaderships."""

from collections.abc import Sequence

from ottla.protocol.apis import CONTROLLED_SHUTDOWN
from ottla.protocol.message import Message
from ottla.protocol.schema import Struct, array, int16, int32, int64, string


class ControlledShutdownRequest(Message, api=CONTROLLED_SHUTDOWN):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("2+", default=-1, ignorable=True)


class RemainingPartition(Struct):
    topic_name: str = string("0+")
    partition_index: int = int32("0+")


class ControlledShutdownResponse(Message, api=CONTROLLED_SHUTDOWN):
    error_code: int = int16("0+")
    remaining_partitions: Sequence[RemainingPartition] = array(RemainingPartition, "0+")
