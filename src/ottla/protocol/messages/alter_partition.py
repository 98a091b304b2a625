"""AlterPartition: a leader asks the controller to change the ISR of a partition."""

from collections.abc import Sequence

from ottla.ids import Uuid
from ottla.protocol.apis import ALTER_PARTITION
from ottla.protocol.message import Message
from ottla.protocol.schema import INT32S, Struct, array, int8, int16, int32, int64, uuid


class BrokerState(Struct):
    broker_id: int = int32("3+")
    broker_epoch: int = int64("3+", default=-1)


class PartitionData(Struct):
    partition_index: int = int32("0+")
    leader_epoch: int = int32("0+")
    new_isr: Sequence[int] = array(INT32S, "0-2", default=())
    new_isr_with_epochs: Sequence[BrokerState] = array(BrokerState, "3+", default=())
    leader_recovery_state: int = int8("1+", default=0)
    partition_epoch: int = int32("0+")


class TopicData(Struct):
    topic_id: Uuid = uuid("2+", ignorable=True)
    partitions: Sequence[PartitionData] = array(PartitionData, "0+")


class AlterPartitionRequest(Message, api=ALTER_PARTITION):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    topics: Sequence[TopicData] = array(TopicData, "0+")


class AlterPartitionResponsePartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    isr: Sequence[int] = array(INT32S, "0+")
    leader_recovery_state: int = int8("1+", default=0, ignorable=True)
    partition_epoch: int = int32("0+")


class AlterPartitionResponseTopicData(Struct):
    topic_id: Uuid = uuid("2+", ignorable=True)
    partitions: Sequence[AlterPartitionResponsePartitionData] = array(
        AlterPartitionResponsePartitionData, "0+"
    )


class AlterPartitionResponse(Message, api=ALTER_PARTITION):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    topics: Sequence[AlterPartitionResponseTopicData] = array(AlterPartitionResponseTopicData, "0+")
