"""Flushes one log: what a flush writes, when it is due, and group commit.

Invariant: the recovery point advances only after everything below it is on the device (rule C1).
A flush syncs the records first, then writes index files, producer snapshots and leader epochs, and
syncs the directory. One flush at a time covers everything that was appended before it started.
After a failed sync nobody knows what is on the device, so the log fails (rule C5); reads still
work.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ottla.errors import StorageExhausted
from ottla.ids import Offset
from ottla.log.damage import format_damage
from ottla.log.disk import Disk, File, write_atomically
from ottla.log.log_config import LogConfig
from ottla.log.log_state import LogState, log_closed
from ottla.log.offset_waiters import OffsetWaiter, OffsetWaiters
from ottla.log.segment.segment import Indexes, Segment
from ottla.log.shield import uninterrupted
from ottla.log.snapshots import Snapshots


def flush_due(config: LogConfig, *, unflushed_messages: int, since_flush_ms: int) -> bool:
    """Whether flush.messages or flush.ms requires a flush."""
    return unflushed_messages > 0 and (
        unflushed_messages >= config.flush_messages or since_flush_ms >= config.flush_ms
    )


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """One flush: planned on the event loop, carried out in a thread."""

    directory: str
    files: Sequence[File]
    closed: Sequence[Segment]  # whose index files are not written yet
    snapshots: Mapping[Offset, bytes]
    epochs: tuple[str, str] | None  # path and text of the leader epoch checkpoint, if it changed
    final: bool = False  # the log is closed afterwards

    def carry_out(self, disk: Disk, snapshots: Snapshots) -> list[Indexes]:
        """Put all of it on the device; return the indexes of the closed segments, opened.

        A final flush opens none. It closes the records files before it writes other files, so that
        a broker that stops does not need more file descriptors than it has.
        """
        for file in self.files:
            file.sync()
        for file in self.files if self.final else ():
            file.close()
        for segment in self.closed:
            segment.write_indexes(disk)
        snapshots.write(self.snapshots)
        disk.sync_directory(self.directory)
        if self.epochs is not None:
            path, text = self.epochs
            write_atomically(disk, path, text.encode())
        return [] if self.final else [segment.open_indexes(disk) for segment in self.closed]


class Flusher:
    """Flushes and closes a log."""

    __slots__ = ("_state",)

    def __init__(self, state: LogState) -> None:
        self._state = state

    @property
    def retry_due(self) -> bool:
        """Whether a flush must store what a full disk had no space for."""
        return self._state.damage_file.is_due

    @property
    def files_due(self) -> bool:
        """Whether a flush has files to write even if every record is on the device."""
        state = self._state
        return bool(state.index_files_due) or state.snapshots.are_due or self.retry_due

    @uninterrupted
    async def flush(self, upto: int | None = None) -> None:
        """Put everything on the device; skipped if the recovery point reaches `upto` (rule C1)."""
        state = self._state
        async with state.lock:
            state.check_usable()
            if upto is None or upto > state.recovery_point:
                await self.flush_locked()

    async def flush_locked(self, *, final: bool = False) -> None:
        """Flush; the caller holds the lock. A final flush closes the records files."""
        state = self._state
        end = min(state.log_end_offset, state.segments.active.records_end)
        closed, snapshots = list(state.index_files_due), state.snapshots.due
        damage_file, damage = state.damage_file, format_damage(state.segments)
        if state.recovery_point >= end and not (
            closed or snapshots or state.epochs_due or damage_file.is_due
        ):
            return
        epochs = (state.epochs_path, state.epochs.format()) if state.epochs_due else None
        plan = FlushPlan(
            state.directory,
            [segment.file for segment in state.segments.from_offset(state.recovery_point)],
            closed,
            snapshots,
            epochs,
            final,
        )
        if epochs is not None:
            state.mark_epochs_stored()  # an epoch that begins meanwhile is for the next flush

        def carry_out() -> list[Indexes]:
            if damage_file.is_due:
                damage_file.store(damage)
            return plan.carry_out(state.disk, state.snapshots)

        try:
            opened = await state.run_retryable(carry_out)
        except StorageExhausted:
            state.epochs_dirty |= epochs is not None
            raise
        for segment in closed:
            segment.file = segment.file.released()
            segment.indexed_size = segment.size
            state.index_files_due.remove(segment)
        for segment, indexes in zip(closed, opened, strict=not final):
            segment.use_indexes(indexes)
        state.snapshots.mark_written(snapshots)
        state.recovery_point = Offset(max(state.recovery_point, end))

    @uninterrupted
    async def close(self) -> None:
        """Close the log cleanly: everything is on the device, so that the next start trusts it.

        The files are closed even if the flush fails, because other logs need file descriptors.
        """
        state = self._state
        async with state.lock:
            state.check_usable()
            active = state.segments.active
            if active.size and active.indexes_due:
                state.index_files_due.append(active)
            snapshots, producers = state.snapshots, state.producers
            if state.segments.size or producers.count or snapshots.offsets:
                snapshots.take(state.log_end_offset, producers)  # nothing to replay at the start
            state.fail(log_closed("the log is closed"))
            try:
                await self.flush_locked(final=True)
            finally:
                state.close_files()


class Flushable(Protocol):
    """What a group commit needs of a log."""

    @property
    def recovery_point(self) -> Offset:
        """Everything below this offset is on the device."""
        ...

    @property
    def config(self) -> LogConfig:
        """The configuration of the log."""
        ...

    def flush(self) -> Awaitable[None]:
        """Advance the recovery point to the current log end offset."""
        ...


class GroupCommit:
    """Delays acknowledgements until a flush; requests that arrive during a flush share the next.

    The broker acknowledges an append for which a flush is `wanted` after `durable` returns, or when
    its waiter is finished. One task flushes for all waiters, and exists only while there are some.

    Invariant: what waits when `fail` is called is never acknowledged. A truncation calls it first,
    because another record can get the offset afterwards.
    """

    __slots__ = ("_failure", "_lock", "_log", "_parallel", "_task", "_waiters")

    def __init__(self, log: Flushable, parallel: asyncio.Semaphore | None = None) -> None:
        """A group commit; `parallel` limits the flushes of several logs at the same time."""
        self._log = log
        self._lock = asyncio.Lock()
        self._parallel = parallel or asyncio.Semaphore()
        self._waiters = OffsetWaiters()
        self._task: asyncio.Task[None] | None = None
        self._failure: Exception | None = None  # of the last call of `fail`, another one each time

    def wanted(self, offset: int) -> bool:
        """Whether flush.messages requires a flush when the log end offset is `offset`."""
        unflushed = offset - self._log.recovery_point
        return flush_due(self._log.config, unflushed_messages=unflushed, since_flush_ms=0)

    async def durable(self, offset: int) -> None:
        """Return when everything below `offset` is on the device; raises what `fail` is given."""
        before = self._failure
        while self._log.recovery_point < offset:
            async with self._lock, self._parallel:
                if self._failure is before and self._log.recovery_point < offset:
                    await self._log.flush()
            self._raise_unless(before)

    def _raise_unless(self, before: Exception | None) -> None:
        if self._failure is not before and self._failure is not None:
            raise self._failure

    def add(self, waiter: OffsetWaiter) -> None:
        """Finish a waiter when everything below its offset is on the device; flushes for it."""
        self._waiters.add(waiter)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._flush_for_waiters())

    def remove(self, waiter: OffsetWaiter) -> None:
        """Forget a waiter; the flush goes on."""
        self._waiters.remove(waiter)

    def fail(self, failure: Exception) -> None:
        """Finish every waiter with a failure, and let every `durable` raise it."""
        self._failure = failure
        self._waiters.fail_all(failure)

    async def _flush_for_waiters(self) -> None:
        waiters = self._waiters
        try:
            while waiters:
                upto = waiters.offset_max  # those that are added meanwhile share the next flush
                before = self._failure
                failure: Exception | None = None
                try:
                    await self.durable(upto)
                except Exception as error:
                    failure = error
                if self._failure is not before:
                    continue  # those that waited have failed; others were added since
                waiters.finish_up_to(self._log.recovery_point)
                if failure is not None:
                    waiters.finish_up_to(upto, failure)
        finally:
            self._task = None
