"""Reads one log: by offset for a fetch, by timestamp for ListOffsets.

Invariant: a cached read never waits for the device. Damaged batches are not returned (rule C4).
"""

from collections.abc import Callable

from ottla.errors import ErrorCode, RequestError
from ottla.log.cached_reads import NotCached, Read, RecordSlice, read_page_cache
from ottla.log.disk import Reader
from ottla.log.log_state import LogState
from ottla.log.scrubber import Scrubber
from ottla.log.segment.batch_headers import BrokenSegment
from ottla.log.segment.timestamps import (
    FoundOffset,
    SearchPending,
    TimeSearch,
    find_first_record,
    find_latest_record,
)
from ottla.records.errors import CorruptRecords


class LogReader:
    """Reads from the page cache at once, and from the device through threads."""

    __slots__ = ("_scrubber", "_state")

    def __init__(self, state: LogState, scrubber: Scrubber) -> None:
        self._state = state
        self._scrubber = scrubber

    def read_cached(self, offset: int, upper_offset: int, bytes_max: int) -> RecordSlice:
        """Return the batches from `offset` up to an offset and a size; raise NotCached.

        A slice has whole batches only. The first batch is returned even if it is larger than the
        limit. Raises OFFSET_OUT_OF_RANGE below the log start offset and above the log end offset,
        and CORRUPT_MESSAGE for a batch that is known to be damaged (rule C4).
        """
        try:
            return self._slice(offset, upper_offset, bytes_max, read_page_cache)
        except BrokenSegment as broken:
            # `read` scans the segment; that has to wait for the device.
            file = self._state.segments.from_offset(broken.base_offset)[0].file
            raise NotCached(file, 0, 0) from broken
        except CorruptRecords as error:
            raise self._scrubber.corrupt_message(error) from error

    async def read(
        self, offset: int, upper_offset: int, bytes_max: int, reader: Reader = Reader.BROKER
    ) -> RecordSlice:
        """Do the same, and wait for the device if index or headers are not in the page cache."""
        return await self._scrubber.look_up(
            lambda read: self._slice(offset, upper_offset, bytes_max, read), reader=reader
        )

    def _slice(self, offset: int, upper_offset: int, bytes_max: int, read: Read) -> RecordSlice:
        state = self._state
        end = state.log_end_offset
        if not state.log_start_offset <= offset <= end:
            raise RequestError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not in the log: {state.log_start_offset} to {end}",
            )
        found = state.segments.extent(offset, min(upper_offset, end), bytes_max, read)
        if found is None:
            return RecordSlice(state.disk, None, 0, 0, offset)
        segment, extent, upper = found
        is_gapless = not (state.config.compact or segment.damaged or state.truncating)
        position = extent.position
        base_offset = offset if segment.begins_at(offset, position) else None
        return RecordSlice(
            state.disk, segment.file, position, extent.size, upper, is_gapless, base_offset
        )

    async def find_timestamp(self, timestamp: int) -> FoundOffset | None:
        """Return the first record with this timestamp or a later one."""
        state = self._state
        return await self._search(
            lambda read, search: find_first_record(
                state.segments, timestamp, state.log_start_offset, read, search
            )
        )

    async def find_max_timestamp(self) -> FoundOffset | None:
        """Return the first record with the largest timestamp."""
        state = self._state
        return await self._search(
            lambda read, search: find_latest_record(
                state.segments, state.log_start_offset, read, search
            )
        )

    async def _search(
        self, look_up: Callable[[Read, TimeSearch], FoundOffset | None]
    ) -> FoundOffset | None:
        """Run a search by timestamp, repeated until its long steps are done in threads."""
        state = self._state
        search = TimeSearch(state.config.decompressed_bytes_max)
        truncations = state.truncations

        def attempt(read: Read) -> FoundOffset | None:
            nonlocal search, truncations
            if truncations != state.truncations:
                search = TimeSearch(state.config.decompressed_bytes_max)
                truncations = state.truncations
            return look_up(read, search)

        while True:
            try:
                return await self._scrubber.look_up(attempt, reader=Reader.CLIENT)
            except SearchPending as unfinished:
                await state.disk.working(unfinished.work)
