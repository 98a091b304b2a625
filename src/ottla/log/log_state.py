"""The state that the parts of one partition's log share.

Invariant: `log_start_offset <= log_end_offset` and `recovery_point <= log_end_offset`. State
changes on the event loop only. A coroutine that changes files of the log holds `lock`.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import TypeVar

from ottla.errors import ErrorCode, OttlaError, RequestError, StorageExhausted, StorageFailure
from ottla.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset
from ottla.log.damage import Damage, DamageFile
from ottla.log.disk import Disk, write_atomically
from ottla.log.epochs import EpochHistory
from ottla.log.log_config import LogConfig
from ottla.log.names import LEADER_EPOCHS
from ottla.log.producer_state_manager import ProducerStateManager
from ottla.log.segment.segment import Segment
from ottla.log.segment.segment_files import PendingDelete
from ottla.log.segment.segments import Segments
from ottla.log.snapshots import Snapshots

T = TypeVar("T")


class LogState:
    """Segments, offsets, leader epochs, producers and failure of one log."""

    __slots__ = (
        "config",
        "damage_file",
        "directory",
        "disk",
        "epoch_begun",
        "epochs",
        "epochs_dirty",
        "failure",
        "index_files_due",
        "leader_epoch",
        "lock",
        "log_end_offset",
        "log_start_offset",
        "pending_deletes",
        "producers",
        "recovery_point",
        "segments",
        "snapshots",
        "truncating",
        "truncations",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        *,
        segments: Segments,
        epochs: EpochHistory,
        producers: ProducerStateManager,
        snapshots: Snapshots,
        damage_file: DamageFile,
        log_start_offset: Offset,
        log_end_offset: Offset,
        recovery_point: Offset,
        epochs_dirty: bool = False,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.config = config
        self.segments = segments
        self.epochs = epochs
        self.epochs_dirty = epochs_dirty  # the leader epoch checkpoint is older than `epochs`
        self.epoch_begun = False  # the latest epoch is not in the checkpoint
        self.producers = producers
        self.snapshots = snapshots
        self.damage_file = damage_file
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self.index_files_due: list[Segment] = []  # closed segments without current index files
        self.pending_deletes: list[PendingDelete] = []
        self.leader_epoch = NO_LEADER_EPOCH  # in which this replica leads
        self.failure: OttlaError | None = None
        self.truncating = False
        self.truncations = 0  # lets a slow reader detect that the log was truncated meanwhile
        self.lock = asyncio.Lock()

    # Failure.

    def check_usable(self) -> None:
        """Raise if the log has failed or is closed."""
        if isinstance(self.failure, StorageFailure):
            raise StorageFailure(f"{self.directory}: the log has failed: {self.failure}")
        if self.failure is not None:
            raise self.failure
        assert not self.truncating, "the log is being truncated"

    def fail(self, failure: OttlaError) -> None:
        """Reject every later change; reads still work. The first failure is kept."""
        self.failure = self.failure or failure

    async def run_blocking(self, call: Callable[[], T]) -> T:
        """Run a call that waits for the device; the log fails if the call fails (rule C5)."""
        try:
            return await self.disk.blocking(call)
        except StorageFailure as failure:
            self.failure = failure
            raise

    async def run_retryable(self, call: Callable[[], T]) -> T:
        """Run a call that can be repeated after StorageExhausted; another failure fails the log."""
        try:
            return await self.disk.blocking(call)
        except StorageExhausted:
            raise
        except StorageFailure as failure:
            self.failure = failure
            raise

    # Leader epochs.

    @property
    def epochs_path(self) -> str:
        """The path of the leader epoch checkpoint."""
        return f"{self.directory}/{LEADER_EPOCHS}"

    def begin_epoch(self, epoch: LeaderEpoch) -> None:
        """Lead from the log end offset on; the flush of its first record stores it (rule A1)."""
        self.check_usable()
        self.leader_epoch = epoch
        self.epochs_dirty = self.epochs_due  # the epoch before may have records
        self.epoch_begun |= self.epochs.assign(epoch, self.log_end_offset)

    @property
    def epochs_due(self) -> bool:
        """Whether the next flush stores the checkpoint; an epoch without records does not count.

        The next start drops such an epoch.
        """
        latest = self.epochs.latest
        has_records = latest is not None and latest.start_offset < self.log_end_offset
        return self.epochs_dirty or (self.epoch_begun and has_records)

    async def store_epochs(self, epochs: EpochHistory) -> None:
        """Write the leader epoch checkpoint; on the device when this returns."""
        data = epochs.format().encode()
        await self.run_retryable(lambda: write_atomically(self.disk, self.epochs_path, data))
        self.epochs = epochs
        self.mark_epochs_stored()

    def mark_epochs_stored(self) -> None:
        """Record that the checkpoint has every epoch."""
        self.epochs_dirty = self.epoch_begun = False

    # Producers and segments.

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """The upper bound for read_committed consumers (rule E7) and for cleanings."""
        return self.producers.last_stable_offset(high_watermark, self.log_start_offset)

    @property
    def damaged(self) -> tuple[Damage, ...]:
        """The known damage, in offset order."""
        return tuple(one for segment in self.segments for one in segment.damaged)

    def forget_index_files_due(self, removed: Collection[Segment]) -> None:
        """Do not write index files of segments that are no longer part of the log."""
        self.index_files_due = [one for one in self.index_files_due if one not in removed]

    def close_files(self) -> None:
        """Close every file without flushing."""
        for segment in self.segments:
            for open_file in (segment.file, segment.offset_index, segment.time_index):
                open_file.close()


def log_closed(reason: str) -> RequestError:
    """The error of a log that is closed or deleted: clients look up the leader again."""
    return RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, reason)
