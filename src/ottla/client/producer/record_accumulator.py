"""The record accumulator of a producer: batches per partition until the broker acknowledges them.

Invariant: memory (buffer.memory) is reserved when a batch is opened and released when it is
settled. Callers wait for memory in order; a cancelled caller has reserved none. A closed
accumulator takes no records, so that no batch waits for a sender that has stopped.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Final

from ottla.client.producer.partition_queue import PartitionQueue
from ottla.client.producer.producer_batch import Ack, ProducerBatch
from ottla.client.producer.row_ack import Run
from ottla.client.serializers.serde import check_parts
from ottla.errors import ErrorCode, RequestError
from ottla.ids import TopicPartition
from ottla.protocol.buffer_pool import is_free
from ottla.records import BatchBuilder, Compression, Rows
from ottla.transport.channel import TimedOut

Headers = Sequence[tuple[str, bytes | None]]

SPARE_BYTES_MAX: Final = 8 << 20
"""The memory of buffers that are kept for later batches: more than is on the way to the brokers."""

RECORD_COST_BYTES: Final = 256
"""A record that is sent by itself costs about as much as encoding this many bytes."""

BUFFER_SLACK_BYTES: Final = 1024
"""A buffer can be this much larger than a batch."""


@dataclass(frozen=True, slots=True)
class AccumulatorConfig:
    """How records are batched."""

    batch_bytes: int
    memory_bytes: int
    compression: Compression
    level: int | None = None


@dataclass(frozen=True, slots=True)
class AccumulatorCallbacks:
    """Callbacks of a record accumulator."""

    filled: Callable[[], None]
    """A batch is ready to be sent, or will be soon."""

    closed: Callable[[ProducerBatch], None]
    """A batch takes no more records."""


@dataclass(slots=True)
class RecordAccumulator:
    """The queues of a producer and their shared memory."""

    rules: AccumulatorConfig
    elapsed_s: Callable[[], float]
    news: AccumulatorCallbacks
    queues: dict[TopicPartition, PartitionQueue] = field(
        default_factory=dict[TopicPartition, PartitionQueue]
    )
    memory_left: int = -1
    filled: int = 0  # the number of batches filled since the event loop had its turn
    encoded: int = 0  # the bytes encoded since then, with RECORD_COST_BYTES for each record
    spare: list[bytearray] = field(default_factory=list[bytearray])
    """Buffers of settled batches, for later ones; a connection may still have views of them."""

    _waiting: deque[tuple[int, asyncio.Future[None]]] = field(
        default_factory=deque[tuple[int, asyncio.Future[None]]]
    )

    _over: RequestError | None = None  # why it takes no more records

    def __post_init__(self) -> None:
        self.memory_left = self.rules.memory_bytes

    @property
    def waiting_calls(self) -> int:
        """The number of callers that wait for memory; while there are any, nothing lingers."""
        return len(self._waiting)

    def unsettled(self) -> list[ProducerBatch]:
        """All batches that are not settled."""
        return [
            batch for queue in self.queues.values() for batch in (*queue.in_flight, *queue.waiting)
        ]

    def has_open(self, partition: TopicPartition) -> bool:
        """Whether a partition has a batch that takes records."""
        queue = self.queues.get(partition)
        return queue is not None and queue.open is not None

    def add(
        self,
        partition: TopicPartition,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> Ack | None:
        """Add a record to the open batch; None if there is none with room."""
        queue = self.queues.get(partition)
        batch = None if queue is None else queue.open
        if batch is None:
            return None
        builder = batch.builder
        try:
            is_added = builder.append(timestamp_ms, key, value, headers)
        except (TypeError, AttributeError):
            check_parts(key, value, headers)  # its error names the part
            raise
        if is_added:
            return Ack(batch, builder.count - 1)
        assert queue is not None
        self.encoded += builder.size + RECORD_COST_BYTES * builder.count
        self._fill(queue)
        return None

    def extend(
        self,
        partition: TopicPartition,
        timestamp_ms: int,
        key: bytes | None,
        values: list[bytes | None],
        start: int,
    ) -> list[Ack]:
        """Add as many values as fit, from `start` on, to the open batch, if there is one.

        The record that does not fit is left to `add`, which closes the batch.
        """
        queue = self.queues.get(partition)
        batch = None if queue is None else queue.open
        if batch is None:
            return []
        first = batch.builder.count
        count = batch.builder.extend(timestamp_ms, key, values, start)
        return [*map(Ack, repeat(batch), range(first, first + count))]

    def extend_rows(
        self, partition: TopicPartition, rows: Rows, start: int, stop: int
    ) -> Run | None:
        """Add as many rows as fit, from `start` on, to the open batch; None if there is none."""
        queue = self.queues.get(partition)
        batch = None if queue is None else queue.open
        if queue is None or batch is None:
            return None
        first, size = batch.builder.count, batch.builder.size
        after = rows.append_to(batch.builder, start, stop)
        self.encoded += batch.builder.size - size
        if after < stop:
            self._fill(queue)
        return Run(batch, first, after - start) if after > start else None

    def reserve_at_once(self, size: int) -> int | None:
        """Reserve and return memory for a batch whose first record has up to `size` bytes.

        None if the caller has to wait for it.
        """
        if self._over is not None:
            raise self._over
        memory = self._batch_memory(size)
        if self._waiting or memory > self.memory_left:
            return None
        self.memory_left -= memory
        return memory

    async def reserve(self, size: int, timeout_s: float) -> int:
        """Like `reserve_at_once`, but wait for memory; raises TimedOut."""
        memory = self.reserve_at_once(size)
        if memory is None:
            memory = self._batch_memory(size)
            await self._room(memory, timeout_s)
            if self._over is not None:  # closed after the memory arrived
                raise self._over
        return memory

    def _batch_memory(self, size: int) -> int:
        memory = max(self.rules.batch_bytes, size)
        if memory > self.rules.memory_bytes:
            raise RequestError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a record of {size} bytes exceeds buffer.memory={self.rules.memory_bytes}",
            )
        return memory

    def close(self, reason: RequestError) -> None:
        """Take no more records; waiting and later callers get the reason."""
        self._over = reason
        waiting, self._waiting = self._waiting, deque()
        for _, coming in waiting:
            if not coming.done():
                coming.set_result(None)

    def begin(self, partition: TopicPartition, memory: int) -> None:
        """Open a batch with reserved memory, unless another caller was faster."""
        queue = self.queues.get(partition)
        if queue is None:
            queue = self.queues[partition] = PartitionQueue(partition, self.news.closed)
        if queue.open is not None:
            self.give_back(memory)
            return
        rules = self.rules
        builder = BatchBuilder(
            max(rules.batch_bytes, 1), rules.compression, rules.level, self._buffer()
        )
        queue.begin(builder, memory, self.elapsed_s())
        self.news.filled()

    def release(self, batch: ProducerBatch) -> None:
        """Release the memory of a settled batch, so that an Ack that is kept does not keep it.

        The next batch reuses the buffer: it is mapped and cached.
        """
        buffer = batch.builder.release()
        size_max = self.rules.batch_bytes + BUFFER_SLACK_BYTES
        kept_max = min(SPARE_BYTES_MAX, self.rules.memory_bytes) // size_max
        if len(buffer) <= size_max and len(self.spare) < kept_max:
            self.spare.append(buffer)
        self.give_back(batch.memory)

    def _buffer(self) -> bytearray | None:
        """Return the buffer that was released last; None if there is none without views."""
        buffer = self.spare.pop() if self.spare else None
        return buffer if buffer is not None and is_free(buffer) else None

    def give_back(self, memory: int) -> None:
        """Release memory; waiting callers get it first."""
        self.memory_left += memory
        while self._waiting and self._waiting[0][0] <= self.memory_left:
            wanted, coming = self._waiting.popleft()
            if not coming.done():
                self.memory_left -= wanted
                coming.set_result(None)

    def _fill(self, queue: PartitionQueue) -> None:
        queue.close()
        self.filled += 1
        self.news.filled()

    async def _room(self, memory: int, timeout_s: float) -> None:
        coming: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = (memory, coming)
        self._waiting.append(waiting)
        self.news.filled()
        try:
            await asyncio.wait((coming,), timeout=timeout_s)
        except asyncio.CancelledError:
            if coming.done():  # it arrived after the caller was cancelled
                self.give_back(memory)
            raise
        finally:
            if not coming.done():
                self._waiting.remove(waiting)
                self.give_back(0)  # the next in line may fit
        if not coming.done():
            raise TimedOut(
                f"no buffer memory for a record after {timeout_s:g} s: records are sent faster "
                "than the brokers accept them; raise buffer.memory or max.block.ms, or send fewer"
            )
