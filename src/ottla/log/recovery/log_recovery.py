"""Recovers the log of a partition when it is opened.

Invariant: everything that was on the device is served again, and nothing that is damaged. After an
unclean shutdown every batch from the recovery point on is checked; the log is truncated at the
first invalid batch (rule C3). If valid batches follow it, they are set aside before they are cut
off, so that an interrupted recovery loses none. Nothing below the recovery point is truncated:
damage there is kept, and a segment with damage is scanned as a whole (rule C4). Indexes, leader
epochs and producer state are rebuilt where files are missing, wrong, or older than the records
(rule D3). A truncation is on the device before the first append, so that the old records cannot
reappear between new ones. A log can be opened and read on a full disk, unless there is no space to
set records aside.

The functions wait for the device, so they run in a thread.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from ottla.errors import StorageExhausted, StorageFailure
from ottla.ids import Offset
from ottla.log.cached_reads import read_blocking
from ottla.log.damage import Damage, DamageFile, format_damage, records_missing
from ottla.log.disk import Disk, read_whole, write_atomically
from ottla.log.epochs import EpochHistory, EpochStart
from ottla.log.errors import CorruptFile, CorruptIndex, CorruptText
from ottla.log.log_config import LogConfig
from ottla.log.log_state import LogState
from ottla.log.names import DAMAGED_OFFSETS, LEADER_EPOCHS, FileState, Kind, offset_file
from ottla.log.producer_state_manager import ProducerStateManager
from ottla.log.recovery.batch_scan import BatchScan, ScanBounds, ScanResult
from ottla.log.recovery.crash_cleanup import clean_up_after_crash
from ottla.log.recovery.replay import find_epoch_starts, replay_producers
from ottla.log.recovery.resync import valid_batch_at
from ottla.log.recovery.scan_rebuild import ScanRebuild
from ottla.log.segment.batch_headers import BrokenSegment
from ottla.log.segment.index import OffsetIndex, TimeIndex
from ottla.log.segment.segment import RELATIVE_MAX, Segment
from ottla.log.segment.segment_files import remove_all, remove_segments
from ottla.log.segment.segments import Segments
from ottla.log.segment.timestamps import verify_latest
from ottla.log.segment.txn_index import TransactionIndex
from ottla.log.set_aside import copy_aside, move_aside
from ottla.log.snapshots import Snapshots
from ottla.records.batch import BatchHeader

_LOG = logging.getLogger(__name__)

_NO_END: Final = 2**63 - 1  # larger than every offset

Progress = Callable[[int, int], None]
"""Called with the number of bytes checked and the total."""


@dataclass(slots=True)
class Recovered:
    """The state of an open log, and notes on what was repaired."""

    state: LogState
    notes: list[str] = field(default_factory=list[str])


def recover_log(
    disk: Disk,
    directory: str,
    config: LogConfig,
    *,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    clean: bool,
    now_ms: int,
    progress: Progress = lambda done, total: None,
) -> Recovered:
    """Recover the log in a partition's directory; create the directory if it is missing.

    `clean` says that the last shutdown was clean, so that the files need no check. Recovery point
    and log start offset come from the checkpoints.
    """
    if not disk.exists(directory):
        disk.make_directory(directory)
        disk.sync_directory(directory.rpartition("/")[0] or "/")
    suspects: dict[Offset, str] = {}
    while True:
        try:
            recovery = _Recovery(
                disk, directory, config, recovery_point, log_start_offset, clean, now_ms, suspects
            )
            return recovery.run(progress)
        except BrokenSegment as broken:
            # Possibly below the recovery point: the next attempt scans the whole segment.
            if broken.base_offset in suspects:
                raise StorageFailure(str(broken)) from broken  # the scan did not help
            suspects[broken.base_offset] = str(broken)


class _ValidBatches:
    """The observer of a scan that counts the valid batches."""

    def __init__(self, end: Offset) -> None:
        self.count = 0
        self.first_offset = self.end_offset = end

    def batches(self, position: int, headers: Sequence[BatchHeader]) -> None:
        """Count batches."""
        if not self.count:
            self.first_offset = headers[0].base_offset
        self.count += len(headers)
        self.end_offset = headers[-1].next_offset

    def damage(self, damage: Damage) -> None:
        """Ignore damage between them."""


class _Recovery:
    """The steps that recover one log, and their results."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        recovery_point: int,
        log_start_offset: int,
        clean: bool,
        now_ms: int,
        suspects: Mapping[Offset, str],
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.config = config
        self.recovery_point = recovery_point
        self.log_start = Offset(log_start_offset)
        self.clean = clean
        self.now_ms = now_ms
        inventory = clean_up_after_crash(disk, directory)
        self.notes = inventory.notes
        self.names = inventory.names  # of the files that were there
        self.notes += [f"{problem}: the whole segment is scanned" for problem in suspects.values()]
        self.snapshots = Snapshots(disk, directory, inventory.snapshots)
        self.segments = [
            self._open_segment(base, is_last=base == inventory.bases[-1])
            for base in inventory.bases
        ]
        self.suspects = suspects
        self.damage_file = DamageFile(disk, directory)
        self._load_damage()
        self.epoch_starts: list[EpochStart] = []  # of the batches that were checked
        self.rebuilt: list[Segment] = []  # segments with rebuilt indexes
        self.epochs = EpochHistory()
        self.epochs_dirty = False  # the checkpoint is older than `epochs`
        self.all_checked = False  # every batch of the log
        self.sync_due = False  # a file was removed that must not reappear

    def run(self, progress: Progress) -> Recovered:
        is_empty = len(self.segments) == 1 and not self.segments[0].size
        tail = [] if self.clean or not self.segments or is_empty else self._unflushed()
        suspects = {*self.suspects, *(s.base_offset for s in self.segments if self._is_emptied(s))}
        unchecked = [s for s in self.segments if s in tail or s.base_offset in suspects]
        self.all_checked = is_empty or len(unchecked) == len(self.segments)
        for segment in self.segments:
            if segment not in unchecked:
                self._load_indexes(segment)
        at_the_end = unchecked == self.segments[len(self.segments) - len(unchecked) :]
        producers: ProducerStateManager | None = None
        if unchecked:
            if at_the_end:
                # Producers are replayed during the check, so that batches are read once.
                until = unchecked[0].base_offset
                producers = replay_producers(
                    Segments(self.segments), self.snapshots, until, self.rebuilt
                )
            total = sum(segment.size for segment in unchecked)
            self._check(unchecked, producers, lambda done: progress(done, total))
            progress(total, total)
        end = self._end()
        if end < self.recovery_point:
            self.notes.append(
                f"{self.directory}: the log end offset {end} is below the recovery point "
                f"{self.recovery_point}: records are missing, or the log was truncated before the "
                f"checkpoint was written"
            )
        restart = self.log_start > end
        if restart:
            self.notes.append(
                f"{self.directory}: the log end offset {end} is below the log start offset "
                f"{self.log_start}: every record is deleted"
            )
            remove_segments(self.disk, self.directory, self.segments)
            self._remove_snapshots(above=-1)
            self.rebuilt.clear()
            self._begin_at(self.log_start)
            producers, end = ProducerStateManager(), self.log_start
        self.log_start = max(self.log_start, self.segments[0].base_offset)
        segments = Segments(self.segments)
        self._load_epochs(segments, Offset(0) if restart else end, restart=restart)
        self._remove_snapshots(above=end)
        if producers is None:
            producers = replay_producers(segments, self.snapshots, end, self.rebuilt)
        remove_all(self.disk, self.snapshots.forget_unaligned(one.base_offset for one in segments))
        state = LogState(
            self.disk,
            self.directory,
            self.config,
            segments=segments,
            epochs=self.epochs,
            producers=producers,
            snapshots=self.snapshots,
            damage_file=self.damage_file,
            log_start_offset=self.log_start,
            log_end_offset=end,
            # Valid records may be in the page cache only: the next flush advances it.
            recovery_point=Offset(min(self.recovery_point, end)),
            epochs_dirty=self.epochs_dirty,
        )
        state.index_files_due += self._store(segments)
        return Recovered(state, self.notes)

    # Segments.

    def _open_segment(self, base: Offset, *, is_last: bool) -> Segment:
        path = f"{self.directory}/{offset_file(base, Kind.RECORDS)}"
        file = self.disk.open(path)
        created_ms = self.disk.modified_ms(path)
        size = file.size()
        if not is_last:
            file = file.released()
        return Segment(self.directory, base, file, size=size, created_ms=created_ms)

    def _begin_at(self, offset: Offset) -> None:
        self.segments = [Segment.create(self.disk, self.directory, offset, self.now_ms)]

    def _end(self) -> Offset:
        """Make the last segment active and return the log end offset."""
        if not self.segments:
            self._begin_at(self.log_start)
            return self.log_start
        active = self.segments[-1]
        active.file = active.file.held()
        verify_latest(active, read_blocking)
        last = active.reactivate(self.config.index_interval_bytes, read_blocking)
        end = active.base_offset if last is None else Offset(last.last_offset + 1)
        ended_here = active.base_offset < self.recovery_point and self.clean
        if ended_here and end != self.recovery_point and active.base_offset not in self.suspects:
            raise BrokenSegment(
                active.base_offset,
                f"{active.file.path}: the log end offset is {end}, expected {self.recovery_point}",
            )
        if active.damaged and active.damaged[-1].end == active.size:
            # Never append after a damaged range: its end offset is not certain.
            self.segments.append(Segment.create(self.disk, self.directory, end, self.now_ms))
        return end

    def _unflushed(self) -> list[Segment]:
        """The segments that reach the recovery point.

        This includes the segment that ends there: its index files are written after the recovery
        point was reached.
        """
        ends = [*(segment.base_offset for segment in self.segments[1:]), Offset(2**63 - 1)]
        return [
            segment
            for segment, end in zip(self.segments, ends, strict=True)
            if end >= self.recovery_point
        ]

    def _is_emptied(self, segment: Segment) -> bool:
        """Whether a closed segment has lost all its records: only its indexes have entries.

        A cleaning that keeps no record leaves an empty segment too, but without index entries.
        Every closed segment whose records have timestamps has an entry in its time index.
        """
        if segment.size or segment.damaged or segment is self.segments[-1]:
            return False
        for kind, index in ((Kind.OFFSET_INDEX, OffsetIndex), (Kind.TIME_INDEX, TimeIndex)):
            if offset_file(segment.base_offset, kind) in self.names:
                found = index(segment.base_offset, read_whole(self.disk, segment.path(kind)))
                with suppress(CorruptIndex):
                    found.check(every_entry=True)
                    if found.entries:
                        return True
        return False

    def _load_indexes(self, segment: Segment) -> None:
        """Open the index files, or rebuild the indexes."""
        base, disk = segment.base_offset, self.disk
        if not segment.size:
            return  # its indexes are empty, whatever the files have
        try:
            segment.use_indexes(
                segment.read_indexes(disk)
                if segment is self.segments[-1]
                else segment.open_indexes(disk)
            )
            if offset_file(base, Kind.TXN_INDEX) in self.names:
                data = read_whole(disk, segment.path(Kind.TXN_INDEX))
                segment.txn_index = TransactionIndex(base, data)
            for index in (segment.offset_index, segment.time_index, segment.txn_index):
                index.check()
            if segment.offset_index.entries and segment.offset_index.last.position >= segment.size:
                raise BrokenSegment(
                    base, f"{segment.file.path}: the offset index has entries beyond the last batch"
                )
        except (CorruptFile, FileNotFoundError) as error:
            if segment.size:
                self.notes.append(f"{segment.file.path}: indexes rebuilt: {error}")
            self._rebuild(segment)
        else:
            segment.load_latest_timestamp()
            segment.indexed_size = segment.size

    def _rebuild(self, segment: Segment) -> None:
        """Rebuild the indexes from the batches; the transaction index is rebuilt by the replay."""
        segment.clear_indexes()
        heads = segment.located_headers(0, segment.size, read_blocking)
        segment.index_tail(heads, self.config.index_interval_bytes)
        segment.index_time()
        self.rebuilt.append(segment)

    def _check(
        self,
        unchecked: Sequence[Segment],
        producers: ProducerStateManager | None,
        progress: Callable[[int], None],
    ) -> None:
        """Keep the valid batches up to the first one that must go, and drop the rest (rule C3)."""
        done = 0
        expected: Offset | None = None  # the end offset of the previous segment, if it was checked
        for number, segment in enumerate(self.segments):
            following = self.segments[number + 1 :]
            if segment not in unchecked:
                expected = None
                continue
            if expected is not None and self._has_lost_records(segment, expected):
                self._cut(None, [segment, *following], "records before it are missing", expected)
                return
            result = self._scan(
                segment,
                following[0].base_offset if following else None,
                ScanRebuild(
                    segment, self.config.index_interval_bytes, self.epoch_starts, producers
                ),
                lambda more, so_far=done: progress(so_far + more),
            )
            done += result.size
            expected = result.next_offset
            if result.problem is not None:
                self._cut((segment, result), following, result.problem, result.next_offset)
                return

    def _scan(
        self,
        segment: Segment,
        next_base: Offset | None,
        rebuild: ScanRebuild,
        progress: Callable[[int], None],
    ) -> ScanResult:
        hints = self._hints(segment)
        has_lost_all = self._is_emptied(segment)
        segment.clear_indexes()
        bounds = ScanBounds(
            flushed_until=self.recovery_point,
            gaps_until=None if self.config.compact else self.recovery_point,
            end_offset=_NO_END if next_base is None else next_base,
            # After an unclean shutdown the log may be shorter than its checkpoint says.
            reaches=(self.clean and next_base is None)
            or records_missing(segment.damaged)
            or has_lost_all,
        )
        scan = BatchScan(segment, bounds, hints, rebuild)
        while not scan.done:
            scan.step()
            progress(scan.result.size)
        result = scan.result
        segment.damaged = tuple(result.damaged)
        for one in result.damaged:
            self.notes.append(
                f"{segment.file.path}: offsets {one.first_offset} to {one.end_offset - 1} are "
                "damaged and not served"
            )
        segment.index_time()
        self.rebuilt.append(segment)
        return result

    def _hints(self, segment: Segment) -> OffsetIndex:
        """The readable part of the offset index, right or wrong."""
        data = b""
        if offset_file(segment.base_offset, Kind.OFFSET_INDEX) in self.names:
            data = read_whole(self.disk, segment.path(Kind.OFFSET_INDEX))
        return OffsetIndex(segment.base_offset, data)

    def _has_lost_records(self, segment: Segment, expected: int) -> bool:
        """Whether records are missing between a segment and the one before it.

        Above the recovery point of a log that is not compacted, a gap means that the device has the
        later writes only. A gap that does not fit the relative offsets of a segment is allowed.
        """
        base_offset = segment.base_offset
        if base_offset == expected or base_offset <= self.recovery_point or self.config.compact:
            return False
        first = valid_batch_at(segment.file, 0, segment.size)
        return first is None or first.last_offset - expected <= RELATIVE_MAX

    def _cut(
        self,
        last: tuple[Segment, ScanResult] | None,
        following: Sequence[Segment],
        problem: str,
        end: Offset,
    ) -> None:
        """End the log at an offset: truncate its last segment and drop the following ones.

        Usually a crash tore the last write, and nothing valid is lost. Otherwise everything that is
        cut off is set aside first.
        """
        valid = _ValidBatches(end)
        if last is not None:
            self._scan_cut(last[0], following[:1], valid, after=last[1])
        for number, segment in enumerate(following):
            self._scan_cut(segment, following[number + 1 : number + 2], valid)
        if valid.count:
            at = following[0] if last is None else last[0]
            self._set_aside(last, following, f"{at.file.path}: {problem}", valid)
        for segment in following:
            self.notes.append(f"{segment.file.path}: dropped")
        remove_segments(self.disk, self.directory, following)
        self.segments = [segment for segment in self.segments if segment not in following]
        self.sync_due = True
        if last is not None:
            segment, size = last[0], last[1].size
            self.notes.append(f"{segment.file.path}: truncated to {size} bytes: {problem}")
            segment.file.truncate(size)
            segment.file.sync()
            segment.size = size

    def _scan_cut(
        self,
        segment: Segment,
        following: Sequence[Segment],
        valid: _ValidBatches,
        after: ScanResult | None = None,
    ) -> None:
        """Find the valid batches that are cut off, as if all of them had been flushed."""
        end_offset = following[0].base_offset if following else _NO_END
        bounds = ScanBounds(_NO_END, None, end_offset, reaches=False)
        scan = BatchScan(segment, bounds, OffsetIndex(segment.base_offset), valid, after=after)
        while not scan.done:
            scan.step()

    def _set_aside(
        self,
        last: tuple[Segment, ScanResult] | None,
        following: Sequence[Segment],
        problem: str,
        valid: _ValidBatches,
    ) -> None:
        """Keep what is cut off in files that no start opens and no retention deletes."""
        files: list[str] = []
        size = sum(segment.size for segment in following)
        if last is not None and last[1].size < last[0].size:
            segment, result = last
            size += segment.size - result.size
            path = self._truncated_path(result.next_offset)
            try:
                files.append(copy_aside(self.disk, segment.file, result.size, path))
            except StorageExhausted as exhausted:
                raise StorageFailure(
                    f"{problem}. Valid records follow and cannot be set aside: {exhausted}. "
                    f"Nothing was changed; start the broker again when this is fixed"
                ) from exhausted
        for segment in reversed(following):
            if segment.size:
                path = self._truncated_path(segment.base_offset)
                files.append(move_aside(self.disk, segment.file.path, path))
                self.disk.sync_directory(self.directory)
        _LOG.error(
            "valid records set aside",
            {
                "directory": self.directory,
                "problem": problem,
                "first_offset": valid.first_offset,
                "last_offset": valid.end_offset - 1,
                "batches": valid.count,
                "bytes": size,
                "files": ", ".join(sorted(files)),
                "remedy": "print them with `ottla log dump FILE --records`, produce again what is "
                "needed, then remove the files",
            },
        )

    def _truncated_path(self, offset: Offset) -> str:
        return f"{self.directory}/{offset_file(offset, Kind.RECORDS, FileState.TRUNCATED)}"

    def _remove_snapshots(self, *, above: int) -> None:
        """Remove the snapshots above an offset, which the next records would not match."""
        removed = self.snapshots.forget(above=above)
        remove_all(self.disk, removed)
        self.sync_due |= bool(removed)

    # Damage.

    def _load_damage(self) -> None:
        """Load the damage file; ignore entries for bytes that no longer exist."""
        known: Mapping[Offset, tuple[Damage, ...]] = {}
        if DAMAGED_OFFSETS not in self.names:
            return
        try:
            known = self.damage_file.load()
        except CorruptText as error:
            self.notes.append(f"{self.damage_file.path}: ignored: {error}")
        for segment in self.segments:
            damaged = known.get(segment.base_offset, ())
            segment.damaged = tuple(one for one in damaged if one.is_within(segment.size))

    # Epochs.

    def _load_epochs(self, segments: Segments, end: Offset, *, restart: bool) -> None:
        path = f"{self.directory}/{LEADER_EPOCHS}"
        try:
            if LEADER_EPOCHS in self.names:
                text = read_whole(self.disk, path).decode("ascii", "replace")
                self.epochs = EpochHistory.parse(text)
        except CorruptText as error:
            self.epochs_dirty = True
            self.notes.append(f"{path}: rebuilt: {error}")
        # Entries beyond the end are of records that are gone. An entry at the end has no records:
        # the next epoch replaces it, and is stored with its own records.
        outdated = self.epochs.truncate_from_end(0 if restart else end + 1)
        self.epochs.truncate_from_end(end)
        is_known = self.epochs.latest is not None
        # Below the recovery point the file has all epochs. Above it, the batches have them.
        known_until = self.recovery_point if is_known else 0
        starts = self.epoch_starts
        if not (is_known or self.all_checked):
            starts = find_epoch_starts(segments)
        for epoch, start in starts:
            if known_until <= start < end and 0 <= epoch != self.epochs.epoch_of(start):
                self.epochs.assign(epoch, start)
                self.epochs_dirty = True
        self.epochs_dirty |= self.epochs.truncate_from_start(self.log_start)
        if outdated:
            data = self.epochs.format().encode()
            self.epochs_dirty = not self._has_room(lambda: write_atomically(self.disk, path, data))

    # The end.

    def _store(self, segments: Segments) -> list[Segment]:
        """Write what was rebuilt; return closed segments whose index files had no space.

        The active segment keeps its indexes in memory. The damage is stored first: until then, only
        the old index files show that an emptied segment had records.
        """
        is_stored = self._has_room(lambda: self.damage_file.store(format_damage(segments)))
        closed = [segment for segment in self.rebuilt if segment is not segments.active]
        for segment in closed:
            if segment.damaged and not is_stored:
                continue
            if self._has_room(lambda one=segment: one.write_indexes(self.disk)):
                segment.indexed_size = segment.size
                segment.use_indexes(segment.open_indexes(self.disk))
        if closed or self.sync_due:
            self.disk.sync_directory(self.directory)
        return [one for one in closed if one.indexes_due]

    def _has_room(self, write: Callable[[], None]) -> bool:
        """Write a file that can be rebuilt; on a full disk a later flush writes it."""
        try:
            write()
        except StorageExhausted as full:
            self.notes.append(f"{full}: written when there is space")
            return False
        return True
