"""A batch of a producer, from its first record to the broker's last word on it.

Invariant: each record is settled once: with its offset, or with the error that ended its batch. A
batch that was split is settled by its parts, and whoever asks about a record of it is told by the
part that has the record.
"""

import asyncio
from collections.abc import Generator, Sequence
from typing import Any, Final, NamedTuple

from ottla.client.produce.identity import NOBODY
from ottla.errors import RequestError
from ottla.ids import NO_SEQUENCE, TopicPartition
from ottla.records import NO_TIMESTAMP, BatchBuilder
from ottla.records.kernel import HEADER_SIZE, RecordOfBatch, RecordReader

NO_OFFSET: Final = -1
"""Where the broker did not say: with acks=0, and for a batch that it had already."""

SEQUENCE_MASK: Final = 0x7FFF_FFFF


class Written(NamedTuple):
    """Where a record is."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """When the broker appended it, if the topic says LogAppendTime; else -1."""


class PendingBatch:
    """Records of one partition that leave together."""

    __slots__ = (
        "_base_offset",
        "_failure",
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
        self.order = order  # among those of its partition; a part has its batch's and its own
        self.builder = builder
        self.memory = memory
        self.began_s = began_s
        self.tries = 0
        self.not_before_s = 0.0  # a retry waits
        self.identity = NOBODY
        self.sequence = int(NO_SEQUENCE)
        self.is_unsure = False  # it was sent, and whether it was appended nobody said
        self.is_settled = False
        self.awaited = False  # somebody asked what became of it
        self.parts: Sequence[PendingBatch] = ()
        self._waiting: list[asyncio.Future[None]] = []  # one for each who waits
        self._base_offset = NO_OFFSET
        self._time_ms = NO_TIMESTAMP
        self._failure: RequestError | None = None

    def bytes_to_send(self, *, transactional: bool) -> bytes:
        """The batch as the broker gets it."""
        assert not self.is_settled
        return self.builder.build(
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=self.sequence,
            transactional=transactional,
        )

    def settle(self, base_offset: int, time_ms: int) -> None:
        """The broker has it."""
        self._base_offset, self._time_ms = base_offset, time_ms
        self._finish()

    def fail(self, failure: RequestError) -> None:
        """It will not come to the broker, as far as one knows."""
        self._failure = failure
        self._finish()

    def split(self) -> "Sequence[PendingBatch]":
        """Let smaller batches take its place: in its order, with its numbers and its memory."""
        assert self.builder.count > 1
        builders = _halves(self.builder)
        sequence, parts = self.sequence, list[PendingBatch]()
        for number, builder in enumerate(builders):
            memory = self.memory * (number + 1) // len(builders)
            memory -= self.memory * number // len(builders)
            part = PendingBatch(
                self.partition, (*self.order, number), builder, memory, self.began_s
            )
            part.tries, part.identity, part.awaited = self.tries, self.identity, self.awaited
            if sequence >= 0:
                part.sequence = sequence
                sequence = (sequence + builder.count) & SEQUENCE_MASK
            parts.append(part)
        self.parts = parts
        self._finish()
        return parts

    @property
    def failure(self) -> RequestError | None:
        """Why it was not written, if it was not."""
        return self._failure

    async def settled(self) -> None:
        """Wait until it is settled, in whatever way."""
        await self.settled_or_split()
        for part in self.parts:
            await part.settled()

    async def settled_or_split(self) -> None:
        """Wait until it is settled, or others took its place."""
        if not self.is_settled:
            coming: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(coming)
            await coming

    def holder(self, index: int) -> "tuple[PendingBatch, int]":
        """The batch that has a record of this one now, and which of its records that is."""
        batch = self
        while batch.parts:
            for part in batch.parts:
                if index < part.builder.count:
                    batch = part
                    break
                index -= part.builder.count
        return batch, index

    def place(self, index: int) -> Written:
        """Where a record of it is; raises what went wrong."""
        assert self.is_settled
        assert not self.parts
        if self._failure is not None:
            raise self._failure
        known = self._base_offset != NO_OFFSET
        offset = self._base_offset + index if known else NO_OFFSET
        return Written(*self.partition, offset, self._time_ms)

    def _finish(self) -> None:
        assert not self.is_settled, "a batch is settled once"
        self.is_settled = True
        self.builder.let_go()  # who keeps the word on a record does not keep its bytes
        waiting, self._waiting = self._waiting, []
        for coming in waiting:
            if not coming.done():
                coming.set_result(None)


class Ack(RecordOfBatch):
    """What becomes of a record: await it to learn where it is, or why it is not."""

    __slots__ = ()
    _batch: PendingBatch

    def __await__(self) -> Generator[Any, None, Written]:
        while True:
            batch, index = self._batch.holder(self._index)
            batch.awaited = True
            if batch.is_settled:
                return batch.place(index)
            # It may be split before it is settled: then a part of it has the record.
            yield from batch.settled_or_split().__await__()

    def known(self) -> Written | None:
        """Where the record is; None as long as nobody knows. Any thread may ask."""
        batch, index = self._batch.holder(self._index)
        batch.awaited = True
        # It may have been split since the line before the last.
        return batch.place(index) if batch.is_settled and not batch.parts else None

    @property
    def done(self) -> bool:
        """Whether it is known already."""
        return self._batch.holder(self._index)[0].is_settled


def _halves(builder: BatchBuilder) -> list[BatchBuilder]:
    """The records of a builder in others of half its size: two, or more if some are large."""
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
