"""How a log gets to the device, and how it ends.

Invariant: the recovery point moves only after everything below it is on the device (rule C1), and
what waits for the device is done in a thread, one thing at a time. After a failed sync nobody
knows what is there, so the log takes nothing more (rule C5); what it has stays readable.
"""

from collections.abc import Callable
from typing import TypeVar

from ottla.errors import DiskFull, ErrorCode, RequestError, StorageFailure
from ottla.ids import Offset
from ottla.log.appending import AppendableLog
from ottla.log.damage import format_damage
from ottla.log.flushing import FlushPlan
from ottla.log.names import LEADER_EPOCHS
from ottla.log.segment import Indexes
from ottla.log.shield import uninterrupted

T = TypeVar("T")


class DurableLog(AppendableLog):
    """A log that can be flushed and closed."""

    __slots__ = ()

    @uninterrupted
    async def flush(self, upto: int | None = None) -> None:
        """Put everything on the device, if the recovery point is below an offset (rule C1)."""
        async with self._work:
            self._check_usable()
            if upto is None or upto > self.recovery_point:
                await self._flush_all()

    async def _flush_all(self, *, last: bool = False) -> None:
        """What `flush` does, for those who hold the turn; the last one closes the files."""
        end = min(self.next_offset, self.segments.active.records_end)
        closed, due = list(self.closed), self.snapshots.due
        damage_file, damage = self.damage_file, format_damage(self.segments)
        untold = self._epochs_due or damage_file.is_due
        if self.recovery_point >= end and not (closed or due or untold):
            return
        epochs = (f"{self.folder}/{LEADER_EPOCHS}", self.epochs.format())
        plan = FlushPlan(
            self.folder,
            [segment.file for segment in self.segments.from_offset(self.recovery_point)],
            closed,
            due,
            epochs if self._epochs_due else None,
            last,
        )
        self._epochs_due = False

        def on_the_device() -> list[Indexes]:
            if damage_file.is_due:
                damage_file.store(damage)
            return plan.carry_out(self.disk, self.snapshots)

        try:
            stored = await self._repeatable(on_the_device)
        except DiskFull:
            self._epochs_due |= plan.epochs is not None
            raise
        for segment in closed:
            segment.written_size = segment.size
            self.closed.remove(segment)
        for segment, indexes in zip(closed, stored, strict=not last):
            segment.use_indexes(indexes)
        self.snapshots.note_written(due)
        self.recovery_point = Offset(max(self.recovery_point, end))
        if not self._epochs_due:
            self._note_stored_epochs()

    def _note_stored_epochs(self) -> None:
        """What the leader's epoch brings may be appended from now on."""
        self._epochs_due = False
        if self._epoch_unstored is not None:
            self._epoch, self._epoch_unstored = self._epoch_unstored, None

    async def _repeatable(self, call: Callable[[], T]) -> T:
        """The same as `_in_thread` for what can be done again when a full disk has room."""
        try:
            return await self.disk.blocking(call)
        except DiskFull:
            raise
        except StorageFailure as failure:
            self._failure = failure
            raise

    async def _in_thread(self, call: Callable[[], T]) -> T:
        """Do what waits for the device; if that fails the log takes nothing more (rule C5)."""
        try:
            return await self.disk.blocking(call)
        except StorageFailure as failure:
            self._failure = failure
            raise

    @uninterrupted
    async def close(self) -> None:
        """Stop cleanly: everything is on the device, so that the next start trusts it.

        The files are closed whatever comes of it: other logs need theirs.
        """
        async with self._work:
            self._check_usable()
            active = self.segments.active
            if active.indexes_due:
                self.closed.append(active)
            self.snapshots.take(self.next_offset, self.producers)
            self._failure = _gone("the log is closed")
            try:
                await self._flush_all(last=True)
            finally:
                self.let_go()

    def let_go(self) -> None:
        """Close the files; nothing is stored."""
        for segment in self.segments:
            for held in (segment.file, segment.offsets, segment.times):
                held.close()

    async def retire(self, reason: str) -> None:
        """Take nothing more, once what is being done to the device is done."""
        async with self._work:
            self.refuse(_gone(reason))


def _gone(reason: str) -> RequestError:
    """What a log answers that is not there any more: clients look for the leader again."""
    return RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, reason)
