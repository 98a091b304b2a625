"""Truncates one log: to an offset, or fully with a new start offset.

Invariant: a log is truncated after the last batch that stays. The batch that holds the offset goes
as a whole. If compaction removed the batches before it, the log ends after the last batch that is
left, where it would also end after a restart. Nothing is appended meanwhile. On a full disk nothing
is truncated, because the shortened leader epoch checkpoint must be stored.

Invariant: bytes that were handed to sendfile never change. A socket refers to pages of the file
until the client has read them. Truncating the file would clear the end of the last page, and new
records would then appear in the old response. So a file that is truncated below such bytes is
replaced by a copy of what stays.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ottla.errors import StorageFailure
from ottla.ids import Offset
from ottla.log.cached_reads import Read
from ottla.log.damage import format_damage
from ottla.log.disk import Disk, File, staged
from ottla.log.epochs import EpochHistory
from ottla.log.log_state import LogState
from ottla.log.names import TEMPORARY_SUFFIX, Kind, offset_file
from ottla.log.producer_state_manager import ProducerStateManager
from ottla.log.scrubber import Scrubber
from ottla.log.segment.batch_headers import LocatedHeader
from ottla.log.segment.segment import Indexes, Segment
from ottla.log.segment.segment_files import remove_all, remove_segments
from ottla.log.segment.segments import Segments
from ottla.log.set_aside import CHUNK_BYTES
from ottla.log.shield import uninterrupted


class TruncationPoint(NamedTuple):
    """Where a segment ends after a truncation."""

    position: int
    end_offset: Offset
    tail: list[LocatedHeader]  # the batches that stay after the last index entry that stays
    first_timestamp: int | None
    indexes: Indexes  # of the segment before the truncation, in memory


class Truncation:
    """Truncates a log; the result is on the device when a method returns.

    A crash on the way leaves a prefix of the old log.
    """

    __slots__ = ("_scrubber", "_state")

    def __init__(self, state: LogState, scrubber: Scrubber) -> None:
        self._state = state
        self._scrubber = scrubber

    @uninterrupted
    async def truncate_to(self, offset: int) -> None:
        """Truncate the log to an offset, or to the start of the batch that holds it (rule A2)."""
        await self._exclusively(lambda: self._truncate_to(offset))

    async def _truncate_to(self, offset: int) -> None:
        if offset < self._state.segments.first.base_offset:
            await self._restart_at(Offset(offset))
        elif offset < self._state.log_end_offset:
            await self._truncate(offset)
        else:
            await self._drop_epochs_from(offset)

    @uninterrupted
    async def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Delete every record and start the log at an offset (rule A17)."""
        await self._exclusively(lambda: self._restart_at(offset))

    async def _exclusively(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run a truncation while nothing else changes the log."""
        state = self._state
        async with state.lock:
            state.check_usable()
            state.truncating = True
            try:
                await work()
            finally:
                state.truncating = False

    async def _drop_epochs_from(self, offset: int) -> None:
        """Drop an epoch that started at the log end offset and has no records."""
        state = self._state
        epochs = state.epochs.until(offset)
        if epochs.latest != state.epochs.latest:
            await state.store_epochs(epochs)

    async def _truncate(self, offset: int) -> None:
        state = self._state
        segment = state.segments.from_offset(offset)[0]
        point, producers = await self._plan(segment, offset)
        epochs = state.epochs.until(point.end_offset)
        damage = format_damage(state.segments, point.end_offset)

        def prepare() -> tuple[Callable[[], None], File, File | None]:
            store_metadata = self._stage(epochs, damage)
            file = segment.file.held()
            is_pinned = file.pinned_end > point.position
            copy = _copied(state.disk, file, point.position) if is_pinned else None
            return store_metadata, file, copy

        store_metadata, file, copy = await state.run_retryable(prepare)
        state.truncations += 1
        dropped = state.segments.remove_after(segment)
        segment.file = file  # the segment is active now
        segment.use_indexes(point.indexes)
        segment.truncate_indexes(point.position, point.end_offset)
        segment.first_timestamp = point.first_timestamp
        segment.index_tail(point.tail, state.config.index_interval_bytes)
        state.forget_index_files_due([*dropped, segment])
        state.log_end_offset = point.end_offset
        state.recovery_point = min(state.recovery_point, point.end_offset)
        state.log_start_offset = min(state.log_start_offset, point.end_offset)
        state.epochs, state.producers = epochs, producers
        snapshots = state.snapshots.forget(above=point.end_offset)

        def carry_out() -> None:
            remove_segments(state.disk, state.directory, dropped)
            kinds = (Kind.OFFSET_INDEX, Kind.TIME_INDEX, Kind.TXN_INDEX)
            remove_all(state.disk, [*snapshots, *map(segment.path, kinds)])
            state.disk.sync_directory(state.directory)
            if copy is None:
                file.truncate(point.position)
                file.sync()
            else:
                state.disk.rename(copy.path, file.path)
                state.disk.sync_directory(state.directory)
            store_metadata()

        await state.run_blocking(carry_out)
        if copy is not None:
            copy.renamed(file.path)
            segment.file = copy
        state.mark_epochs_stored()

    async def _plan(
        self, segment: Segment, offset: int
    ) -> tuple[TruncationPoint, ProducerStateManager]:
        """Read everything that a truncation needs, so that it does not fail midway."""
        state = self._state
        while True:
            known = state.damaged
            point = await self._scrubber.look_up(
                lambda read: _truncation_point(segment, offset, read), locked=True
            )
            producers = await self._scrubber.replay_producers(point.end_offset)
            if state.damaged == known:
                return point, producers
            # Damage that was found meanwhile may move the truncation point.

    async def _restart_at(self, offset: Offset) -> None:
        state = self._state
        epochs = EpochHistory()
        path = f"{state.directory}/{offset_file(offset, Kind.RECORDS)}"
        created_ms = state.segments.active.created_ms

        def prepare() -> tuple[Callable[[], None], str, File]:
            store_metadata = self._stage(epochs, "")
            temporary = staged(state.disk, path, b"")
            return store_metadata, temporary, state.disk.open(temporary)

        store_metadata, temporary, file = await state.run_retryable(prepare)
        state.truncations += 1
        dropped = list(state.segments)
        snapshots = state.snapshots.forget(above=-1)

        def carry_out() -> None:
            remove_segments(state.disk, state.directory, dropped)
            remove_all(state.disk, snapshots)
            state.disk.sync_directory(state.directory)
            store_metadata()
            state.disk.rename(temporary, path)
            state.disk.sync_directory(state.directory)

        await state.run_blocking(carry_out)
        file.renamed(path)
        segment = Segment(state.directory, offset, file, size=0, created_ms=created_ms)
        state.segments = Segments([segment])
        state.index_files_due.clear()
        state.epochs = epochs
        state.mark_epochs_stored()
        state.producers = ProducerStateManager()
        state.log_start_offset = state.log_end_offset = state.recovery_point = offset

    def _stage(self, epochs: EpochHistory, damage: str) -> Callable[[], None]:
        """Write the next epoch checkpoint and damage file under temporary names.

        The returned function renames them, for which a full disk has space. It runs after the
        truncation: before it, the files would not match the records.
        """
        state = self._state
        temporary = staged(state.disk, state.epochs_path, epochs.format().encode())
        store_damage = state.damage_file.staged(damage)

        def store() -> None:
            state.disk.rename(temporary, state.epochs_path)
            store_damage()
            state.disk.sync_directory(state.directory)

        return store


def _copied(disk: Disk, file: File, size: int) -> File:
    """Copy the beginning of a file to a temporary file on the device; waits for the device."""
    temporary = file.path + TEMPORARY_SUFFIX
    if disk.exists(temporary):
        disk.remove(temporary)
    copy, end = disk.open(temporary, create=True), 0
    try:
        while end < size:
            end = copy.write([file.read(end, min(size - end, CHUNK_BYTES))], end)
        copy.sync()
    except StorageFailure:
        copy.close()
        disk.remove(temporary)  # the disk may be full
        raise
    return copy


def _truncation_point(segment: Segment, offset: int, read: Read) -> TruncationPoint:
    """Find the end of the last batch that lies below an offset."""
    position = segment.locate(offset, read)
    if position is None:
        position = segment.size
    first = segment.read_first_timestamp(read) if position else None
    tail = list(segment.headers_for(offset - 1, position, read)) if position else []
    end_offset = tail[-1].last_offset + 1 if tail else segment.base_offset
    return TruncationPoint(position, Offset(end_offset), tail, first, segment.loaded_indexes(read))
