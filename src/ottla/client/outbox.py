"""The outbox of a producer: records in batches, by partition, until the broker has them.

Invariant: the batches of a partition leave in the order in which they were begun, and each record
is settled once: with its offset, or with the error that ended its batch. Memory is taken when a
batch begins and given back when it is settled; who finds none waits, first come, first served.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, NamedTuple

from ottla.client.identity import NOBODY, Identity
from ottla.errors import RequestError
from ottla.ids import NO_SEQUENCE, TopicPartition
from ottla.records import NO_TIMESTAMP, BatchBuilder, Compression
from ottla.transport.channel import TimedOut

Headers = Sequence[tuple[str, bytes | None]]

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
        "_done",
        "_failure",
        "_time_ms",
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
        "sequence",
        "tries",
    )

    def __init__(
        self,
        partition: TopicPartition,
        order: int,
        builder: BatchBuilder,
        memory: int,
        began_s: float,
    ) -> None:
        self.partition = partition
        self.order = order  # among those of its partition
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
        self._done: asyncio.Future[None] | None = None
        self._base_offset = NO_OFFSET
        self._time_ms = NO_TIMESTAMP
        self._failure: RequestError | None = None

    def bytes_to_send(self) -> bytes:
        """The batch as the broker gets it."""
        return self.builder.build(
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=self.sequence,
        )

    def settle(self, base_offset: int, time_ms: int) -> None:
        """The broker has it."""
        self._base_offset, self._time_ms = base_offset, time_ms
        self._finish()

    def fail(self, failure: RequestError) -> None:
        """It will not come to the broker, as far as one knows."""
        self._failure = failure
        self._finish()

    @property
    def failure(self) -> RequestError | None:
        """Why it was not written, if it was not."""
        return self._failure

    async def settled(self) -> None:
        """Wait until it is settled, in whatever way."""
        if not self.is_settled:
            if self._done is None:
                self._done = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._done)

    def place(self, index: int) -> Written:
        """Where a record of it is; raises what went wrong."""
        assert self.is_settled
        self.awaited = True
        if self._failure is not None:
            raise self._failure
        known = self._base_offset != NO_OFFSET
        offset = self._base_offset + index if known else NO_OFFSET
        return Written(*self.partition, offset, self._time_ms)

    def _finish(self) -> None:
        assert not self.is_settled, "a batch is settled once"
        self.is_settled = True
        if self._done is not None and not self._done.done():
            self._done.set_result(None)


class Ack:
    """What becomes of a record: await it to learn where it is, or why it is not."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: PendingBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    def __await__(self) -> Generator[Any, None, Written]:
        self._batch.awaited = True
        if not self._batch.is_settled:
            yield from self._batch.settled().__await__()
        return self._batch.place(self._index)

    @property
    def done(self) -> bool:
        """Whether it is known already."""
        return self._batch.is_settled


class PartitionQueue:
    """The batches of one partition: those that wait, and those that are on their way."""

    __slots__ = (
        "_begun",
        "_closed",
        "has_gap",
        "identity",
        "in_flight",
        "next_sequence",
        "open",
        "partition",
        "waiting",
    )

    def __init__(self, partition: TopicPartition, closed: Callable[[PendingBatch], None]) -> None:
        self.partition = partition
        self._closed = closed  # hears of a batch that takes no more records
        self.waiting: deque[PendingBatch] = deque()
        self.in_flight: list[PendingBatch] = []
        self.open: PendingBatch | None = None  # takes more records; the last that waits
        self.identity = NOBODY
        self.next_sequence = 0
        self.has_gap = False  # the broker misses a batch that is not to come
        self._begun = 0

    def begin(self, builder: BatchBuilder, memory: int, now_s: float) -> None:
        """Open a batch."""
        assert self.open is None
        self.open = PendingBatch(self.partition, self._begun, builder, memory, now_s)
        self._begun += 1
        self.waiting.append(self.open)

    def close(self) -> None:
        """Let the open batch take no more records."""
        batch, self.open = self.open, None
        if batch is not None:
            self._closed(batch)

    def take_first(self, identity: Identity) -> None:
        """Let the first that waits be on its way, with its place in the sequence of its producer.

        The identity is that of the producer, for a queue that has none of its own yet.
        """
        batch = self.waiting.popleft()
        if batch is self.open:
            self.close()
        if self.identity == NOBODY:
            self.identity = identity
        if batch.sequence == NO_SEQUENCE and self.identity != NOBODY:
            batch.identity, batch.sequence = self.identity, self.next_sequence
            self.next_sequence = (self.next_sequence + batch.builder.count) & SEQUENCE_MASK
        batch.tries += 1
        self.in_flight.append(batch)

    def begin_anew(self) -> None:
        """Begin a new sequence, under the next epoch: in the old one there is a gap.

        Only while nothing is on its way, and the first that waits was surely not appended: nor
        were the others then, because a broker takes nothing that comes after a gap.
        """
        assert not self.in_flight
        self.identity = self.identity.next()
        self.next_sequence = 0
        self.has_gap = False
        for batch in self.waiting:
            batch.sequence = int(NO_SEQUENCE)
            batch.is_unsure = False

    def put_back(self, batch: PendingBatch) -> None:
        """Let a batch that was on its way wait again, before all that were begun after it."""
        self.in_flight.remove(batch)
        place = sum(one.order < batch.order for one in self.waiting)
        self.waiting.insert(place, batch)


class Outbox:
    """All queues of a producer, and the memory that they share."""

    def __init__(
        self,
        *,
        batch_bytes: int,
        memory_bytes: int,
        compression: Compression,
        level: int | None,
        elapsed_s: Callable[[], float],
        filled: Callable[[], None],
        closed: Callable[[PendingBatch], None] = lambda batch: None,
    ) -> None:
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.memory_left = memory_bytes
        self._batch_bytes = batch_bytes
        self._compression = compression
        self._level = level
        self._elapsed_s = elapsed_s
        self._filled = filled  # called when a batch is ready to leave
        self._closed = closed
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def is_short(self) -> bool:
        """Whether somebody waits for memory: then nothing lingers."""
        return bool(self._waiting)

    @property
    def is_empty(self) -> bool:
        """Whether all batches are settled."""
        return not any(queue.waiting or queue.in_flight for queue in self.queues.values())

    def unsettled(self) -> list[PendingBatch]:
        """All batches that are not settled."""
        return [
            batch for queue in self.queues.values() for batch in (*queue.in_flight, *queue.waiting)
        ]

    def add(
        self,
        partition: TopicPartition,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> Ack | None:
        """Put a record into the batch that is open; None when there is none with room."""
        queue = self.queues.get(partition)
        batch = None if queue is None else queue.open
        if batch is None:
            return None
        builder = batch.builder
        if builder.append(timestamp_ms, key, value, headers):
            return Ack(batch, builder.count - 1)
        assert queue is not None
        queue.close()
        self._filled()
        return None

    async def begin(self, partition: TopicPartition, size: int, timeout_s: float) -> None:
        """Open a batch for a record of at most so many bytes, when there is memory for it."""
        memory = max(self._batch_bytes, size)
        if self._waiting or memory > self.memory_left:
            await self._room(memory, timeout_s)
        else:
            self.memory_left -= memory
        queue = self.queues.get(partition)
        if queue is None:
            queue = self.queues[partition] = PartitionQueue(partition, self._closed)
        if queue.open is not None:  # somebody else was faster
            self._give_back(memory)
            return
        builder = BatchBuilder(max(self._batch_bytes, 1), self._compression, self._level)
        queue.begin(builder, memory, self._elapsed_s())
        self._filled()

    def settled(self, batch: PendingBatch) -> None:
        """A batch is settled: its memory is free."""
        self._give_back(batch.memory)

    async def _room(self, memory: int, timeout_s: float) -> None:
        coming: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = (memory, coming)
        self._waiting.append(waiting)
        self._filled()
        try:
            await asyncio.wait((coming,), timeout=timeout_s)
        finally:
            if not coming.done():
                self._waiting.remove(waiting)
                self._give_back(0)  # who is behind may fit
        if not coming.done():
            raise TimedOut(
                f"no room for a record after {timeout_s:g} s: the brokers take fewer than are "
                "sent; raise buffer.memory or max.block.ms, or send less"
            )

    def _give_back(self, memory: int) -> None:
        self.memory_left += memory
        while self._waiting and self._waiting[0][0] <= self.memory_left:
            wanted, coming = self._waiting.popleft()
            if not coming.done():
                self.memory_left -= wanted
                coming.set_result(None)
