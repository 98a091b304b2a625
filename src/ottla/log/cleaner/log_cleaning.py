"""Compacts one log: a cleaner writes new segments, which then replace the old ones.

Invariant: only closed segments that are on the device are replaced, all of a group or none. They
are replaced only if the log was not truncated and did not lose one of them since the cleaning
started. Readers of an old segment keep its files open; they are removed after
file.delete.delay.ms.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from ottla.errors import StorageFailure
from ottla.ids import Offset
from ottla.log.cached_reads import Read, retry_uncached
from ottla.log.cleaner.cleanable import Cleanable, CleanableSegment, SourceSegment, find_cleanable
from ottla.log.cleaner.cleaned_segment import mark_swapped, open_cleaned, remove_cleaned, swap
from ottla.log.cleaner.cleaner_runners import Cleaner, CleaningAborted, CleaningFailed
from ottla.log.cleaner.compaction import (
    ActiveProducer,
    CleanedGroup,
    CleaningDone,
    CleaningJob,
    CleaningLimits,
)
from ottla.log.flusher import Flusher
from ottla.log.log_state import LogState
from ottla.log.segment.segment_files import PendingDelete, live_paths
from ottla.log.shield import uninterrupted
from ottla.settings.config_types import LONG_MAX

T = TypeVar("T")


class LogCleaning:
    """Plans a cleaning of the log, runs it, and swaps the cleaned segments in."""

    __slots__ = ("_cleaning", "_flusher", "_state", "_task")

    def __init__(self, state: LogState, flusher: Flusher) -> None:
        self._state = state
        self._flusher = flusher
        self._cleaning = False
        self._task: asyncio.Task[object] | None = None

    async def find_cleanable(
        self, first_dirty_offset: int | None, *, high_watermark: int, now_ms: int
    ) -> Cleanable:
        """Return what can be cleaned; `first_dirty_offset` is None if the log was never cleaned."""
        state = self._state
        if state.config.max_compaction_lag_ms < LONG_MAX:
            await retry_uncached(
                state.disk, lambda read: self._read_first_timestamps(first_dirty_offset or 0, read)
            )
        return self._find_cleanable(first_dirty_offset, high_watermark, now_ms)

    def _read_first_timestamps(self, from_offset: int, read: Read) -> None:
        for segment in self._state.segments.from_offset(from_offset):
            if segment.first_timestamp is None:
                segment.first_timestamp = segment.read_first_timestamp(read)

    def _find_cleanable(
        self, first_dirty_offset: int | None, high_watermark: int, now_ms: int
    ) -> Cleanable:
        state = self._state
        return find_cleanable(
            [
                CleanableSegment(
                    segment.base_offset,
                    end_offset,
                    segment.size,
                    segment.latest_ms(state.disk),
                    segment.first_timestamp,
                    bool(segment.damaged),
                )
                for segment, end_offset in state.segments.with_end_offsets(state.log_end_offset)
            ],
            state.config,
            first_dirty_offset=first_dirty_offset,
            log_start=state.log_start_offset,
            last_stable=state.last_stable_offset(Offset(high_watermark)),
            high_watermark=high_watermark,
            now_ms=now_ms,
        )

    async def compact(
        self,
        cleaner: Cleaner,
        first_dirty_offset: int | None,
        *,
        high_watermark: int,
        secret: bytes,
        clock_ms: Callable[[], int],
        limits: CleaningLimits | None = None,
    ) -> CleaningDone | None:
        """Clean everything that can be cleaned; None if there is nothing (rules C7 and C8).

        The caller stores the first dirty offset of the result. After CleaningAborted or
        CleaningFailed the old first dirty offset stays valid.
        """
        assert not self._cleaning, "a log is cleaned by one cleaner at a time"
        self._cleaning = True
        work = self._compact(cleaner, first_dirty_offset, high_watermark, secret, clock_ms, limits)
        try:
            return await self._until_aborted(work)
        finally:
            self._cleaning = False

    async def _until_aborted(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work that `abort` cancels."""
        try:
            task = self._task = asyncio.get_running_loop().create_task(work)
        except RuntimeError:
            return await work  # without a running loop nobody can cancel it
        try:
            return await task
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            raise CleaningAborted(
                f"{self._state.directory}: the log was closed during the cleaning"
            ) from None
        finally:
            self._task = None

    async def abort(self) -> None:
        """Cancel a running cleaning and wait until its files are removed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _compact(
        self,
        cleaner: Cleaner,
        first_dirty_offset: int | None,
        high_watermark: int,
        secret: bytes,
        clock_ms: Callable[[], int],
        limits: CleaningLimits | None,
    ) -> CleaningDone | None:
        state = self._state
        try:
            # A cleaner reads segments that are on the device, with index files.
            await self._flusher.flush()
            now_ms, truncations = clock_ms(), state.truncations
            cleanable = self._find_cleanable(first_dirty_offset, high_watermark, now_ms)
            if cleanable.end_offset <= cleanable.first_dirty_offset:
                return None
            job = self._job(cleanable, limits or CleaningLimits(), now_ms, secret)
            done: CleaningDone | None = None
            try:
                async with aclosing(cleaner.clean(state.disk, job)) as events:
                    async for event in events:
                        if isinstance(event, CleaningDone):
                            done = event
                        else:
                            await self._swap(event, truncations, clock_ms())
            except CleaningFailed as failure:
                if job.segments[0].base_offset < state.segments.first.base_offset:
                    raise self._segments_deleted() from failure
                raise
            assert done is not None, "a cleaner ends with CleaningDone or raises"
            self._check_not_truncated(truncations)
            return done
        finally:
            with suppress(StorageFailure, FileNotFoundError):
                await state.disk.blocking(lambda: remove_cleaned(state.disk, state.directory))

    def _job(
        self, cleanable: Cleanable, limits: CleaningLimits, now_ms: int, secret: bytes
    ) -> CleaningJob:
        """The job that cleans the log as it is now."""
        state, config = self._state, self._state.config
        segments = state.segments
        return CleaningJob(
            state.directory,
            tuple(
                SourceSegment(
                    segment.base_offset,
                    end_offset,
                    segment.size,
                    segment.offset_index.size,
                    segment.time_index.size,
                )
                for segment, end_offset in segments.with_end_offsets(state.log_end_offset)
                if segment.base_offset < cleanable.end_offset
            ),
            cleanable.first_dirty_offset,
            cleanable.end_offset,
            now_ms,
            config.delete_retention_ms,
            config.segment_bytes,
            config.index_bytes_max,
            config.index_interval_bytes,
            secret,
            tuple(
                ActiveProducer(producer.producer_id, producer.epoch, producer.last_offset)
                for producer in state.producers
            ),
            tuple(segments.aborted(segments.first.base_offset, cleanable.end_offset)),
            limits,
        )

    @uninterrupted
    async def _swap(self, group: CleanedGroup, truncations: int, now_ms: int) -> None:
        """Replace the old segments of a group by its cleaned ones."""
        state = self._state
        async with state.lock:
            state.check_usable()
            replaced = state.segments.at_bases(group.sources)
            self._check_not_truncated(truncations)
            if len(replaced) < len(group.sources):
                raise self._segments_deleted()
            bases = [Offset(output.base_offset) for output in group.outputs]
            disk, directory, created_ms = state.disk, state.directory, replaced[-1].created_ms
            new = await state.run_retryable(
                lambda: [open_cleaned(disk, directory, base, created_ms) for base in bases]
            )
            vanished = {segment.base_offset for segment in replaced}.difference(bases)
            snapshots = state.snapshots.forget_at(vanished)
            swapped: list[tuple[str, ...]] = []

            def carry_out() -> None:
                paths = [path for one in replaced for path in live_paths(disk, one)]
                swapped.append(swap(disk, directory, bases, [*paths, *snapshots]))

            try:
                await state.run_blocking(carry_out)
            finally:
                # Also after a cancellation: the disk completes a call that has started.
                for marked in swapped:
                    for segment in new:
                        mark_swapped(segment)
                    state.segments.replace(replaced, new)
                    state.forget_index_files_due(replaced)
                    due_ms = now_ms + state.config.file_delete_delay_ms
                    state.pending_deletes.append(PendingDelete(due_ms, marked))

    def _check_not_truncated(self, truncations: int) -> None:
        if self._state.truncations != truncations:
            raise CleaningAborted(
                f"{self._state.directory}: the log was truncated during the cleaning"
            )

    def _segments_deleted(self) -> CleaningAborted:
        return CleaningAborted(
            f"{self._state.directory}: segments were deleted during the cleaning"
        )
