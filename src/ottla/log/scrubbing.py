"""How a log finds out what of it is damaged, and remembers it (rule C4).

Invariant: what was found is neither served nor cut, and the file tells of it before anything else
relies on it. A segment is examined when somebody asks for a scrub, or cannot walk its batches; the
check runs in a thread on what was there when it began, and counts unless the log was cut meanwhile.
Where nothing is found the indexes are wrong, which somebody has cut or changed: they are made anew.

What is fetched is not checked on the way: it goes out uncopied, and whoever gets it has the CRC.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from ottla.errors import DiskFull, ErrorCode, OttlaError, RequestError
from ottla.ids import Offset
from ottla.log.batch_headers import BrokenSegment
from ottla.log.batch_scan import BatchScan, ScanBounds
from ottla.log.compactable import CompactableLog
from ottla.log.damage import Damage, format_damage, lacks_records
from ottla.log.index import OffsetIndex
from ottla.log.producers import Producers
from ottla.log.reading import Read, read_waiting, settled
from ottla.log.replay import replayed
from ottla.log.segment import Segment
from ottla.records.batch import BatchHeader
from ottla.records.errors import UNREADABLE

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

Pause = Callable[[int], Awaitable[object]]
"""Told how many bytes were just read; returns when the next may be."""


class ScrubbedLog(CompactableLog):
    """A log that knows its damage."""

    __slots__ = ()

    @property
    def damaged(self) -> tuple[Damage, ...]:
        """What is known to be damaged, in the order of the offsets.

        A replica that is not the only one cuts its log there and fetches anew.
        """
        return tuple(one for segment in self.segments for one in segment.damaged)

    async def scrub(self, pause: Pause) -> tuple[Damage, ...]:
        """Check every batch of the log, as fast as the caller lets it; what is damaged.

        What was damaged and is right again counts as right.
        """
        for base_offset in [segment.base_offset for segment in self.segments]:
            if await self._examine(base_offset, pause):
                await self._remember_damage()
        return self.damaged

    async def _settled(self, look_up: Callable[[Read], T], *, has_turn: bool = False) -> T:
        """The outcome of a look-up, for which a segment that is broken is examined first.

        `has_turn` says that the caller has the turn to change the log.
        """
        reindexed: set[Offset] = set()
        while True:
            try:
                return await settled(self.disk, look_up)
            except BrokenSegment as broken:
                known, base_offset = self.damaged, broken.base_offset
                async with self._examining:  # others may have come here at the same time
                    news = self.damaged != known or await self._examine(base_offset)
                    if not news and base_offset not in reindexed:
                        # Its batches are in order: where they are was told by its indexes.
                        await self._reindex(base_offset)
                        reindexed.add(base_offset)
                        continue
                if not news:
                    raise self._corrupt(broken) from broken
                if has_turn:
                    await self._tell_damage(format_damage(self.segments))
                else:
                    await self._remember_damage()
            except UNREADABLE as error:
                raise self._corrupt(error) from error

    def _corrupt(self, error: OttlaError) -> RequestError:
        return RequestError(ErrorCode.CORRUPT_MESSAGE, f"{self.folder}: {error}")

    async def _examine(self, base_offset: Offset, pause: Pause | None = None) -> bool:
        """Check a segment; whether something else is damaged than was known."""
        segment = self.segments.from_offset(base_offset)[0]
        cuts = self._cuts
        hints = await self.disk.blocking(lambda: _hints(segment))
        examination = BatchScan(segment, self._bounds(segment), hints, _Nobody())
        while not examination.done:
            before = examination.sound.size
            await self.disk.blocking(examination.step)
            if pause is not None:
                await pause(examination.sound.size - before)
        if cuts != self._cuts or segment not in self.segments:
            return True  # it is another one now
        damaged = tuple(examination.sound.damaged)
        if damaged == segment.damaged:
            return False
        segment.damaged = damaged
        return True

    async def _reindex(self, base_offset: Offset) -> None:
        """Make the indexes of a segment anew; once it is closed, a flush writes their files."""
        segment, cuts = self.segments.from_offset(base_offset)[0], self._cuts
        if segment.offsets.is_proven and segment.times.is_proven:
            return
        interval = self.rules.index_interval_bytes
        anew = await self.disk.blocking(lambda: segment.indexed_anew(interval))
        if cuts == self._cuts and segment in self.segments:
            _LOG.warning("indexes were wrong and are made anew", {"file": segment.file.path})
            # What was appended since was just written: nobody has to wait for it.
            segment.take_indexes(anew, interval, read_waiting)
            if segment is not self.segments.active and segment not in self.closed:
                self.closed.append(segment)

    def _bounds(self, segment: Segment) -> ScanBounds:
        """All that an open log holds was right when it was appended or found to be."""
        following = self.segments.from_offset(segment.base_offset)[1:2]
        end = following[0].base_offset if following else self.next_offset
        return ScanBounds(end, None, end, reaches=lacks_records(segment.damaged))

    async def _remember_damage(self) -> None:
        async with self._work:
            if self._failure is None:
                await self._tell_damage(format_damage(self.segments))

    async def _tell_damage(self, text: str) -> None:
        """Store what is damaged, for those who hold the turn; without room, a flush does it."""
        with suppress(DiskFull):
            await self._repeatable(lambda: self.damage_file.store(text))

    async def _replayed(self, end: Offset) -> Producers:
        """The producers of the log as it is now, for those who hold the turn."""
        while True:
            try:
                return await self.disk.blocking(
                    lambda: replayed(self.segments, self.snapshots, end)
                )
            except BrokenSegment as broken:
                if not await self._examine(broken.base_offset):
                    raise self._corrupt(broken) from broken
                await self._tell_damage(format_damage(self.segments))


def _hints(segment: Segment) -> OffsetIndex:
    """What is left of the offset index, right or wrong; waits for the device."""
    try:
        return OffsetIndex(segment.base_offset, segment.offsets.to_bytes())
    except BrokenSegment:
        return OffsetIndex(segment.base_offset)


class _Nobody:
    """The witness of an examination of which only the outcome counts."""

    def batches(self, position: int, headers: Sequence[BatchHeader]) -> None:
        """Nothing is noted."""

    def damage(self, damage: Damage) -> None:
        """Nothing is noted."""
