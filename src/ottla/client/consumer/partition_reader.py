"""Reads assigned partitions: metadata, positions, fetcher and record buffer behind one interface.

A consumer reads through it, and so do the Spark source and the command line, which need what a
consumer does not offer: columns with the offset after them, an offset at which fetching stops, and
the reason why a partition cannot be read.

Invariant: the parts are created together and closed together; after `close` none of their tasks and
connections is left. A moved position or a new leader wakes the position resolver and the fetcher.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Generic, NamedTuple, TypeVar

from ottla.client.calls.caller import Caller
from ottla.client.consumer.cursor import UNKNOWN, Cursor
from ottla.client.consumer.decoding import Decoder
from ottla.client.consumer.fetcher import FetchConfig, Fetcher
from ottla.client.consumer.missing_partitions import MissingPartitions, why_absent
from ottla.client.consumer.offsets import FoundOffset, LeaderOffsets
from ottla.client.consumer.position_resolver import Committed, PositionResolver
from ottla.client.consumer.record_buffer import RecordBuffer
from ottla.client.group.offsets import OffsetAndMetadata
from ottla.client.lifecycle.retry_policy import RetryPolicy
from ottla.client.metrics.consumer_metrics import ConsumerMetrics, GroupCounts, consumer_metrics
from ottla.client.network.connections import Connections
from ottla.client.network.metadata import Metadata
from ottla.clock import Clock
from ottla.errors import ErrorCode, RequestError
from ottla.ids import TopicPartition
from ottla.records import Columns
from ottla.transport.channel import TimedOut
from ottla.transport.failures import NotRunning

K = TypeVar("K")
V = TypeVar("V")


ROUND_S: Final = 30.0
"""Timeout of one round of position lookups before the next round."""


class FetchedColumns(NamedTuple):
    """Records of one partition as columns; there may be none, when only the position moved."""

    partition: TopicPartition
    columns: Columns
    next_offset: int
    """The offset after everything that was fetched, seen or not."""
    epochs: Sequence[tuple[int, int]]
    """The base offset and the leader epoch of each batch."""


class PartitionReader(Generic[K, V]):
    """Reads partitions; `consumer.partition_reader` while the consumer runs."""

    def __init__(
        self,
        connections: Connections,
        metadata: Callable[[Callable[[], None]], Metadata],
        decoder: Decoder[K, V],
        rules: FetchConfig,
        clock: Clock,
        *,
        reset_ms: Callable[[], int] | None,
        committed: Callable[
            [Iterable[TopicPartition]],
            Awaitable[Mapping[TopicPartition, Committed | RequestError | None]],
        ]
        | None,
        learnt: Callable[[], None],
    ) -> None:
        """`learnt` is called when the metadata change."""
        self.connections: Final = connections
        self.metadata: Final = metadata(self._learnt)
        retry_policy = RetryPolicy(rules.request_timeout_s, ROUND_S, rules.backoff)
        questions = Caller(self.metadata, connections, clock, retry_policy)
        self._offsets = LeaderOffsets(self.metadata, questions, rules.isolation_level)
        self.reader: Final = RecordBuffer(decoder, self.poke)
        self._isolation_level = rules.isolation_level
        self._heard = learnt
        self._clock = clock
        self._absence = MissingPartitions()
        self._located: list[asyncio.Future[None]] = []
        self._locator = PositionResolver(
            self.reader.cursors,
            self.metadata,
            self._offsets,
            clock,
            rules.backoff,
            reset_ms=reset_ms,
            committed=committed,
            located=self._note_located,
        )
        self._fetcher = Fetcher(
            self.reader.cursors,
            self.metadata,
            connections,
            rules,
            clock,
            arrived=self.reader.arrived,
            strayed=self._locator.stray,
        )
        self._asking = asyncio.get_running_loop().create_task(self.metadata.run())

    async def close(self) -> None:
        """Close everything; a caller that waits for records gets an error."""
        self.reader.fail(NotRunning("the consumer was closed"))
        self.reader.close(NotRunning("the consumer was closed"))
        await self._locator.close()
        await self._fetcher.close()
        self._asking.cancel()
        with suppress(asyncio.CancelledError):
            await self._asking
        await self.connections.close()

    def poke(self) -> None:
        """Wake the position resolver and the fetcher."""
        self._locator.poke()
        self._fetcher.poke()

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch from more partitions."""
        self.reader.add(partitions)
        self.poke()

    def cursor(self, partition: TopicPartition) -> Cursor:
        """Return the cursor of a partition; raises RequestError if it is not assigned."""
        cursor = self.reader.cursors.get(partition)
        if cursor is None:
            raise RequestError(
                ErrorCode.INVALID_REQUEST, f"{partition} is not assigned to this consumer"
            )
        return cursor

    async def position(self, partition: TopicPartition, timeout_s: float) -> int:
        """Return the offset of the next record, looked up first if necessary."""
        cursor = self.cursor(partition)
        try:
            async with asyncio.timeout(timeout_s):
                while not cursor.is_located:
                    if cursor.failure is not None:
                        failure, cursor.failure = cursor.failure, None
                        raise failure
                    located: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._located.append(located)
                    self._locator.poke()
                    await located
        except TimeoutError as error:
            absent = why_absent(partition, self.metadata.view)
            raise self.metadata.failure or TimedOut(
                f"the position of {partition} is not known after {timeout_s:g} s"
                + (f": {absent}" if absent else "")
            ) from error
        return cursor.position

    async def offsets(
        self, times_ms: Mapping[TopicPartition, int], timeout_s: float
    ) -> dict[TopicPartition, FoundOffset | None]:
        """Return the first offset at or after a timestamp per partition; raises the first error."""
        found = (await self._offsets.at(times_ms, timeout_s)).or_raise()
        return {where: found[where] for where in times_ms}

    def offsets_of(
        self, partitions: Iterable[TopicPartition], *, all_handed_out: bool
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the consumed offsets: of all that was handed out, or only of what is done."""
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        for one in partitions:
            cursor = self.reader.cursors.get(one)
            if cursor is not None and cursor.is_located:
                offset = cursor.position if all_handed_out else cursor.done
                offsets[one] = OffsetAndMetadata(offset, leader_epoch=cursor.position_epoch)
        return offsets

    async def columns(self, timeout_s: float) -> FetchedColumns | None:
        """Return the next records as columns, without deserializing; None after the timeout."""

        def make(where: TopicPartition, columns: Columns) -> tuple[FetchedColumns, None]:
            batches = self.reader.cursors[where].chunks[0].batches
            epochs = [(one.header.base_offset, one.header.leader_epoch) for one in batches]
            return FetchedColumns(where, columns, 0, epochs), None

        found = await self.reader.take_columns(timeout_s, make, empty_too=True)
        if found is None:
            return None
        cursor = self.reader.cursors.get(found.partition)
        return found._replace(next_offset=0 if cursor is None else cursor.position)

    def stop_at(self, partition: TopicPartition, end: int) -> None:
        """Fetch nothing from this offset on: a fetch there would wait for records to be written."""
        self.cursor(partition).fetch_end = end
        self.poke()

    @property
    def bytes_per_offset(self) -> float | None:
        """The bytes per offset of the last fetch of an assigned partition; None without any."""
        return next((one.offset_bytes for one in self.reader.cursors.values()), None)

    def expect(self, partition: TopicPartition, bytes_per_offset: float) -> None:
        """Size the first fetch of a partition by what another one took."""
        self.cursor(partition).offset_bytes = bytes_per_offset

    def finished(self, ends: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Return the partitions whose position has reached its end, with nothing buffered."""
        cursors = self.reader.cursors
        return [
            where
            for where, end in ends.items()
            if (cursor := cursors.get(where)) is not None
            and cursor.is_located
            and not cursor.has_records
            and cursor.position >= end
        ]

    def missing_reason(self, partition: TopicPartition) -> str | None:
        """Return why a partition cannot be read, as far as known; None if it can."""
        return why_absent(partition, self.metadata.view)

    @property
    def failure(self) -> RequestError | None:
        """The error that the next poll raises."""
        return self.reader.failure

    def lag(self, partition: TopicPartition) -> int | None:
        """Return the lag of a partition as of the last response."""
        cursor = self.cursor(partition)
        end = cursor.last_stable_offset if self._isolation_level else cursor.high_watermark
        if end == UNKNOWN or not cursor.is_located:
            return None
        return max(0, end - cursor.position)

    def metrics(self, group: GroupCounts) -> ConsumerMetrics:
        """Return the metrics, with those of the group."""
        cursors = self.reader.cursors
        return consumer_metrics(
            self._fetcher.counts,
            group,
            buffered_bytes=sum(cursor.buffered_bytes for cursor in cursors.values()),
            lags={one: lag for one in cursors if (lag := self.lag(one)) is not None},
            assigned=len(cursors),
        )

    def miss(self) -> None:
        """Report partitions that should exist by now and do not."""
        now_s = self._clock.elapsed_s()
        for cursor in self._absence.missed(self.reader.cursors, self.metadata.view, now_s):
            self._note_located(cursor)

    def _learnt(self) -> None:
        self.poke()
        self._heard()

    def _note_located(self, cursor: Cursor) -> None:
        waiting, self._located = self._located, []
        for one in waiting:
            if not one.done():
                one.set_result(None)
        if cursor.failure is not None:
            self.reader.arrived(cursor)
        self._fetcher.poke()
