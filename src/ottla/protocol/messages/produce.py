"""Produce: append record batches to partitions."""

from collections.abc import Sequence

from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol.apis import PRODUCE
from ottla.protocol.message import Message
from ottla.protocol.primitives import Buffer
from ottla.protocol.schema import (
    Struct,
    array,
    int16,
    int32,
    int64,
    nullable_records,
    nullable_string,
    string,
    tagged_struct,
    uuid,
)


class PartitionProduceData(Struct):
    index: int = int32("0+")
    records: Buffer | None = nullable_records("0+")


class TopicProduceData(Struct):
    name: str = string("0-12", default="", ignorable=True)
    topic_id: Uuid = uuid("13+", default=ZERO_UUID, ignorable=True)
    partition_data: Sequence[PartitionProduceData] = array(PartitionProduceData, "0+")


class ProduceRequest(Message, api=PRODUCE):
    transactional_id: str | None = nullable_string("3+", default=None)
    acks: int = int16("0+")
    timeout_ms: int = int32("0+")
    topic_data: Sequence[TopicProduceData] = array(TopicProduceData, "0+")


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = int32("8+")
    batch_index_error_message: str | None = nullable_string("8+", default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


class PartitionProduceResponse(Struct):
    index: int = int32("0+")
    error_code: int = int16("0+")
    base_offset: int = int64("0+")
    log_append_time_ms: int = int64("2+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: Sequence[BatchIndexAndErrorMessage] = array(
        BatchIndexAndErrorMessage, "8+", default=(), ignorable=True
    )
    error_message: str | None = nullable_string("8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch | None = tagged_struct(
        LeaderIdAndEpoch, "10+", default=None, tag=0
    )


class TopicProduceResponse(Struct):
    name: str = string("0-12", default="", ignorable=True)
    topic_id: Uuid = uuid("13+", default=ZERO_UUID, ignorable=True)
    partition_responses: Sequence[PartitionProduceResponse] = array(PartitionProduceResponse, "0+")


class NodeEndpoint(Struct):
    node_id: int = int32("10+")
    host: str = string("10+")
    port: int = int32("10+")
    rack: str | None = nullable_string("10+", default=None)


class ProduceResponse(Message, api=PRODUCE):
    responses: Sequence[TopicProduceResponse] = array(TopicProduceResponse, "0+")
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    node_endpoints: Sequence[NodeEndpoint] = array(NodeEndpoint, "10+", default=(), tag=0)
