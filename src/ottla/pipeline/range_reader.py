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
from ottla.client.fetch.missing_partitions import why_absent
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


class _Fetching(Consumer[bytes, bytes]):
    """A consumer that hands out columns, with the place behind them."""

    async def aim(self, wanted: Range) -> None:
        """Read a range; what was fetched of it already is used.

        Nothing is asked for behind its end: that would wait at the broker until something comes
        there, and the next range, of another partition, behind it.
        """
        partition = wanted.partition
        if self.assignment != frozenset({partition}):
            sizes = [one.offset_bytes for one in self._started().reading.reader.cursors.values()]
            self.assign(partition)
            self.seek(partition, wanted.start)
            if sizes:
                self._cursor(partition).offset_bytes = sizes[0]  # those here are as large
        elif await self.position(partition) != wanted.start:
            self.seek(partition, wanted.start)
        self._cursor(partition).fetch_end = wanted.end
        self._started().reading.poke()

    async def columns(self, timeout_s: float) -> tuple[Columns, int] | None:
        """The next records, which may be none, and the offset behind; None without any in time."""
        reader = self._reader()
        found = await reader.take_columns(
            timeout_s, lambda where, columns: ((where, columns), None), empty_too=True
        )
        if found is None:
            return None
        where, columns = found
        return columns, reader.cursors[where].position

    async def first_offset(self, partition: TopicPartition) -> int:
        """The first offset that there is."""
        return (await self.beginning_offsets(partition))[partition]

    async def why_lost(self, wanted: Range) -> Loss | None:
        """Why the end of a range cannot come any more; None when it may, or nobody can be asked."""
        absent = why_absent(wanted.partition, self._started().reading.metadata.view)
        if absent is not None:
            return Loss(absent)
        try:
            [end] = (await self.end_offsets(wanted.partition, timeout_s=LOOK_S)).values()
        except RequestError:
            return None
        return Loss(f"it ends at {end} now", _BEHIND) if end < wanted.end else None


class RangeReader:
    """Reads ranges, one at a time."""

    def __init__(self, settings: dict[str, object], clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._consumer = _Fetching(settings)
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
        portal.run(consumer.aim(wanted))
        deadline_s = self._clock.elapsed_s() + timeout_s
        while position < wanted.end:
            try:
                left_s = max(deadline_s - self._clock.elapsed_s(), 0.0)
                found = portal.run(consumer.columns(min(left_s, LOOK_S)))
            except (NoPosition, Truncated) as error:
                position = self._skipped(wanted, position, error, skips_lost=skips_lost)
                continue
            if found is None:
                loss = portal.run(consumer.why_lost(wanted))
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
            columns, position = found
            if columns.rows:
                yield columns
            deadline_s = self._clock.elapsed_s() + timeout_s  # Spark's time is its own

    def _skipped(self, wanted: Range, position: int, error: Exception, *, skips_lost: bool) -> int:
        """Where to go on when a place is gone."""
        portal, consumer = self._portal, self._consumer
        first = portal.run(consumer.first_offset(wanted.partition))
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
