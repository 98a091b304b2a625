"""Deletes old segments of one log: retention, DeleteRecords, and the delayed removal of files.

Invariant: segments are deleted from the front only. Before a segment goes, a producer snapshot on
the device covers the producers that wrote to it. Readers of a deleted segment find its
records until they are removed.
"""

from functools import partial
from itertools import islice

from ottla.errors import StorageExhausted
from ottla.ids import Offset
from ottla.log.appender import Appender
from ottla.log.cached_reads import Read
from ottla.log.damage import format_damage
from ottla.log.flusher import Flusher
from ottla.log.log_state import LogState
from ottla.log.retention import SegmentFacts, deletable_segments
from ottla.log.scrubber import Scrubber
from ottla.log.segment.segment_files import (
    PendingDelete,
    mark_deleted,
    mark_segments_deleted,
    remove_all,
)
from ottla.log.segment.timestamps import verify_latest
from ottla.log.shield import uninterrupted


class SegmentDeletion:
    """Deletes the segments that retention does not keep, and removes their files later."""

    __slots__ = ("_appender", "_flusher", "_scrubber", "_state")

    def __init__(
        self, state: LogState, appender: Appender, flusher: Flusher, scrubber: Scrubber
    ) -> None:
        self._state = state
        self._appender = appender
        self._flusher = flusher
        self._scrubber = scrubber

    def advance_log_start(self, offset: Offset) -> None:
        """Raise the log start offset (DeleteRecords, rule A17); files are deleted by retention."""
        state = self._state
        state.check_usable()
        assert offset <= state.log_end_offset
        if offset > state.log_start_offset:
            state.log_start_offset = offset
            state.epochs_dirty |= state.epochs.truncate_from_start(offset)

    @uninterrupted
    async def delete_old_segments(self, *, high_watermark: int, now_ms: int) -> int:
        """Delete the segments that retention does not keep; return their number."""
        state = self._state
        async with state.lock:
            state.check_usable()
            count = await self._scrubber.look_up(
                lambda read: self._deletable(high_watermark, now_ms, read), locked=True
            )
            if not count:
                return 0
            if count == len(state.segments):
                self._appender.roll(now_ms)
            count = await self._covered_by_snapshot(count)
            removed = state.segments.remove_first(count)
            state.forget_index_files_due(removed)
            start = state.segments.first.base_offset
            state.recovery_point = max(state.recovery_point, start)
            self.advance_log_start(start)
            snapshots = state.snapshots.forget(below=start)
            due_ms = now_ms + state.config.file_delete_delay_ms
            damage = format_damage(state.segments)

            def carry_out() -> tuple[str, ...]:
                segments = mark_segments_deleted(state.disk, state.directory, removed)
                return (*segments, *mark_deleted(state.disk, snapshots))

            paths = await state.run_blocking(carry_out)
            state.pending_deletes.append(PendingDelete(due_ms, paths))
            await self._scrubber.store_damage_locked(damage)
            return count

    def _deletable(self, high_watermark: int, now_ms: int, read: Read) -> int:
        """How many segments may go; a wrong time index must not delete one too early."""
        state = self._state
        count = deletable_segments(
            [
                SegmentFacts(end_offset, segment.size, segment.latest_ms(state.disk))
                for segment, end_offset in state.segments.with_end_offsets(state.log_end_offset)
            ],
            state.config,
            log_start=state.log_start_offset,
            high_watermark=high_watermark,
            now_ms=now_ms,
        )
        for segment in islice(state.segments, count):
            verify_latest(segment, read)
        return count

    async def _covered_by_snapshot(self, count: int) -> int:
        """Of `count` segments, how many may go without losing producer state.

        Due snapshots are written first: after a crash, producers that wrote to these segments only
        would be unknown. On a full disk an earlier snapshot may cover fewer segments; the
        error is raised if none does. Appends that arrive meanwhile never go to a segment that is
        deleted.
        """
        state = self._state
        if not state.snapshots.are_due or not state.producers.count:
            return count
        try:
            await self._flusher.flush_locked()
        except StorageExhausted:
            bases = [segment.base_offset for segment in islice(state.segments, count + 1)]
            covered = (n for n in range(count, 0, -1) if bases[n] in state.snapshots)
            fewer = next(covered, 0)
            if not fewer:
                raise
            return fewer
        return count

    @uninterrupted
    async def purge(self, now_ms: int) -> None:
        """Remove the deleted files whose file.delete.delay.ms is over.

        The lock is taken for each file. So the directory is not renamed meanwhile, and a flush
        does not wait until many large files are removed.
        """
        state = self._state
        due = [one for one in state.pending_deletes if one.due_ms <= now_ms]
        state.pending_deletes = [one for one in state.pending_deletes if one.due_ms > now_ms]
        for path in (path for one in due for path in one.paths):
            async with state.lock:
                state.check_usable()
                await state.disk.blocking(partial(remove_all, state.disk, (path,)))
