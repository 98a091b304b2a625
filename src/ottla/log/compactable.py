"""How a log is compacted: by a cleaner, while it goes on, and by renaming files in the end.

Invariant: only closed segments that are on the device are replaced, all of a group or none, and
only if the log has not been cut and has not lost one of them since the cleaner was told of them.
Who reads an old segment reads on; its files are removed after file.delete.delay.ms.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from ottla.errors import StorageFailure
from ottla.ids import Offset
from ottla.log.cleanable import Cleanable, find_cleanable
from ottla.log.cleaned_segment import note_swapped, open_cleaned, remove_cleaned, swap
from ottla.log.cleaner import Cleaner, CleaningAborted, CleaningFailed
from ottla.log.cleaning import CleanedGroup, CleaningDone, CleaningLimits
from ottla.log.deletion import Doomed, live_paths
from ottla.log.durable import DurableLog
from ottla.log.reading import settled
from ottla.log.segment_facts import cleaning_job, know_first_timestamps, segment_dirt
from ottla.log.shield import uninterrupted
from ottla.settings.config_types import LONG_MAX

T = TypeVar("T")


class CompactableLog(DurableLog):
    """A log that keeps the last record of each key, when its owner asks for it."""

    __slots__ = ()

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """Up to where read_committed consumers read (rule E7), and cleanings clean."""
        return self.producers.last_stable_offset(high_watermark, self.log_start_offset)

    async def dirt(
        self, cleaned_until: int | None, *, high_watermark: int, now_ms: int
    ) -> Cleanable:
        """What there is to clean, the log having been cleaned up to an offset; None: never."""
        if self.rules.max_compaction_lag_ms < LONG_MAX:
            await settled(
                self.disk,
                lambda read: know_first_timestamps(self.segments, cleaned_until or 0, read),
            )
        return self._dirt(cleaned_until, high_watermark, now_ms)

    def _dirt(self, cleaned_until: int | None, high_watermark: int, now_ms: int) -> Cleanable:
        return find_cleanable(
            segment_dirt(self.disk, self.segments, self.next_offset),
            self.rules,
            first_dirty_offset=cleaned_until,
            log_start=self.log_start_offset,
            last_stable=self.last_stable_offset(Offset(high_watermark)),
            high_watermark=high_watermark,
            now_ms=now_ms,
        )

    async def compact(
        self,
        cleaner: Cleaner,
        cleaned_until: int | None,
        *,
        high_watermark: int,
        secret: bytes,
        clock_ms: Callable[[], int],
        limits: CleaningLimits | None = None,
    ) -> CleaningDone | None:
        """Clean all that may be cleaned, swapping segment by segment (rules C7 and C8).

        None when there is nothing. The owner stores the first dirty offset of the outcome, and
        only then: after CleaningAborted or CleaningFailed the old one is right.
        """
        assert not self._cleaning, "one cleaning at a time"
        self._cleaning = True
        work = self._compact(cleaner, cleaned_until, high_watermark, secret, clock_ms, limits)
        try:
            return await self._until_retired(work)
        finally:
            self._cleaning = False

    async def _until_retired(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of work that `retire` ends."""
        try:
            cleaning = self._cleaning_task = asyncio.get_running_loop().create_task(work)
        except RuntimeError:
            return await work  # no loop runs, so nobody can end it
        try:
            return await cleaning
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            raise CleaningAborted(f"{self.folder}: it was given up while it was cleaned") from None
        finally:
            self._cleaning_task = None

    async def retire(self, reason: str) -> None:
        """Take nothing more, and end a cleaning: it is over, and its files gone, after this.

        Or it would go on in the folder of the next partition that has this name.
        """
        await super().retire(reason)
        if self._cleaning_task is not None:
            self._cleaning_task.cancel()
            await asyncio.wait((self._cleaning_task,))

    async def _compact(
        self,
        cleaner: Cleaner,
        cleaned_until: int | None,
        high_watermark: int,
        secret: bytes,
        clock_ms: Callable[[], int],
        limits: CleaningLimits | None,
    ) -> CleaningDone | None:
        try:
            # What is cleaned is on the device with its indexes, and nobody writes there any more.
            await self.flush()
            now_ms, cuts = clock_ms(), self._cuts
            dirt = self._dirt(cleaned_until, high_watermark, now_ms)
            if dirt.end_offset <= dirt.first_dirty_offset:
                return None
            job = cleaning_job(self, dirt, limits or CleaningLimits(), now_ms, secret)
            done: CleaningDone | None = None
            try:
                async with aclosing(cleaner.clean(self.disk, job)) as news:
                    async for one in news:
                        if isinstance(one, CleaningDone):
                            done = one
                        else:
                            await self._swap(one, cuts, clock_ms())
            except CleaningFailed as failure:
                if job.segments[0].base_offset < self.segments.first.base_offset:
                    raise CleaningAborted(
                        f"{self.folder}: segments were deleted while it was cleaned"
                    ) from failure
                raise
            assert done is not None, "a cleaner says when it is done, or why it is not"
            self._check_uncut(cuts)
            return done
        finally:
            with suppress(StorageFailure, FileNotFoundError):
                await self.disk.blocking(lambda: remove_cleaned(self.disk, self.folder))

    def _check_uncut(self, cuts: int) -> None:
        if self._cuts != cuts:
            raise CleaningAborted(f"{self.folder}: it was cut while it was cleaned")

    @uninterrupted
    async def _swap(self, group: CleanedGroup, cuts: int, now_ms: int) -> None:
        async with self._work:
            self._check_usable()
            replaced = self.segments.of_bases(group.sources)
            self._check_uncut(cuts)
            if len(replaced) < len(group.sources):
                raise CleaningAborted(f"{self.folder}: segments were deleted while it was cleaned")
            bases = [Offset(output.base_offset) for output in group.outputs]
            disk, folder, created_ms = self.disk, self.folder, replaced[-1].created_ms
            new = await self._repeatable(
                lambda: [open_cleaned(disk, folder, base, created_ms) for base in bases]
            )
            vanished = {segment.base_offset for segment in replaced}.difference(bases)
            snapshots = self.snapshots.forget_at(vanished)
            swapped: list[tuple[str, ...]] = []

            def on_the_device() -> None:
                paths = [path for one in replaced for path in live_paths(disk, one)]
                swapped.append(swap(disk, folder, bases, [*paths, *snapshots]))

            try:
                await self._in_thread(on_the_device)
            finally:
                # Also when this was cancelled: the disk has done what it has begun.
                for marked in swapped:
                    for segment in new:
                        note_swapped(segment)
                    self.segments.replace(replaced, new)
                    self.closed = [one for one in self.closed if one not in replaced]
                    due_ms = now_ms + self.rules.file_delete_delay_ms
                    self.doomed.append(Doomed(due_ms, marked))
