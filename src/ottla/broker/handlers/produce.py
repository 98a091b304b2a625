"""Produce: validate and append record batches, each partition independently (rule A8).

A batch that takes long to validate is validated in a thread and appended afterwards. Its connection
serves nothing else meanwhile, so a client's batches stay in order, and appends them also if the
client leaves. After the append, an acknowledgement that has to wait does not hold up the requests
behind it, unless the request is so large that it is handled in pieces.

Most requests do not get here: ProduceFastPath serves them with one compiled call.
"""

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.produce_acks import ACK_BYTES, PARTITION_ACK_BYTES, node_endpoints
from ottla.broker.produce_fast_path import ProduceFastPath
from ottla.broker.replica_manager import ReplicaManager
from ottla.clock import Clock
from ottla.errors import ErrorCode, RequestError
from ottla.ids import BrokerId, PartitionIndex, TopicPartition
from ottla.log.appender import Appended
from ottla.log.shield import shielded
from ottla.metrics import ApiCounts
from ottla.protocol.conversation import LargeRequest, Request
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
from ottla.replication.partition import LeaderMoved, Partition
from ottla.replication.produce_purgatory import DelayedProduce
from ottla.transport.connection import Connection, DeferredResponse, Served
from ottla.transport.pending_acks import PendingAck

_WITH_HINTS: Final = 10  # the first version with leader hints (KIP-951)
_BY_ID: Final = 13  # the first version with topic ids


class _AckWait(NamedTuple):
    """An offset of a partition that must be flushed or replicated before the response is sent."""

    partition: Partition
    offset: int
    response: PartitionProduceResponse
    is_flush: bool


Waits = list[_AckWait]


# Kafka detects these errors before it opens the log, so the response has no log start offset.
_WITHOUT_START: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


PIECE: Final = 50
"""Partitions appended per time slice."""


class _Slow(NamedTuple):
    """A batch that is validated in a thread, and the response it belongs to."""

    topic: str
    data: PartitionProduceData
    responses: list[PartitionProduceResponse]
    at: int


Slow = dict[Partition, list[_Slow]]
"""Slow batches per partition, in append order."""


_NOT_YET: Final = PartitionProduceResponse(index=-1, error_code=-1, base_offset=-1)


class ProduceHandler:
    """Appends the batches of producers.

    Invariant: one large batch is decompressed at a time, so that any number of decompression bombs
    needs the memory of one.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        metadata_cache: MetadataCache,
        replica_manager: ReplicaManager,
        scheduler: CooperativeScheduler,
        counts: ApiCounts,
        fast_path: ProduceFastPath,
    ) -> None:
        self._clock = clock
        self._metadata_cache = metadata_cache
        self._replica_manager = replica_manager
        self._scheduler = scheduler
        self._counts = counts  # of Produce
        self._decompression_lock = asyncio.Lock()
        # What the fast path has appended of the request, before a write failed.
        self._appended = fast_path.appended

    def handle(self, request: Request, connection: Connection) -> Served:
        """Append; the response waits for replicas (acks=all) and for a flush (flush.messages)."""
        message = request.message
        assert isinstance(message, ProduceRequest)
        if message.acks not in (-1, 0, 1):
            refused = RequestError(
                ErrorCode.INVALID_REQUIRED_ACKS, f"acks={message.acks} is not valid: use -1, 0 or 1"
            )
            answer = ProduceResponse(
                responses=[self._refused(topic, refused) for topic in message.topic_data]
            )
            return _pending(answer, is_complete=True) if connection.has_pending_acks else answer
        if isinstance(request, LargeRequest):
            answer = ProduceResponse(responses=[])
            ack = None if message.acks == 0 else PendingAck(answer, 0)
            return DeferredResponse(self._handle_wide(request, answer, ack, connection), ack=ack)
        waits: Waits = []
        slow: Slow = {}
        responses = [
            self._append_topic(request, message, topic, waits, slow) for topic in message.topic_data
        ]
        answer = ProduceResponse(responses=responses)
        if message.acks == 0:
            if slow:
                return DeferredResponse(self._finish_unheard(request, answer, slow, connection))
            return _unheard(answer, connection)
        if slow:
            ack = _pending(answer)
            finishing = self._finish_slow(request, answer, ack, slow, waits, connection)
            return DeferredResponse(finishing, ack=ack)
        if waits or connection.has_pending_acks:
            ack = _pending(answer)
            self._acknowledge(request, answer, ack, waits, connection)
            return ack
        self._add_endpoints(answer, connection)
        return answer

    async def _handle_wide(
        self,
        request: Request,
        answer: ProduceResponse,
        ack: PendingAck | None,
        connection: Connection,
    ) -> None:
        """Append cooperatively, some partitions per time slice."""
        message = request.message
        assert isinstance(message, ProduceRequest)
        waits: Waits = []
        slow: Slow = {}
        turns = self._scheduler.new_loop()
        pieces = [
            self._append_topic(request, message, piece, waits, slow)
            async for piece in turns.over(
                piece for one in message.topic_data for piece in _pieces(one)
            )
        ]
        await self._append_all_slow(request, slow, waits)
        found = iter(pieces)
        answer.responses = [
            _joined([next(found) for _ in _pieces(topic)]) for topic in message.topic_data
        ]
        if ack is None:
            _unheard(answer, connection)
        else:
            self._acknowledge(request, answer, ack, waits, connection)

    def _append_topic(
        self,
        request: Request,
        message: ProduceRequest,
        topic: TopicProduceData,
        waits: Waits,
        slow: Slow,
    ) -> TopicProduceResponse:
        version, name = request.version, topic.name
        if version >= _BY_ID:
            try:
                name = self._metadata_cache.topic("", topic.topic_id).name
            except RequestError as error:
                return self._refused(topic, error)
        now_ms, acks = self._clock.now_ms(), message.acks
        leader_partition = self._replica_manager.leader_partition
        responses: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            if self._appended:
                responses.append(_appended(data, *self._appended.pop(0), acks, waits))
                continue
            try:
                partition = leader_partition(name, data.index)
            except RequestError as error:
                responses.append(self._failed(name, data, error, version))
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
                responses.append(self._failed(name, data, error, version))
                continue
            responses.append(_appended(data, partition, appended, acks, waits))
        return TopicProduceResponse(
            name=topic.name, topic_id=topic.topic_id, partition_responses=responses
        )

    async def _finish_slow(
        self,
        request: Request,
        answer: ProduceResponse,
        ack: PendingAck,
        slow: Slow,
        waits: Waits,
        connection: Connection,
    ) -> None:
        await shielded(self._append_all_slow(request, slow, waits))
        self._acknowledge(request, answer, ack, waits, connection)

    async def _finish_unheard(
        self,
        request: Request,
        answer: ProduceResponse,
        slow: Slow,
        connection: Connection,
    ) -> None:
        # The connection reads nothing meanwhile, so it does not matter if the client is gone.
        await shielded(self._append_all_slow(request, slow, []))
        _unheard(answer, connection)

    async def _append_all_slow(self, request: Request, slow: Slow, waits: Waits) -> None:
        for partition, ones in slow.items():
            for one in ones:
                async with self._decompression_lock:
                    response = await self._append_slow(request, partition, one, waits)
                one.responses[one.at] = response

    async def _append_slow(
        self, request: Request, partition: Partition, one: _Slow, waits: Waits
    ) -> PartitionProduceResponse:
        message, records = request.message, one.data.records
        assert isinstance(message, ProduceRequest)
        assert records is not None

        def is_led() -> None:
            if self._replica_manager.leader_partition(one.topic, one.data.index) is not partition:
                raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

        try:
            appended = await partition.append_in_thread(
                memoryview(records),
                is_led,
                produce_version=request.version,
                acks=message.acks,
                now_ms=self._clock.now_ms(),
            )
        except RequestError as error:
            return self._failed(one.topic, one.data, error, request.version)
        return _appended(one.data, partition, appended, message.acks, waits)

    def _acknowledge(
        self,
        request: Request,
        answer: ProduceResponse,
        ack: PendingAck,
        waits: Waits,
        connection: Connection,
    ) -> None:
        """Complete an acknowledgement when its partitions are flushed and replicated.

        As in Kafka, timeout.ms does not limit a flush.
        """
        message = request.message
        assert isinstance(message, ProduceRequest)

        def complete(failure: Exception | None = None) -> None:
            self._add_endpoints(answer, connection)
            ack.complete(failure)

        delayed = self._delayed(waits, request.version)
        if delayed is None:
            complete()
            return
        ack.on_cancel = delayed.cancel
        delayed.begin(complete, message.timeout_ms)

    def _delayed(
        self, waits: Waits, version: int
    ) -> DelayedProduce[PartitionProduceResponse] | None:
        """Return what waits for partitions; None if there is nothing to wait for."""
        delayed: DelayedProduce[PartitionProduceResponse] | None = None
        for partition, offset, response, is_flush in waits:
            try:
                # Other requests were served while a slow batch was validated.
                if not is_flush and partition.is_committed(offset):
                    continue
            except RequestError as error:
                self._set_error(version, response, error)
                continue
            delayed = delayed or DelayedProduce(partial(self._set_error, version))
            condition = partition.commit if is_flush else partition.commit_waiters
            delayed.wait_for(partition, condition, offset, response, is_limited=not is_flush)
        return delayed

    def _set_error(
        self, version: int, response: PartitionProduceResponse, error: RequestError
    ) -> None:
        self._counts.note_error(error.code)
        response.error_code = int(error.code)
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            response.error_message = error.message
            response.base_offset = -1
        # As in Kafka, the response of records that were not replicated keeps their offset.
        elif isinstance(error, LeaderMoved) and version >= _WITH_HINTS:
            response.current_leader = LeaderIdAndEpoch(
                leader_id=error.leader, leader_epoch=error.leader_epoch
            )

    def _add_endpoints(self, answer: ProduceResponse, connection: Connection) -> None:
        """Add the addresses of the leaders that the response names (KIP-951)."""
        leaders = [
            BrokerId(one.current_leader.leader_id)
            for topic in answer.responses
            for one in topic.partition_responses
            if one.current_leader is not None
        ]
        if leaders:
            found = self._metadata_cache.leader_addresses(leaders, connection.listener)
            answer.node_endpoints = node_endpoints(found)

    def _refused(self, topic: TopicProduceData, error: RequestError) -> TopicProduceResponse:
        return TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[self._response(data, error) for data in topic.partition_data],
        )

    def _failed(
        self, topic: str, data: PartitionProduceData, error: RequestError, version: int
    ) -> PartitionProduceResponse:
        response = self._response(data, error)
        partition = self._replica_manager.partitions.get(
            TopicPartition(topic, PartitionIndex(data.index))
        )
        looked_at = error.code is not ErrorCode.INVALID_RECORD or response.record_errors
        if partition is not None and looked_at and error.code not in _WITHOUT_START:
            response.log_start_offset = partition.log.log_start_offset
        if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and version >= _WITH_HINTS:
            hint = self._replica_manager.leader_hint(topic, data.index)
            if hint is not None:
                response.current_leader = LeaderIdAndEpoch(
                    leader_id=hint.leader, leader_epoch=hint.leader_epoch
                )
        return response

    def _response(
        self, data: PartitionProduceData, error: RequestError
    ) -> PartitionProduceResponse:
        self._counts.note_error(error.code)
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


def _pending(answer: ProduceResponse, *, is_complete: bool = False) -> PendingAck:
    partitions = sum(len(topic.partition_responses) for topic in answer.responses)
    size = ACK_BYTES + PARTITION_ACK_BYTES * partitions
    return PendingAck(answer, size, is_complete=is_complete)


def _unheard(answer: ProduceResponse, connection: Connection) -> None:
    if any(one.error_code for topic in answer.responses for one in topic.partition_responses):
        connection.close()  # with acks=0, closing is the only way to report an error


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


def _appended(
    data: PartitionProduceData,
    partition: Partition,
    appended: Appended,
    acks: int,
    waits: Waits,
) -> PartitionProduceResponse:
    response = PartitionProduceResponse(
        index=data.index,
        error_code=0,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.append_time,
        log_start_offset=partition.log.log_start_offset,
    )
    if partition.must_flush:
        waits.append(_AckWait(partition, partition.log.log_end_offset, response, is_flush=True))
    replicated = partition.in_sync is not None
    if acks == -1 and replicated and partition.high_watermark <= appended.last_offset:
        # A duplicate waits for the original, too (rule D1).
        waits.append(_AckWait(partition, appended.last_offset + 1, response, is_flush=False))
    return response
