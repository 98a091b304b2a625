"""Reads the records of an offset range as columns, for a task of Spark.

Invariant: a range is read once, completely and in order, and no record outside of it. Offsets
without a record are skipped: transaction markers, aborted records, records that compaction removed.
Records that were deleted before they were read raise DataLost; with `skips_lost` they are logged
and skipped.

A Python worker of Spark runs one task after the other. `READERS` keeps its connections, and what
was fetched beyond the end of a range, for the next task.
"""

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.client.consumer.consumer import Consumer
from ottla.client.consumer.partition_reader import FetchedColumns
from ottla.client.consumer.position_resolver import NoPosition, Truncated
from ottla.client.sync.portal import Portal
from ottla.clock import Clock, SystemClock
from ottla.errors import RequestError
from ottla.ids import TopicPartition
from ottla.pipeline.client_pool import ClientPool
from ottla.pipeline.loss import HINT, DataLost
from ottla.pipeline.offset_ranges import OffsetRange
from ottla.records import Columns
from ottla.transport.failures import TimedOut

LOOK_S: Final = 2.0
"""After this time without records, check whether the records still exist."""

_log: Final = logging.getLogger(__name__)


_DELETED: Final = (
    "They were deleted before they were read: by retention, by DeleteRecords or with their topic"
)
_ABOVE_END: Final = (
    "The topic was created again, or lost records at its end, or the query asks for offsets above "
    "the end (startingOffsets, endingOffsets)"
)


class Loss(NamedTuple):
    """Why records cannot be read, and the possible causes."""

    why: str
    cause: str = _DELETED


async def _aim(consumer: Consumer[bytes, bytes], wanted: OffsetRange) -> None:
    """Start to read a range; use what was fetched of it already.

    Do not fetch beyond its end. Such a fetch would wait at the broker until a record arrives, and
    delay the fetch of the next range, from another partition.
    """
    reader, partition = consumer.partition_reader, wanted.partition
    if consumer.assignment != frozenset({partition}):
        bytes_per_offset = reader.bytes_per_offset
        consumer.assign(partition)
        consumer.seek(partition, wanted.start)
        if bytes_per_offset is not None:
            reader.expect(partition, bytes_per_offset)
    elif await consumer.position(partition) != wanted.start:
        consumer.seek(partition, wanted.start)
    reader.stop_at(partition, wanted.end)


async def _columns(consumer: Consumer[bytes, bytes], timeout_s: float) -> FetchedColumns | None:
    """Return the next columns; the reader is used only in the consumer's event loop."""
    return await consumer.partition_reader.columns(timeout_s)


async def _why_lost(consumer: Consumer[bytes, bytes], wanted: OffsetRange) -> Loss | None:
    """Return why the end of a range cannot be reached any more; None if it can, or is unknown."""
    absent = consumer.partition_reader.missing_reason(wanted.partition)
    if absent is not None:
        return Loss(absent)
    try:
        [end] = (await consumer.end_offsets(wanted.partition, timeout_s=LOOK_S)).values()
    except RequestError:
        return None
    return Loss(f"the partition ends at {end}", _ABOVE_END) if end < wanted.end else None


class RangeReader:
    """Reads one range at a time."""

    def __init__(self, settings: dict[str, object], clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._consumer = Consumer[bytes, bytes](settings)
        self._portal = Portal("ottla spark", self._consumer.close)
        try:
            self._portal.run(self._consumer.__aenter__())
        except BaseException:
            self._portal.close()
            raise

    def close(self) -> None:
        """Close the consumer and its thread."""
        try:
            self._portal.run(self._consumer.close())
        finally:
            self._portal.close()

    def read(self, wanted: OffsetRange, timeout_s: float, *, skips_lost: bool) -> Iterator[Columns]:
        """Yield the columns of a range; raise DataLost, or TimedOut if no record arrives."""
        portal, consumer = self._portal, self._consumer
        partition, position = wanted.partition, wanted.start
        portal.run(_aim(consumer, wanted))
        deadline_s = self._clock.elapsed_s() + timeout_s
        while position < wanted.end:
            try:
                left_s = max(deadline_s - self._clock.elapsed_s(), 0.0)
                found = portal.run(_columns(consumer, min(left_s, LOOK_S)))
            except (NoPosition, Truncated) as error:
                position = self._skipped(wanted, position, error, skips_lost=skips_lost)
                continue
            if found is None:
                loss = portal.run(_why_lost(consumer, wanted))
                if loss is not None:
                    _lose(partition, position, loss, skips_lost=skips_lost)
                    return
                if self._clock.elapsed_s() < deadline_s:
                    continue
                raise TimedOut(
                    f"{partition}: no records received from offset {position} in {timeout_s:g} s, "
                    f"the range ends at {wanted.end}: raise kafkaConsumer.pollTimeoutMs to wait "
                    "longer"
                )
            position = found.next_offset
            if found.columns.rows:
                yield found.columns
            deadline_s = self._clock.elapsed_s() + timeout_s  # do not count Spark's time

    def _skipped(
        self, wanted: OffsetRange, position: int, error: Exception, *, skips_lost: bool
    ) -> int:
        """Return the offset to continue from when records are missing."""
        portal, consumer = self._portal, self._consumer
        [first] = portal.run(consumer.beginning_offsets(wanted.partition)).values()
        is_deleted = first > position
        loss = (
            Loss(f"the partition starts at {first}") if is_deleted else Loss(f"{error}", _ABOVE_END)
        )
        _lose(wanted.partition, position, loss, skips_lost=skips_lost)
        position = max(position, min(first, wanted.end)) if is_deleted else wanted.end
        if position < wanted.end:
            portal.call(consumer.seek, wanted.partition, position)
        return position


def _lose(partition: TopicPartition, position: int, loss: Loss, *, skips_lost: bool) -> None:
    """Raise DataLost, or log the loss."""
    text = f"{partition}: records from offset {position} are missing: {loss.why}"
    if not skips_lost:
        raise DataLost(f"{text}. {loss.cause}. {HINT}")
    _log.warning("records skipped: %s", text)


# A task gets only what was pickled for it, so the pool is a global of the worker process.
READERS: Final = ClientPool(RangeReader)
