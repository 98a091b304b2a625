"""StopReplica: the controller tells a broker to stop or delete replicas."""

from collections.abc import Sequence

from ottla.protocol.apis import STOP_REPLICA
from ottla.protocol.message import Message
from ottla.protocol.schema import INT32S, Struct, array, boolean, int16, int32, int64, string


class StopReplicaPartitionV0(Struct):
    topic_name: str = string("0")
    partition_index: int = int32("0")


class StopReplicaTopicV1(Struct):
    name: str = string("1-2")
    partition_indexes: Sequence[int] = array(INT32S, "1-2")


class StopReplicaPartitionState(Struct):
    partition_index: int = int32("3+")
    leader_epoch: int = int32("3+", default=-1)
    delete_partition: bool = boolean("3+")


class StopReplicaTopicState(Struct):
    topic_name: str = string("3+")
    partition_states: Sequence[StopReplicaPartitionState] = array(StopReplicaPartitionState, "3+")


class StopReplicaRequest(Message, api=STOP_REPLICA):
    controller_id: int = int32("0+")
    is_kraft_controller: bool = boolean("4+", default=False)
    controller_epoch: int = int32("0+")
    broker_epoch: int = int64("1+", default=-1, ignorable=True)
    delete_partitions: bool = boolean("0-2", default=False)
    ungrouped_partitions: Sequence[StopReplicaPartitionV0] = array(
        StopReplicaPartitionV0, "0", default=()
    )
    topics: Sequence[StopReplicaTopicV1] = array(StopReplicaTopicV1, "1-2", default=())
    topic_states: Sequence[StopReplicaTopicState] = array(StopReplicaTopicState, "3+", default=())


class StopReplicaPartitionError(Struct):
    topic_name: str = string("0+")
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class StopReplicaResponse(Message, api=STOP_REPLICA):
    error_code: int = int16("0+")
    partition_errors: Sequence[StopReplicaPartitionError] = array(StopReplicaPartitionError, "0+")
