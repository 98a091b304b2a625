"""DescribeProducers: the active producers of partitions."""

from collections.abc import Sequence

from ottla.protocol.apis import DESCRIBE_PRODUCERS
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    INT32S,
    Struct,
    array,
    int16,
    int32,
    int64,
    nullable_string,
    string,
)


class TopicRequest(Struct):
    name: str = string("0+")
    partition_indexes: Sequence[int] = array(INT32S, "0+")


class DescribeProducersRequest(Message, api=DESCRIBE_PRODUCERS):
    topics: Sequence[TopicRequest] = array(TopicRequest, "0+")


class ProducerState(Struct):
    producer_id: int = int64("0+")
    producer_epoch: int = int32("0+")
    last_sequence: int = int32("0+", default=-1)
    last_timestamp: int = int64("0+", default=-1)
    coordinator_epoch: int = int32("0+")
    current_txn_start_offset: int = int64("0+", default=-1)


class PartitionResponse(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+", default=None)
    active_producers: Sequence[ProducerState] = array(ProducerState, "0+")


class TopicResponse(Struct):
    name: str = string("0+")
    partitions: Sequence[PartitionResponse] = array(PartitionResponse, "0+")


class DescribeProducersResponse(Message, api=DESCRIBE_PRODUCERS):
    throttle_time_ms: int = int32("0+")
    topics: Sequence[TopicResponse] = array(TopicResponse, "0+")
