"""Opening the log of a partition, whatever state it was left in.

Invariant: what was on the device is served again and nothing that is damaged: after an unclean
stop every batch from the recovery point on is checked, the log is cut at the first that is wrong,
and what came after it is dropped (rule C3). Indexes, epochs and producers are made anew where
files are missing, wrong, or behind the records (rule D3). What was cut is on the device before the
log takes new records, so that the old ones cannot come back between them.

Waits for the device throughout, so it is run in a thread or another process.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from ottla.errors import StorageFailure
from ottla.ids import Offset
from ottla.log.aborted import AbortedIndex
from ottla.log.deletion import remove_all, remove_segments
from ottla.log.disk import Disk, read_whole, write_atomically
from ottla.log.epochs import EpochHistory, EpochStart
from ottla.log.errors import CorruptFile, CorruptIndex, CorruptText
from ottla.log.index import OffsetIndex, TimeIndex
from ottla.log.leftovers import tidy
from ottla.log.names import LEADER_EPOCHS, Kind, offset_file
from ottla.log.partition_log import PartitionLog
from ottla.log.reading import read_waiting
from ottla.log.replay import replayed
from ottla.log.rules import LogRules
from ottla.log.segment import RELATIVE_MAX, Segment
from ottla.log.segments import Segments
from ottla.log.snapshots import Snapshots
from ottla.log.soundness import Note, Sound, sound_until
from ottla.records.batch import BatchHeader
from ottla.records.errors import CorruptRecords

Progress = Callable[[int, int], None]
"""Told how many bytes have been checked, of how many in all."""


@dataclass(slots=True)
class Recovered:
    """An open log, and what had to be done to it."""

    log: PartitionLog
    notes: list[str] = field(default_factory=list[str])


def open_log(
    disk: Disk,
    folder: str,
    rules: LogRules,
    *,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    clean: bool,
    now_ms: int,
    chance: Callable[[], float],
    progress: Progress = lambda done, total: None,
) -> Recovered:
    """Open a partition's folder, or make it.

    `clean` says that the broker stopped cleanly, so that the files need no check; recovery point
    and log start are what the checkpoints say.
    """
    if not disk.exists(folder):
        disk.make_folder(folder)
        disk.sync_folder(folder.rpartition("/")[0] or "/")
    point, start = recovery_point, log_start_offset
    try:
        opening = _Opening(disk, folder, rules, point, start, clean, now_ms)
        return opening.run(chance, progress)
    except CorruptRecords as error:
        if not clean:
            raise StorageFailure(f"{folder}: {error}") from error
        problem = f"{folder}: checked, for it is damaged although the stop was clean: {error}"
    # What was on the device is never cut off, so this may end in a failure (rule C4).
    try:
        recovered = _Opening(disk, folder, rules, point, start, False, now_ms).run(chance, progress)
    except CorruptRecords as error:
        raise StorageFailure(f"{folder}: {error}") from error
    recovered.notes.insert(0, problem)
    return recovered


class _Opening:
    """The steps of opening one log, with what they find."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        rules: LogRules,
        recovery_point: int,
        log_start_offset: int,
        clean: bool,
        now_ms: int,
    ) -> None:
        self.disk = disk
        self.folder = folder
        self.rules = rules
        self.recovery_point = recovery_point
        self.log_start = Offset(log_start_offset)
        self.clean = clean
        self.now_ms = now_ms
        inventory = tidy(disk, folder)
        self.notes = inventory.notes
        self.snapshots = Snapshots(disk, folder, inventory.snapshots)
        self.segments = [self._open_segment(base) for base in inventory.bases]
        self.epoch_starts: list[EpochStart] = []  # in the batches that were checked
        self.rebuilt: list[Segment] = []  # those whose indexes were made anew
        self.epochs = EpochHistory()

    def run(self, chance: Callable[[], float], progress: Progress) -> Recovered:
        unchecked = [] if self.clean or not self.segments else self._unflushed()
        for segment in self.segments:
            if segment not in unchecked:
                self._load_indexes(segment)
        if unchecked:
            self._check(unchecked, progress)
        if not self.segments:
            self._begin_at(self.log_start)
        last = self.segments[-1].grow(self.rules.index_interval_bytes, read_waiting)
        end = self.segments[-1].base_offset if last is None else Offset(last.last_offset + 1)
        anew = self.log_start > end
        if anew:
            self.notes.append(f"the log ends at {end} and starts at {self.log_start}: begun anew")
            remove_segments(self.disk, self.segments)
            remove_all(self.disk, self.snapshots.forget(above=-1))
            self.rebuilt.clear()
            self._begin_at(self.log_start)
            end = self.log_start
        self.log_start = max(self.log_start, self.segments[0].base_offset)
        segments = Segments(self.segments)
        self._load_epochs(segments, Offset(0) if anew else end)
        remove_all(self.disk, self.snapshots.forget(above=end))
        producers = replayed(segments, self.snapshots, end, self.rebuilt)
        self._store(segments)
        log = PartitionLog(
            self.disk,
            self.folder,
            self.rules,
            segments=segments,
            epochs=self.epochs,
            producers=producers,
            snapshots=self.snapshots,
            log_start_offset=self.log_start,
            next_offset=end,
            recovery_point=Offset(min(self.recovery_point, end)) if self.clean else end,
            chance=chance,
        )
        return Recovered(log, self.notes)

    # Segments.

    def _open_segment(self, base: Offset) -> Segment:
        path = f"{self.folder}/{offset_file(base, Kind.RECORDS)}"
        file = self.disk.open(path)
        created_ms = self.disk.modified_ms(path)
        return Segment(self.folder, base, file, size=file.size(), created_ms=created_ms)

    def _begin_at(self, offset: Offset) -> None:
        self.segments = [Segment.create(self.disk, self.folder, offset, self.now_ms)]

    def _unflushed(self) -> list[Segment]:
        """The segments with records from the recovery point on.

        And the one that ends there: its index files are written after that point was reached.
        """
        ends = [*(segment.base_offset for segment in self.segments[1:]), Offset(2**63 - 1)]
        return [
            segment
            for segment, end in zip(self.segments, ends, strict=True)
            if end >= self.recovery_point
        ]

    def _load_indexes(self, segment: Segment) -> None:
        """Take the indexes from their files, or make them anew."""
        base, disk = segment.base_offset, self.disk
        try:
            segment.offsets = OffsetIndex(base, disk.map(segment.path(Kind.OFFSET_INDEX)))
            segment.times = TimeIndex(base, disk.map(segment.path(Kind.TIME_INDEX)))
            with suppress(FileNotFoundError):
                segment.aborted = AbortedIndex(base, disk.map(segment.path(Kind.ABORTED_INDEX)))
            segment.offsets.check()
            segment.times.check()
            segment.aborted.check()
            if segment.offsets.entries and segment.offsets.last.position >= segment.size:
                raise CorruptIndex("the last entry lies behind the records")
        except (CorruptFile, FileNotFoundError) as error:
            if segment.size:
                self.notes.append(f"{segment.file.path}: indexes made anew: {error}")
            self._rebuild(segment)
        else:
            segment.trust_times()
            segment.written_size = segment.size

    def _rebuild(self, segment: Segment) -> None:
        """Make the indexes anew from the batches; that of aborted transactions follows later."""
        segment.clear_indexes()
        heads = segment.heads(0, segment.size, read_waiting)
        segment.note_tail(heads, self.rules.index_interval_bytes)
        segment.note_time()
        self.rebuilt.append(segment)

    def _noting(self, segment: Segment) -> Note:
        """What makes indexes and epochs anew while the batches of a segment are checked."""
        interval, starts = self.rules.index_interval_bytes, self.epoch_starts

        def note(position: int, header: BatchHeader, timestamp: int) -> None:
            segment.note(position, header.last_offset, header.size, timestamp, interval)
            if not starts or starts[-1].epoch != header.leader_epoch:
                starts.append(EpochStart(header.leader_epoch, header.base_offset))

        return note

    def _check(self, unchecked: Sequence[Segment], progress: Progress) -> None:
        """Rule C3: keep what is sound up to the first batch that is not, drop the rest."""
        total = sum(segment.size for segment in unchecked)
        done = 0
        expected: Offset | None = None
        for number, segment in enumerate(unchecked):
            size = segment.size
            segment.clear_indexes()
            sound = sound_until(
                segment,
                flushed_until=self.recovery_point,
                # Compaction leaves gaps. Elsewhere, one above the recovery point is damage to a
                # base offset, which no CRC covers.
                gaps_until=None if self.rules.compact else self.recovery_point,
                note=self._noting(segment),
                progress=lambda more, so_far=done: progress(so_far + more, total),
            )
            done += size
            if expected is not None and self._has_lost_records(segment, expected, sound.size):
                self.notes.append(f"{segment.file.path}: records before it are missing, dropped")
                self._drop(unchecked[number:])
                return
            expected = sound.next_offset
            if sound.problem is not None:
                self._cut(segment, sound, unchecked[number + 1 :])
            segment.damaged = tuple(sound.damaged)
            for extent in sound.damaged:
                self.notes.append(
                    f"{segment.file.path}: the batch at {extent.position} is damaged, not served"
                )
            segment.note_time()
            self.rebuilt.append(segment)
            segment.file.sync()
            if sound.problem is not None:
                return

    def _cut(self, segment: Segment, sound: Sound, behind: Sequence[Segment]) -> None:
        if sound.next_offset < self.recovery_point:
            # Rule C4: this was on the device once, and cutting it off would lose more.
            raise StorageFailure(
                f"{segment.file.path}: damaged below the recovery point "
                f"{self.recovery_point}: {sound.problem}"
            )
        self._drop(behind)
        self.notes.append(f"{segment.file.path}: cut at {sound.size}: {sound.problem}")
        segment.file.truncate(sound.size)
        segment.size = sound.size

    def _has_lost_records(self, segment: Segment, expected: int, sound_size: int) -> bool:
        """Whether a segment does not begin where the one before it ends.

        In a log that is never compacted this means that the device took the later writes alone,
        or that a gap did not fit into the offsets of a segment.
        """
        if segment.base_offset == expected or self.rules.compact:
            return False
        first = next(segment.heads(0, sound_size, read_waiting), None)
        return first is None or first.last_offset - expected <= RELATIVE_MAX

    def _drop(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            self.notes.append(f"{segment.file.path}: dropped")
        if segments:
            remove_segments(self.disk, segments)
            self.disk.sync_folder(self.folder)  # or they come back behind a gap
            self.segments = [segment for segment in self.segments if segment not in segments]

    # Epochs.

    def _load_epochs(self, segments: Segments, end: Offset) -> None:
        path = f"{self.folder}/{LEADER_EPOCHS}"
        stored = ""
        try:
            stored = read_whole(self.disk, path).decode("ascii", "replace")
            self.epochs = EpochHistory.parse(stored)
        except FileNotFoundError:
            pass
        except CorruptText as error:
            self.notes.append(f"{path}: made anew: {error}")
        self.epochs.truncate_from_end(end)
        latest = self.epochs.latest
        # Batches tell of later epochs. Below the recovery point the file knew them all.
        known_until = -1 if latest is None else latest.start_offset
        for epoch, start in self.epoch_starts if latest is not None else _epoch_starts(segments):
            if epoch >= 0 and known_until < start < end:
                self.epochs.assign(epoch, start)
        self.epochs.truncate_from_start(self.log_start)
        text = self.epochs.format()
        if text != stored and (stored or list(self.epochs)):
            write_atomically(self.disk, path, text.encode())

    # The end.

    def _store(self, segments: Segments) -> None:
        """Let the disk be what the log believes, before anything is appended."""
        for segment in self.rebuilt:
            segment.write_indexes(self.disk)
            segment.written_size = segment.size
        if self.rebuilt or not self.clean:
            self.disk.sync_folder(self.folder)
        for segment in self.rebuilt:
            if segment is not segments.active:
                segment.map_indexes(self.disk)


def _epoch_starts(segments: Segments) -> Iterator[EpochStart]:
    """Every change of epoch in a log."""
    known: int | None = None
    for segment in segments:
        for head in segment.heads(0, segment.size, read_waiting):
            if head.leader_epoch != known:
                known = head.leader_epoch
                yield EpochStart(head.leader_epoch, head.base_offset)
