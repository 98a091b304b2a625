"""Finds, records and repairs damage in one log (rule C4).

Invariant: damaged batches are neither served nor truncated. The damage file is written before
anything else relies on what was found. A segment is scanned during a scrub, or when its batches
cannot be walked. The scan runs in a thread on the bytes that exist when it starts; its result
counts unless the log was truncated meanwhile. If the scan finds no damage, the indexes of the
segment are wrong and are rebuilt.

A repair writes the batches of another replica in the place of the damaged bytes. They are on the
device before the damage is removed from its file.

Fetched batches are not checked: they are sent without a copy, and the consumer checks the CRC.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from ottla.errors import ErrorCode, OttlaError, RequestError, StorageExhausted
from ottla.ids import Offset
from ottla.log.appender import UnexpectedOffset, replicated_headers
from ottla.log.cached_reads import Read, read_blocking, retry_uncached
from ottla.log.damage import Damage, format_damage, offset_ranges, records_missing
from ottla.log.disk import Reader
from ottla.log.epochs import EpochHistory
from ottla.log.log_state import LogState
from ottla.log.producer_state_manager import ProducerStateManager
from ottla.log.recovery.batch_scan import BatchScan, ScanBounds
from ottla.log.recovery.replay import replay_producers
from ottla.log.segment.batch_headers import BrokenSegment
from ottla.log.segment.index import OffsetIndex
from ottla.log.segment.segment import Segment
from ottla.protocol.primitives import Buffer
from ottla.records.batch import BatchHeader
from ottla.records.errors import UNREADABLE, CorruptRecords

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

Pause = Callable[[int], Awaitable[object]]
"""Called with the number of bytes just read; returns when the next read may start."""


class Scrubber:
    """Scans segments, keeps the damage file, and repairs indexes."""

    __slots__ = ("_scan_lock", "_state")

    def __init__(self, state: LogState) -> None:
        self._state = state
        self._scan_lock = asyncio.Lock()

    async def scrub(self, pause: Pause) -> tuple[Damage, ...]:
        """Check every batch of the log, at the caller's pace; return the damage.

        Damage that is no longer found is removed.
        """
        for base_offset in [segment.base_offset for segment in self._state.segments]:
            if await self._scan(base_offset, pause):
                await self._store_damage()
        return self._state.damaged

    async def look_up(
        self,
        search: Callable[[Read], T],
        *,
        locked: bool = False,
        reader: Reader = Reader.BROKER,
    ) -> T:
        """Run a search that reads segments; scan a segment that it cannot walk, and run it again.

        `locked` says that the caller holds the lock of the log.
        """
        state = self._state
        reindexed: set[Offset] = set()
        while True:
            try:
                return await retry_uncached(state.disk, search, reader)
            except BrokenSegment as broken:
                known, base_offset = state.damaged, broken.base_offset
                async with self._scan_lock:  # another search may have scanned the segment meanwhile
                    changed = state.damaged != known or await self._scan(base_offset)
                    if not changed and base_offset not in reindexed:
                        await self._reindex(base_offset)
                        reindexed.add(base_offset)
                        continue
                if not changed:
                    raise self.corrupt_message(broken) from broken
                if locked:
                    await self.store_damage_locked()
                else:
                    await self._store_damage()
            except UNREADABLE as error:
                raise self.corrupt_message(error) from error

    async def repair(self, damage: Damage, records: Buffer) -> Damage | None:
        """Replace the first bytes of a damaged range; return what is left of it.

        `records` are the batches that another replica has at the first offset of the range. Raises
        CorruptRecords if they do not fit, also if the range is no longer a part of the log.
        """
        state = self._state
        headers = _checked(damage, records, state.epochs)
        async with state.lock:
            state.check_usable()
            segment = next((one for one in state.segments if damage in one.damaged), None)
            if segment is None:
                raise CorruptRecords(f"the log no longer has the damaged range {damage}")
            is_last = damage.end == segment.size and segment is not state.segments.active
            left = damage.after(headers[-1].next_offset, len(records), is_last=is_last)
            file = segment.file.held()

            def write() -> None:
                file.write([records], damage.position)
                file.sync()

            await state.run_retryable(write)
            segment.replace_damage(damage, headers, left)
            if damage.position + len(records) > segment.size:
                segment.size = damage.position + len(records)
                await self._rebuild_indexes(segment)
            await self.store_damage_locked()
        return left

    def corrupt_message(self, error: OttlaError) -> RequestError:
        """The error that a client gets for damaged records."""
        return RequestError(ErrorCode.CORRUPT_MESSAGE, f"{self._state.directory}: {error}")

    async def replay_producers(self, end: Offset) -> ProducerStateManager:
        """Rebuild the producer state of a log that ends at `end`; the caller holds the lock."""
        state = self._state
        while True:
            try:
                return await state.disk.blocking(
                    lambda: replay_producers(state.segments, state.snapshots, end)
                )
            except BrokenSegment as broken:
                if not await self._scan(broken.base_offset):
                    raise self.corrupt_message(broken) from broken
                await self.store_damage_locked()

    async def store_damage_locked(self, text: str | None = None) -> None:
        """Store the damage file; the caller holds the lock. On a full disk a flush stores it."""
        damage = format_damage(self._state.segments) if text is None else text
        with suppress(StorageExhausted):
            await self._state.run_retryable(lambda: self._state.damage_file.store(damage))

    async def _store_damage(self) -> None:
        async with self._state.lock:
            if self._state.failure is None:
                await self.store_damage_locked()

    async def _scan(self, base_offset: Offset, pause: Pause | None = None) -> bool:
        """Scan a segment; return whether its damage is different from what was known."""
        state = self._state
        segment = state.segments.from_offset(base_offset)[0]
        truncations = state.truncations
        hints = await state.disk.blocking(lambda: _offset_index(segment))
        scan = BatchScan(segment, self._bounds(segment), hints, _IgnoreAll())
        while not scan.done:
            before = scan.result.size
            await state.disk.blocking(scan.step)
            if pause is not None:
                await pause(scan.result.size - before)
        if truncations != state.truncations or segment not in state.segments:
            return True  # the segment was truncated or replaced during the scan
        damaged = tuple(scan.result.damaged)
        if damaged == segment.damaged:
            return False
        # Logged once: from now on the damage is known, also to the next start.
        if found := [one for one in damaged if one not in segment.damaged]:
            _LOG.error(
                "damage found",
                {
                    "partition": state.directory.rpartition("/")[2],
                    "file": segment.file.path,
                    "offsets": offset_ranges(found),
                    "bytes": sum(one.size for one in found),
                },
            )
        segment.damaged = damaged
        return True

    async def _reindex(self, base_offset: Offset) -> None:
        """Rebuild the indexes of a segment; the next flush writes the files of a closed one."""
        state = self._state
        segment = state.segments.from_offset(base_offset)[0]
        if segment.offset_index.is_trusted and segment.time_index.is_trusted:
            return
        if await self._rebuild_indexes(segment):
            _LOG.warning("indexes rebuilt: they did not match", {"file": segment.file.path})

    async def _rebuild_indexes(self, segment: Segment) -> bool:
        """Return False if the log was truncated meanwhile."""
        state = self._state
        interval_bytes, truncations = state.config.index_interval_bytes, state.truncations
        rebuilt = await state.disk.blocking(lambda: segment.reindexed(interval_bytes))
        is_current = truncations == state.truncations and segment in state.segments
        if is_current:
            # What was appended meanwhile is in the page cache, so this read does not block.
            segment.adopt_indexes(rebuilt, interval_bytes, read_blocking)
            if segment is not state.segments.active and segment not in state.index_files_due:
                state.index_files_due.append(segment)
        return is_current

    def _bounds(self, segment: Segment) -> ScanBounds:
        """Every batch of an open log was valid when it was appended or recovered."""
        state = self._state
        following = state.segments.from_offset(segment.base_offset)[1:2]
        end = following[0].base_offset if following else state.log_end_offset
        return ScanBounds(end, None, end, reaches=records_missing(segment.damaged))


def _checked(damage: Damage, records: Buffer, epochs: EpochHistory) -> list[BatchHeader]:
    """Return the headers of the batches that replace a range; raise CorruptRecords if they cannot.

    They must be of the leader epochs that this log has at their offsets: a batch with the same
    offset, but of another epoch, is another batch (rule A2).
    """
    try:
        headers = replicated_headers(records, damage.first_offset)
    except UnexpectedOffset as error:
        raise CorruptRecords(str(error)) from error
    for header in headers:
        known = epochs.epoch_of(header.base_offset)
        if known is not None and header.leader_epoch != known:
            raise CorruptRecords(
                f"offset {header.base_offset} is of leader epoch {header.leader_epoch}, not {known}"
            )
    if not headers:
        raise CorruptRecords(f"no records at offset {damage.first_offset}")
    return headers


def _offset_index(segment: Segment) -> OffsetIndex:
    """The readable part of the offset index, right or wrong; waits for the device."""
    try:
        return OffsetIndex(segment.base_offset, segment.offset_index.to_bytes())
    except BrokenSegment:
        return OffsetIndex(segment.base_offset)


class _IgnoreAll:
    """The observer of a scan of which only the result counts."""

    def batches(self, position: int, headers: Sequence[BatchHeader]) -> None:
        """Ignore valid batches."""

    def damage(self, damage: Damage) -> None:
        """Ignore damage."""
