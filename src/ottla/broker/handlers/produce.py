"""Produce: validate and append record batches, each partition independently (rule A8).

A batch that takes long to validate is validated in a thread and appended afterwards. Its connection
serves nothing else meanwhile, so a client's batches stay in order.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final, NamedTuple

from ottla.broker.cooperative import CooperativeLoop
from ottla.broker.state import BrokerState
from ottla.errors import ErrorCode, RequestError
from ottla.ids import PartitionIndex, TopicPartition
from ottla.log.appender import Appended
from ottla.protocol.apis import PRODUCE
from ottla.protocol.conversation import LargeRequest, Request, Response
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
from ottla.records.errors import InvalidRecords, WouldBlock
from ottla.replication.partition import Partition
from ottla.transport.connection import Connection, DeferredResponse

_WITH_HINTS: Final = 10  # the first version with leader hints (KIP-951)
_BY_ID: Final = 13  # the first version with topic ids

Unsafe = list[tuple[Partition, PartitionProduceResponse]]
"""Partitions to flush before their responses are sent."""


# Kafka detects these errors before it opens the log, so the response has no log start offset.
_WITHOUT_START: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


def handle(
    state: BrokerState, request: Request, connection: Connection
) -> Response | DeferredResponse | None:
    """Append; the response waits for a flush if flush.messages requires one."""
    message = request.message
    assert isinstance(message, ProduceRequest)
    if message.acks not in (-1, 0, 1):
        refused = RequestError(
            ErrorCode.INVALID_REQUIRED_ACKS, f"acks={message.acks} is not valid: use -1, 0 or 1"
        )
        return ProduceResponse(
            responses=[_refused(state, topic, refused) for topic in message.topic_data]
        )
    if isinstance(request, LargeRequest):
        return DeferredResponse(_handle_wide(state, request, message, connection))
    unsafe: Unsafe = []
    slow: Slow = {}
    responses = [
        _append_topic(state, request, message, topic, unsafe, slow) for topic in message.topic_data
    ]
    answer = ProduceResponse(responses=responses)
    if message.acks == 0:
        if slow:
            return DeferredResponse(_finish_unheard(state, request, answer, slow, connection))
        return _unheard(answer, connection)
    if slow or unsafe:
        return DeferredResponse(_finish(state, request, answer, slow, unsafe))
    return answer


def _unheard(answer: ProduceResponse, connection: Connection) -> None:
    if any(one.error_code for topic in answer.responses for one in topic.partition_responses):
        connection.close()  # with acks=0, closing is the only way to report an error


PIECE: Final = 50
"""Partitions appended per time slice."""


async def _handle_wide(
    state: BrokerState, request: Request, message: ProduceRequest, connection: Connection
) -> Response | None:
    """Append cooperatively, some partitions per time slice."""
    unsafe: Unsafe = []
    slow: Slow = {}
    turns = CooperativeLoop(state)
    responses = [
        _append_topic(state, request, message, piece, unsafe, slow)
        async for piece in turns.over(piece for one in message.topic_data for piece in _pieces(one))
    ]
    answer = ProduceResponse(responses=responses)
    if message.acks == 0:
        return await _finish_unheard(state, request, answer, slow, connection)
    await _finish(state, request, answer, slow, unsafe)
    found = iter(responses)
    answer.responses = [
        _joined([next(found) for _ in _pieces(topic)]) for topic in message.topic_data
    ]
    return answer


def _pieces(topic: TopicProduceData) -> Iterable[TopicProduceData]:
    data = topic.partition_data
    if len(data) <= PIECE:
        return (topic,)
    return (
        TopicProduceData(
            name=topic.name, topic_id=topic.topic_id, partition_data=data[start : start + PIECE]
        )
        for start in range(0, len(data), PIECE)
    )


def _joined(pieces: Sequence[TopicProduceResponse]) -> TopicProduceResponse:
    first = pieces[0]
    if len(pieces) > 1:
        first.partition_responses = [*chain(*(one.partition_responses for one in pieces))]
    return first


class _Slow(NamedTuple):
    """A batch that is validated in a thread, and the response it belongs to."""

    topic: str
    data: PartitionProduceData
    responses: list[PartitionProduceResponse]
    at: int


Slow = dict[Partition, list[_Slow]]
"""Slow batches per partition, in append order."""


def _append_topic(
    state: BrokerState,
    request: Request,
    message: ProduceRequest,
    topic: TopicProduceData,
    unsafe: Unsafe,
    slow: Slow,
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
            partition = state.leader_partition(name, data.index)
        except RequestError as error:
            responses.append(_failed(state, name, data, error, version))
            continue
        try:
            records = data.records
            if records is None:
                raise RequestError(ErrorCode.INVALID_RECORD, "the request contains no records")
            if partition in slow:
                raise WouldBlock  # must stay behind the batch before it
            appended = partition.append(
                memoryview(records), produce_version=version, acks=acks, now_ms=now_ms
            )
        except WouldBlock:
            one = _Slow(name, data, responses, len(responses))
            slow.setdefault(partition, []).append(one)
            responses.append(_NOT_YET)
            continue
        except RequestError as error:
            responses.append(_failed(state, name, data, error, version))
            continue
        responses.append(_appended(data, partition, appended, unsafe))
    return TopicProduceResponse(
        name=topic.name, topic_id=topic.topic_id, partition_responses=responses
    )


_NOT_YET: Final = PartitionProduceResponse(index=-1, error_code=-1, base_offset=-1)


def _appended(
    data: PartitionProduceData, partition: Partition, appended: Appended, unsafe: Unsafe
) -> PartitionProduceResponse:
    response = PartitionProduceResponse(
        index=data.index,
        error_code=0,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.append_time,
        log_start_offset=partition.log.log_start_offset,
    )
    if partition.must_flush:
        unsafe.append((partition, response))
    return response


async def _finish(
    state: BrokerState,
    request: Request,
    answer: ProduceResponse,
    slow: Slow,
    unsafe: Unsafe,
) -> Response:
    await _append_all_slow(state, request, slow, unsafe)
    return await _when_durable(state, answer, unsafe)


async def _finish_unheard(
    state: BrokerState,
    request: Request,
    answer: ProduceResponse,
    slow: Slow,
    connection: Connection,
) -> None:
    # The connection reads nothing meanwhile, so it does not matter if the client is gone.
    await _append_all_slow(state, request, slow, [])
    _unheard(answer, connection)


async def _append_all_slow(
    state: BrokerState, request: Request, slow: Slow, unsafe: Unsafe
) -> None:
    for partition, ones in slow.items():
        for one in ones:
            async with state.beside:
                response = await _append_slow(state, request, partition, one, unsafe)
            one.responses[one.at] = response


async def _append_slow(
    state: BrokerState, request: Request, partition: Partition, one: _Slow, unsafe: Unsafe
) -> PartitionProduceResponse:
    message, records = request.message, one.data.records
    assert isinstance(message, ProduceRequest)
    assert records is not None

    def is_led() -> None:
        if state.leader_partition(one.topic, one.data.index) is not partition:
            raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    try:
        appended = await partition.append_in_thread(
            memoryview(records),
            is_led,
            produce_version=request.version,
            acks=message.acks,
            now_ms=state.clock.now_ms(),
        )
    except RequestError as error:
        return _failed(state, one.topic, one.data, error, request.version)
    return _appended(one.data, partition, appended, unsafe)


async def _when_durable(state: BrokerState, answer: ProduceResponse, unsafe: Unsafe) -> Response:
    async for partition, response in CooperativeLoop(state).over(unsafe):
        try:
            await partition.durable(partition.log.log_end_offset)
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
