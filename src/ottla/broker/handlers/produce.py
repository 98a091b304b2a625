"""Produce: records are checked and appended, each partition for itself (rule A8)."""

from typing import Final

from ottla.broker.state import BrokerState
from ottla.errors import ErrorCode, RequestError
from ottla.ids import PartitionIndex, TopicPartition
from ottla.protocol.apis import PRODUCE
from ottla.protocol.conversation import Answer, Request
from ottla.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.records.errors import InvalidRecords
from ottla.replication.partition import Partition
from ottla.transport.connection import Connection, Later

_WITH_HINTS: Final = 10  # the version from which a client is told of the leader (KIP-951)
_BY_ID: Final = 13  # the version from which topics are named by their ids

Unsafe = list[tuple[Partition, PartitionProduceResponse]]
"""What was appended and has to reach the device before it is acknowledged."""


# Kafka finds these before it looks at the log.
_WITHOUT_START: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


def handle(state: BrokerState, request: Request, connection: Connection) -> Answer | Later | None:
    """Append; the answer waits for the device where flush.messages says so."""
    message = request.message
    assert isinstance(message, ProduceRequest)
    if message.acks not in (-1, 0, 1):
        refused = RequestError(
            ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {message.acks}, it can be -1, 0 or 1"
        )
        return ProduceResponse(
            responses=[_refused(state, topic, refused) for topic in message.topic_data]
        )
    unsafe: Unsafe = []
    responses = [
        _append_topic(state, request, message, topic, unsafe) for topic in message.topic_data
    ]
    answer = ProduceResponse(responses=responses)
    if message.acks == 0:
        if any(one.error_code for topic in responses for one in topic.partition_responses):
            connection.close()  # the only way to tell a client that does not listen
        return None
    return Later(_when_durable(state, answer, unsafe)) if unsafe else answer


def _append_topic(
    state: BrokerState,
    request: Request,
    message: ProduceRequest,
    topic: TopicProduceData,
    unsafe: Unsafe,
) -> TopicProduceResponse:
    version, name = request.version, topic.name
    if version >= _BY_ID:
        try:
            name = state.topic("", topic.topic_id).name
        except RequestError as error:
            return _refused(state, topic, error)
    now_ms, acks = state.clock.now_ms(), message.acks
    responses: list[PartitionProduceResponse] = []
    for data in topic.partition_data:
        try:
            partition = state.led(name, data.index)
            records = data.records
            if records is None:
                raise RequestError(ErrorCode.INVALID_RECORD, "there are no records")
            appended = partition.append(
                memoryview(records), produce_version=version, acks=acks, now_ms=now_ms
            )
        except RequestError as error:
            responses.append(_failed(state, name, data, error, version))
            continue
        response = PartitionProduceResponse(
            index=data.index,
            error_code=0,
            base_offset=appended.base_offset,
            log_append_time_ms=appended.append_time,
            log_start_offset=partition.log.log_start_offset,
        )
        if partition.must_flush:
            unsafe.append((partition, response))
        responses.append(response)
    return TopicProduceResponse(
        name=topic.name, topic_id=topic.topic_id, partition_responses=responses
    )


async def _when_durable(state: BrokerState, answer: ProduceResponse, unsafe: Unsafe) -> Answer:
    for partition, response in unsafe:
        try:
            await partition.durable(partition.log.next_offset)
        except RequestError as error:
            state.requests[PRODUCE.key].note_error(error.code)
            response.error_code = int(error.code)
            response.error_message = error.message
            response.base_offset = -1
    return answer


def _refused(
    state: BrokerState, topic: TopicProduceData, error: RequestError
) -> TopicProduceResponse:
    return TopicProduceResponse(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_responses=[_response(state, data, error) for data in topic.partition_data],
    )


def _failed(
    state: BrokerState, topic: str, data: PartitionProduceData, error: RequestError, version: int
) -> PartitionProduceResponse:
    response = _response(state, data, error)
    partition = state.partitions.get(TopicPartition(topic, PartitionIndex(data.index)))
    looked_at = error.code is not ErrorCode.INVALID_RECORD or response.record_errors
    if partition is not None and looked_at and error.code not in _WITHOUT_START:
        response.log_start_offset = partition.log.log_start_offset
    if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and version >= _WITH_HINTS:
        hint = state.leader_hint(topic, data.index)
        if hint is not None:
            response.current_leader = LeaderIdAndEpoch(
                leader_id=hint.leader, leader_epoch=hint.leader_epoch
            )
    return response


def _response(
    state: BrokerState, data: PartitionProduceData, error: RequestError
) -> PartitionProduceResponse:
    state.requests[PRODUCE.key].note_error(error.code)
    at_fault = error.record_errors if isinstance(error, InvalidRecords) else ()
    return PartitionProduceResponse(
        index=data.index,
        error_code=int(error.code),
        base_offset=-1,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
            for index, text in at_fault
        ],
        error_message=error.message,
    )
