"""LeaderAndIsr: the controller sends a broker the leaders and ISRs of its partitions."""

from collections.abc import Sequence

from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol.apis import LEADER_AND_ISR
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    INT32S,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
    uuid,
)


class LeaderAndIsrPartitionState(Struct):
    topic_name: str = string("0-1", default="", ignorable=True)
    partition_index: int = int32("0+")
    controller_epoch: int = int32("0+")
    leader: int = int32("0+")
    leader_epoch: int = int32("0+")
    isr: Sequence[int] = array(INT32S, "0+")
    partition_epoch: int = int32("0+")
    replicas: Sequence[int] = array(INT32S, "0+")
    adding_replicas: Sequence[int] = array(INT32S, "3+", default=(), ignorable=True)
    removing_replicas: Sequence[int] = array(INT32S, "3+", default=(), ignorable=True)
    is_new: bool = boolean("1+", default=False, ignorable=True)
    leader_recovery_state: int = int8("6+", default=0)


class LeaderAndIsrTopicState(Struct):
    topic_name: str = string("2+")
    topic_id: Uuid = uuid("5+", default=ZERO_UUID, ignorable=True)
    partition_states: Sequence[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState, "2+")


class LeaderAndIsrLiveLeader(Struct):
    broker_id: int = int32("0+")
    host_name: str = string("0+")
    port: int = int32("0+")


class LeaderAndIsrRequest(Message, api=LEADER_AND_ISR):
    controller_id: int = int32("0+")
    is_kraft_controller: bool = boolean("7+", default=False)
    controller_epoch: int = int32("0+")
    broker_epoch: int = int64("2+", default=-1, ignorable=True)
    type: int = int8("5+", default=0)
    ungrouped_partition_states: Sequence[LeaderAndIsrPartitionState] = array(
        LeaderAndIsrPartitionState, "0-1", default=()
    )
    topic_states: Sequence[LeaderAndIsrTopicState] = array(LeaderAndIsrTopicState, "2+", default=())
    live_leaders: Sequence[LeaderAndIsrLiveLeader] = array(LeaderAndIsrLiveLeader, "0+")


class LeaderAndIsrPartitionError(Struct):
    topic_name: str = string("0-4", default="", ignorable=True)
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class LeaderAndIsrTopicError(Struct):
    topic_id: Uuid = uuid("5+")
    partition_errors: Sequence[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError, "5+")


class LeaderAndIsrResponse(Message, api=LEADER_AND_ISR):
    error_code: int = int16("0+")
    partition_errors: Sequence[LeaderAndIsrPartitionError] = array(
        LeaderAndIsrPartitionError, "0-4", default=()
    )
    topics: Sequence[LeaderAndIsrTopicError] = array(LeaderAndIsrTopicError, "5+", default=())
