"""What a task of Spark reads: the records of a range, as columns.

Invariant: a range is read once, whole and in order, and nothing from outside of it. Offsets without
a record (markers of transactions, aborted ones, what compaction removed) are passed over. What is
gone before it could be read is an error, or with `skips_lost` logged and passed over.

A Python worker of Spark serves one task after the other. Its connections, and what was fetched
beyond the end of a range, are kept for the next one (`READERS`).
"""

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.client.consumer import Consumer
from ottla.client.fetch.partition_reader import FetchedColumns
from ottla.client.fetch.position_resolver import NoPosition, Truncated
from ottla.client.sync.portal import Portal
from ottla.clock import Clock, SystemClock
from ottla.errors import RequestError
from ottla.ids import TopicPartition
from ottla.pipeline.client_pool import ClientPool
from ottla.pipeline.loss import GOES_ON, DataLost
from ottla.pipeline.plan import Range
from ottla.records import Columns
from ottla.transport.failures import TimedOut

LOOK_S: Final = 2.0
"""After so long without records it is looked whether they are still there."""

_log: Final = logging.getLogger(__name__)


_DELETED: Final = (
    "They were deleted before they were read, by retention, by hand or with their topic"
)
_BEHIND: Final = (
    "Its topic was made anew, or records at its end were lost, or what was asked for "
    "(startingOffsets, endingOffsets) is behind the end"
)


class Loss(NamedTuple):
    """Why records cannot be read, and how that may have come."""

    why: str
    cause: str = _DELETED


async def _aim(consumer: Consumer[bytes, bytes], wanted: Range) -> None:
    """Read a range, starting with what is already fetched of it.

    Nothing is fetched after its end: that fetch would wait at the broker for new records, and the
    next range, of another partition, would wait behind it.
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


async def _why_lost(consumer: Consumer[bytes, bytes], wanted: Range) -> Loss | None:
    """Return why the end of a range cannot be reached any more; None if it can, or is unknown."""
    absent = consumer.partition_reader.missing_reason(wanted.partition)
    if absent is not None:
        return Loss(absent)
    try:
        [end] = (await consumer.end_offsets(wanted.partition, timeout_s=LOOK_S)).values()
    except RequestError:
        return None
    return Loss(f"it ends at {end} now", _BEHIND) if end < wanted.end else None


class RangeReader:
    """Reads ranges, one at a time."""

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
        """End it."""
        try:
            self._portal.run(self._consumer.close())
        finally:
            self._portal.close()

    def read(self, wanted: Range, timeout_s: float, *, skips_lost: bool) -> Iterator[Columns]:
        """The columns of a range; DataLost, or TimedOut when nothing comes for so long."""
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
                    f"{partition}: nothing came from offset {position} on in {timeout_s:g} s, and "
                    f"{wanted.end} is the end of what is to be read; "
                    "kafkaConsumer.pollTimeoutMs says how long to wait"
                )
            position = found.next_offset
            if found.columns.rows:
                yield found.columns
            deadline_s = self._clock.elapsed_s() + timeout_s  # Spark's time is its own

    def _skipped(self, wanted: Range, position: int, error: Exception, *, skips_lost: bool) -> int:
        """Where to go on when a place is gone."""
        portal, consumer = self._portal, self._consumer
        [first] = portal.run(consumer.beginning_offsets(wanted.partition)).values()
        is_deleted = first > position
        loss = Loss(f"it begins at {first} now") if is_deleted else Loss(f"{error}", _BEHIND)
        _lose(wanted.partition, position, loss, skips_lost=skips_lost)
        position = max(position, min(first, wanted.end)) if is_deleted else wanted.end
        if position < wanted.end:
            portal.call(consumer.seek, wanted.partition, position)
        return position


def _lose(partition: TopicPartition, position: int, loss: Loss, *, skips_lost: bool) -> None:
    """Say that records are gone."""
    text = f"{partition}: records from offset {position} on are gone: {loss.why}"
    if not skips_lost:
        raise DataLost(f"{text}. {loss.cause}. {GOES_ON}")
    _log.warning("%s; going on with what there is", text)


# Spark gives a task nothing but what was pickled for it: what outlives a task is the process's.
READERS: Final = ClientPool(RangeReader)
