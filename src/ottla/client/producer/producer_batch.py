"""A batch of a producer, from its first record to its acknowledgement.

Invariant: each record is settled once: with its offset or with the error of its batch. A split
batch is settled by its parts, and a record is looked up in the part that has it.
"""

import asyncio
from collections.abc import Generator, Sequence
from typing import Any, Final, NamedTuple

from ottla.client.producer.identity import NOBODY
from ottla.errors import ErrorCode, RequestError
from ottla.ids import NO_SEQUENCE, TopicPartition
from ottla.protocol.primitives import Buffer
from ottla.records import HEADER_SIZE, NO_TIMESTAMP, BatchBuilder, RecordReader, RecordRef
from ottla.records.errors import InvalidRecords

NO_OFFSET: Final = -1
"""The broker did not return an offset: acks=0, or a duplicate it does not remember."""

SEQUENCE_MASK: Final = 0x7FFF_FFFF


class Written(NamedTuple):
    """Where a record was written."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """The append time if the topic uses LogAppendTime, else -1."""


class ProducerBatch:
    """Records of one partition that are sent together."""

    __slots__ = (
        "_base_offset",
        "_failure",
        "_is_built",
        "_time_ms",
        "_waiting",
        "awaited",
        "began_s",
        "builder",
        "identity",
        "is_settled",
        "is_unsure",
        "memory",
        "not_before_s",
        "order",
        "partition",
        "parts",
        "refusal",
        "sequence",
        "tries",
    )

    def __init__(
        self,
        partition: TopicPartition,
        order: tuple[int, ...],
        builder: BatchBuilder,
        memory: int,
        began_s: float,
    ) -> None:
        self.partition = partition
        self.order = order  # within its partition; a part has the order of its batch and its own
        self.builder = builder
        self.memory = memory
        self.began_s = began_s
        self.tries = 0
        self.not_before_s = 0.0  # the retry backoff
        self.refusal: RequestError | None = None  # the error of the last attempt
        self.identity = NOBODY
        self.sequence = int(NO_SEQUENCE)
        self.is_unsure = False  # it may have been appended: no response, or an error after it
        self.is_settled = False
        self.awaited = False  # a caller waits for its result
        self.parts: Sequence[ProducerBatch] = ()
        self._is_built = False
        self._waiting: list[asyncio.Future[None]] = []  # one per waiting caller
        self._base_offset = NO_OFFSET
        self._time_ms = NO_TIMESTAMP
        self._failure: RequestError | None = None

    def bytes_to_send(self, *, transactional: bool) -> Buffer:
        """The encoded batch, for an attempt to send it."""
        assert not self.is_settled
        # A retry may have another header. The bytes of the first attempt do not change: a closed
        # connection may still have them.
        is_first = not self._is_built
        self._is_built = True
        build = self.builder.build_in_place if is_first else self.builder.build
        return build(
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=self.sequence,
            transactional=transactional,
        )

    def settle(self, base_offset: int, time_ms: int) -> None:
        """Settle with the broker's acknowledgement."""
        self._base_offset, self._time_ms = base_offset, time_ms
        self._finish()

    def fail(self, failure: RequestError) -> None:
        """Settle with an error."""
        self._failure = failure
        self._finish()

    def split(self) -> "Sequence[ProducerBatch]":
        """Replace it by smaller batches with its order, sequence numbers and memory."""
        assert self.builder.count > 1
        builders = _halves(self.builder)
        sequence, parts = self.sequence, list[ProducerBatch]()
        for number, builder in enumerate(builders):
            memory = self.memory * (number + 1) // len(builders)
            memory -= self.memory * number // len(builders)
            part = ProducerBatch(
                self.partition, (*self.order, number), builder, memory, self.began_s
            )
            part.tries, part.identity, part.awaited = self.tries, self.identity, self.awaited
            if sequence >= 0:
                part.sequence = sequence
                sequence = (sequence + builder.count) & SEQUENCE_MASK
            parts.append(part)
        self.parts = parts
        self.builder.release()
        self._finish()
        return parts

    @property
    def failure(self) -> RequestError | None:
        """The error, if it failed."""
        return self._failure

    async def settled(self) -> None:
        """Wait until it is settled."""
        await self.settled_or_split()
        for part in self.parts:
            await part.settled()

    async def settled_or_split(self) -> None:
        """Wait until it is settled or split."""
        if not self.is_settled:
            await self.next_change()

    def next_change(self) -> "asyncio.Future[None]":
        """Return a future that is done when the batch is settled or split."""
        assert not self.is_settled
        coming: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(coming)
        return coming

    def holder(self, index: int) -> "tuple[ProducerBatch, int]":
        """Return the batch that has a record of this one now, and the index in it."""
        batch = self
        while batch.parts:
            for part in batch.parts:
                if index < part.builder.count:
                    batch = part
                    break
                index -= part.builder.count
        return batch, index

    def written(self, index: int) -> Written:
        """Return where a record was written; raises its error."""
        assert self.is_settled
        assert not self.parts
        if self._failure is not None:
            raise self._failure_of(index, self._failure)
        known = self._base_offset != NO_OFFSET
        offset = self._base_offset + index if known else NO_OFFSET
        return Written(*self.partition, offset, self._time_ms)

    def _failure_of(self, index: int, failure: RequestError) -> RequestError:
        """Return the error of a record: its own, or that of the batch if the record is valid."""
        errors = failure.record_errors if isinstance(failure, InvalidRecords) else ()
        message = dict(errors).get(index)
        if message is None:
            return failure
        # The code of the response is that of one invalid record, as in Kafka.
        code = failure.code if len(errors) == 1 else ErrorCode.INVALID_RECORD
        described = f"{self.partition}: record {index} of the batch: {message}"
        return InvalidRecords(code, described, [(index, message)])

    def _finish(self) -> None:
        assert not self.is_settled, "a batch is settled once"
        self.is_settled = True
        waiting, self._waiting = self._waiting, []
        for coming in waiting:
            if not coming.done():
                coming.set_result(None)


class Ack(RecordRef):
    """The result of a record: await it for its offset or its error."""

    __slots__ = ()
    _batch: ProducerBatch

    def __await__(self) -> Generator[Any, None, Written]:
        while True:
            batch, index = self._batch, self._index
            if batch.parts:
                batch, index = batch.holder(index)
            batch.awaited = True
            if batch.is_settled:
                return batch.written(index)
            # It may be split before it is settled; then a part has the record.
            yield from batch.next_change()

    def known(self) -> Written | None:
        """Return where the record is; None while unknown. Thread-safe."""
        batch, index = self._batch.holder(self._index)
        batch.awaited = True
        # It may have been split in the meantime.
        return batch.written(index) if batch.is_settled and not batch.parts else None

    @property
    def done(self) -> bool:
        """Whether the result is known."""
        return self._batch.holder(self._index)[0].is_settled


def _halves(builder: BatchBuilder) -> list[BatchBuilder]:
    """Distribute the records of a builder over builders of half its size."""
    limit = HEADER_SIZE + max(1, (builder.size - HEADER_SIZE) // 2)
    encoded = memoryview(builder.encoded())[HEADER_SIZE:]
    last = builder.count - 1
    records = RecordReader(encoded, builder.count, last, 0, builder.base_timestamp)
    halves = [BatchBuilder(limit, builder.compression, builder.level)]
    for record in records:
        content = (record.timestamp, record.key, record.value, record.headers)
        if not halves[-1].append(*content):
            halves.append(BatchBuilder(limit, builder.compression, builder.level))
            halves[-1].append(*content)
    return halves
