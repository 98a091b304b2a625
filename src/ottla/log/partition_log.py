"""The log of one partition: appends, reads, flushes, truncation, retention, compaction, scrubbing.

Each part owns one subject; all of them work on one `LogState`. State changes on the event loop.
Calls that wait for the device run in threads, one at a time.

The owner of the log stores the recovery point and the log start offset in its checkpoints.
`truncate_to` and `truncate_fully_and_start_at` may lower the recovery point: the owner stores it
before the next append.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ottla.errors import OttlaError
from ottla.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from ottla.log.appender import Appended, Appender
from ottla.log.cached_reads import RecordSlice
from ottla.log.cleaner.cleanable import Cleanable
from ottla.log.cleaner.cleaner_runners import Cleaner
from ottla.log.cleaner.compaction import CleaningDone, CleaningLimits
from ottla.log.cleaner.log_cleaning import LogCleaning
from ottla.log.damage import Damage
from ottla.log.disk import Disk, Reader
from ottla.log.epochs import EpochEnd, EpochHistory
from ottla.log.flusher import Flusher
from ottla.log.log_config import LogConfig
from ottla.log.log_reader import LogReader
from ottla.log.log_state import LogState, log_closed
from ottla.log.producer_state_manager import ProducerStateManager
from ottla.log.recovery.log_recovery import Progress, recover_log
from ottla.log.scrubber import Pause, Scrubber
from ottla.log.segment.segment import Segment
from ottla.log.segment.segments import Segments
from ottla.log.segment.timestamps import FoundOffset
from ottla.log.segment.txn_index import AbortedTransaction
from ottla.log.segment_deletion import SegmentDeletion
from ottla.log.snapshots import Snapshots
from ottla.log.truncation import Truncation
from ottla.protocol.primitives import Buffer
from ottla.records.control import EndTxnMarker


class PartitionLog:
    """An open log; `open_log` opens it."""

    __slots__ = (
        "_appender",
        "_cleaning",
        "_deletion",
        "_flusher",
        "_reader",
        "_scrubber",
        "_state",
        "_truncation",
        "append",
        "read_cached",
    )

    def __init__(self, state: LogState, random: Callable[[], float]) -> None:
        self._state = state
        self._appender = Appender(state, random)
        self._flusher = Flusher(state)
        self._scrubber = Scrubber(state)
        self._reader = LogReader(state, self._scrubber)
        self._truncation = Truncation(state, self._scrubber)
        self._deletion = SegmentDeletion(state, self._appender, self._flusher, self._scrubber)
        self._cleaning = LogCleaning(state, self._flusher)
        # The two calls of the hot path go to their parts without a call in between.
        self.append = self._appender.append
        self.read_cached = self._reader.read_cached

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}"
            f"({self.directory}, {self.log_start_offset} to {self.log_end_offset})"
        )

    # State.

    @property
    def state(self) -> LogState:
        """The state that the parts of the log share; the fast path of Produce changes it, too."""
        return self._state

    @property
    def disk(self) -> Disk:
        """The file system that holds the log."""
        return self._state.disk

    @property
    def directory(self) -> str:
        """The path of the partition's directory."""
        return self._state.directory

    @property
    def config(self) -> LogConfig:
        """The topic configuration; a changed configuration replaces it."""
        return self._state.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._state.config = config

    @property
    def segments(self) -> Segments:
        """The segments in offset order."""
        return self._state.segments

    @property
    def epochs(self) -> EpochHistory:
        """The leader epochs and their start offsets."""
        return self._state.epochs

    @property
    def producers(self) -> ProducerStateManager:
        """The state of idempotent and transactional producers."""
        return self._state.producers

    @property
    def snapshots(self) -> Snapshots:
        """The producer snapshots on the disk."""
        return self._state.snapshots

    @property
    def log_start_offset(self) -> Offset:
        """The first offset that can be read."""
        return self._state.log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        """The offset of the next record."""
        return self._state.log_end_offset

    @property
    def recovery_point(self) -> Offset:
        """Everything below this offset is on the device."""
        return self._state.recovery_point

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """The upper bound for read_committed consumers (rule E7) and for cleanings."""
        return self._state.last_stable_offset(high_watermark)

    # Appends.

    def append_marker(
        self,
        marker: EndTxnMarker,
        *,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        transaction_version: int,
        leader_epoch: int,
        now_ms: int,
    ) -> Appended:
        """Append a transaction marker that the transaction coordinator sent (rule E4)."""
        return self._appender.append_marker(
            marker,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_version=transaction_version,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
        )

    def append_replicated(self, data: Buffer, *, fetched_offset: int, now_ms: int) -> None:
        """Append batches that a follower fetched from the leader, unchanged (rule A16)."""
        self._appender.append_replicated(data, fetched_offset=fetched_offset, now_ms=now_ms)

    def roll(self, now_ms: int, base_offset: Offset | None = None) -> Segment:
        """Close the active segment and create the next one, by default at the log end offset."""
        return self._appender.roll(now_ms, base_offset)

    # Reads.

    async def read(
        self, offset: int, upper_offset: int, bytes_max: int, reader: Reader = Reader.BROKER
    ) -> RecordSlice:
        """Return what `read_cached` returns; wait for the device if necessary."""
        return await self._reader.read(offset, upper_offset, bytes_max, reader)

    async def find_timestamp(self, timestamp: int) -> FoundOffset | None:
        """Return the first record with this timestamp or a later one."""
        return await self._reader.find_timestamp(timestamp)

    async def find_max_timestamp(self) -> FoundOffset | None:
        """Return the first record with the largest timestamp."""
        return await self._reader.find_max_timestamp()

    def aborted_transactions(
        self, fetch_offset: int, upper_offset: int
    ) -> list[AbortedTransaction]:
        """Return the aborted transactions with records between two offsets."""
        return self._state.segments.aborted(fetch_offset, upper_offset)

    # Leader epochs.

    def begin_epoch(self, epoch: LeaderEpoch) -> None:
        """Lead from the log end offset on; the flush of its first record stores it (rule A1)."""
        self._state.begin_epoch(epoch)

    def end_offset(self, epoch: int) -> EpochEnd | None:
        """Return where an epoch ends in this log (rule A2)."""
        return self._state.epochs.end_offset(epoch, self._state.log_end_offset)

    # Flushes.

    async def flush(self, upto: int | None = None) -> None:
        """Put everything on the device; skipped if the recovery point reaches `upto` (rule C1)."""
        await self._flusher.flush(upto)

    @property
    def flush_files_due(self) -> bool:
        """Whether a flush has files to write even if every record is on the device."""
        return self._flusher.files_due

    @property
    def flush_retry_due(self) -> bool:
        """Whether a flush must store what a full disk had no space for."""
        return self._flusher.retry_due

    # Truncation.

    @property
    def is_truncating(self) -> bool:
        """Whether a truncation is under way, which may replace the file of the active segment."""
        return self._state.truncating

    async def truncate_to(self, offset: int) -> None:
        """Truncate the log to an offset, or to the start of the batch that holds it (rule A2)."""
        await self._truncation.truncate_to(offset)

    async def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Delete every record and start the log at an offset (rule A17)."""
        await self._truncation.truncate_fully_and_start_at(offset)

    # Deletion.

    def advance_log_start(self, offset: Offset) -> None:
        """Raise the log start offset (DeleteRecords, rule A17); files are deleted by retention."""
        self._deletion.advance_log_start(offset)

    async def delete_old_segments(self, *, high_watermark: int, now_ms: int) -> int:
        """Delete the segments that retention does not keep; return their number."""
        return await self._deletion.delete_old_segments(
            high_watermark=high_watermark, now_ms=now_ms
        )

    @property
    def has_pending_deletes(self) -> bool:
        """Whether deleted files wait to be removed."""
        return bool(self._state.pending_deletes)

    async def purge(self, now_ms: int) -> None:
        """Remove the deleted files whose file.delete.delay.ms is over."""
        await self._deletion.purge(now_ms)

    # Compaction.

    async def find_cleanable(
        self, first_dirty_offset: int | None, *, high_watermark: int, now_ms: int
    ) -> Cleanable:
        """Return what can be cleaned; `first_dirty_offset` is None if the log was never cleaned."""
        return await self._cleaning.find_cleanable(
            first_dirty_offset, high_watermark=high_watermark, now_ms=now_ms
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
        """Clean everything that can be cleaned; None if there is nothing (rules C7 and C8)."""
        return await self._cleaning.compact(
            cleaner,
            first_dirty_offset,
            high_watermark=high_watermark,
            secret=secret,
            clock_ms=clock_ms,
            limits=limits,
        )

    # Damage.

    @property
    def damaged(self) -> tuple[Damage, ...]:
        """The known damage, in offset order."""
        return self._state.damaged

    @property
    def is_damaged(self) -> bool:
        """Whether damage is known; faster than `damaged`."""
        return not self._state.damage_file.is_empty

    async def scrub(self, pause: Pause) -> tuple[Damage, ...]:
        """Check every batch of the log, at the caller's pace; return the damage."""
        return await self._scrubber.scrub(pause)

    async def repair(self, damage: Damage, records: Buffer) -> Damage | None:
        """Replace damage by the records of another replica; return what is left of it.

        Raises CorruptRecords if the records do not fit.
        """
        return await self._scrubber.repair(damage, records)

    # The end.

    def fail(self, failure: OttlaError) -> None:
        """Reject every later change; reads still work."""
        self._state.fail(failure)

    async def retire(self, reason: str) -> None:
        """Reject every later change and abort a cleaning, before the partition is deleted.

        A cleaning that went on would write to the directory of the next partition of this name.
        """
        async with self._state.lock:
            self._state.fail(log_closed(reason))
        await self._cleaning.abort()

    async def close(self) -> None:
        """Close the log cleanly: everything is on the device, so that the next start trusts it."""
        await self._flusher.close()

    def close_files(self) -> None:
        """Close every file without flushing."""
        self._state.close_files()


@dataclass(slots=True)
class OpenedLog:
    """An open log, and notes on what its recovery repaired."""

    log: PartitionLog
    notes: list[str]


def open_log(
    disk: Disk,
    directory: str,
    config: LogConfig,
    *,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    clean: bool,
    now_ms: int,
    random: Callable[[], float],
    progress: Progress = lambda done, total: None,
) -> OpenedLog:
    """Open the log in a partition's directory; waits for the device.

    `clean` says that the last shutdown was clean, so that the files need no check. Recovery point
    and log start offset come from the checkpoints.
    """
    recovered = recover_log(
        disk,
        directory,
        config,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        clean=clean,
        now_ms=now_ms,
        progress=progress,
    )
    return OpenedLog(PartitionLog(recovered.state, random), recovered.notes)
