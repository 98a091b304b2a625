"""One segment checked: its batches, and its index files beside them.

Invariant: a batch is right when its frame, its CRC and its records are, and its offsets follow
those before it and stay within the segment. Behind the first batch that is not right nothing more
is compared with the records, for it is not known what was there; the batches themselves are.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ottla.errors import StorageFailure
from ottla.inspection.directory_context import DirectoryContext
from ottla.inspection.findings import Finding, Level, gone_or_unreadable
from ottla.inspection.history import Epochs, OpenTransactions
from ottla.inspection.index_check import AbortedIndexCheck, OffsetIndexCheck, TimeIndexCheck
from ottla.inspection.index_files import aborted_entries, offset_entries, time_entries
from ottla.inspection.listing import FileProgress, hole_finding
from ottla.inspection.walk import (
    BATCH_BYTES_MAX,
    FoundBatch,
    Hole,
    Tail,
    TailKind,
    Walk,
)
from ottla.log.disk import Disk, File
from ottla.log.names import FileState, Kind
from ottla.log.segment.segment import RELATIVE_MAX
from ottla.records.batch import Batch
from ottla.records.control import read_control, read_end_txn_marker
from ottla.records.errors import CorruptCompression, CorruptRecords, DecompressionLimitExceeded
from ottla.records.validation import find_corruption

_RECORDS_MISSING: Final = "records are missing, unless the topic is or was compacted (--compacted)"
_INT64_MAX: Final = 0x7FFFFFFFFFFFFFFF


@dataclass(slots=True)
class Tally:
    """How much was looked at."""

    files: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0


@dataclass(slots=True)
class LogState:
    """What the segments before this one told."""

    epochs: Epochs
    transactions: OpenTransactions
    next_offset: int | None = None  # None: nothing was before, or it is not known what


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """Where a segment is, and what its names say."""

    stem: str  # its path without what tells the files apart
    base_offset: int | None
    next_base_offset: int | None  # None: it is the last one
    state: FileState = FileState.LIVE

    def path(self, kind: Kind) -> str:
        """One of the files."""
        return f"{self.stem}{kind}{self.state}"

    @property
    def active(self) -> bool:
        """Whether a broker that runs writes to it."""
        return self.next_base_offset is None and self.state is FileState.LIVE


class SegmentCheck:
    """A pass over the files of a segment; iterate over `run` to its end."""

    def __init__(
        self,
        disk: Disk,
        files: SegmentFiles,
        around: DirectoryContext,
        state: LogState,
        tally: Tally,
        progress: FileProgress,
    ) -> None:
        self._disk = disk
        self._files = files
        self._around = around
        self._state = state
        self._tally = tally
        self._progress = progress
        self._path = files.path(Kind.RECORDS)
        self._unreadable: list[Finding] = []
        self._sound = True  # whether indexes can still be compared
        self._gap_allowed = around.compacted
        self._unfinished = files.active and not around.clean
        self._lacking = self._lacking_level()

    def _lacking_level(self) -> Level | None:
        """What it is when an index file does not reach to the end of the records.

        Index files of a segment are written after it was closed, and are on the device before
        the recovery point lies behind its end.
        """
        next_base, around = self._files.next_base_offset, self._around
        if self._unfinished:
            return None
        flushed = around.known and next_base is not None and next_base < around.recovery_point
        return Level.DAMAGE if around.clean or flushed else Level.NOTE

    def run(self) -> Iterator[Finding]:
        """Everything that is found."""
        opened: list[File] = []
        try:
            records = self._disk.open(self._path)
            opened.append(records)
            yield from self._check(records, opened)
        except (FileNotFoundError, StorageFailure) as error:
            self._state.next_offset = None
            self._state.transactions.lose_track()
            yield gone_or_unreadable(self._path, error)
        finally:
            for file in opened:
                file.close()

    def _check(self, records: File, opened: list[File]) -> Iterator[Finding]:
        base = self._files.base_offset or 0
        zeros_allowed = self._unfinished
        offsets = times = aborted = None
        if (file := self._open(Kind.OFFSET_INDEX, opened)) is not None:
            entries = offset_entries(file, base, zeros_allowed=zeros_allowed)
            offsets = OffsetIndexCheck(file.path, entries)
        if (file := self._open(Kind.TIME_INDEX, opened)) is not None:
            time_index = time_entries(file, base, zeros_allowed=zeros_allowed)
            times = TimeIndexCheck(file.path, time_index)
        if (file := self._open(Kind.ABORTED_INDEX, opened)) is not None:
            aborted = AbortedIndexCheck(file.path, aborted_entries(file, base))
        yield from self._unreadable
        walk = Walk(records, lambda done, total: self._progress(self._path, done, total))
        yield from self._start()
        for found in walk.batches(lambda header: True):
            if isinstance(found, Hole):
                yield hole_finding(self._path, found)
                yield from self._lose_track(found.position)
                continue
            yield from self._check_batch(found)
            header = found.header
            if self._sound and offsets is not None:
                yield from offsets.at_batch(found.position, header.last_offset)
            if self._sound and times is not None:
                yield from times.at_batch(
                    header.base_offset, header.last_offset, header.max_timestamp
                )
            yield from self._check_transactions(found, aborted)
        tail = walk.tail
        assert tail is not None
        yield from self._check_tail(tail)
        self._tally.bytes += tail.position
        if not self._files.state and self._files.base_offset is not None:
            yield from self._missing(tail, offsets, times)
        growing = not self._sound or (self._unfinished and records.size() > tail.position)
        if offsets is not None:
            yield from offsets.at_end(tail.position, growing)
        if times is not None:
            lacking = self._lacking if self._sound else None
            yield from times.at_end(lacking=lacking, growing=growing)
        if aborted is not None:
            yield from aborted.at_end(growing=growing)
        if not self._sound:
            self._state.next_offset = None

    def _start(self) -> Iterator[Finding]:
        """A segment begins where the one before it ends, unless compaction emptied that."""
        base, state = self._files.base_offset, self._state
        if base is None:
            return
        if state.next_offset is not None and base > state.next_offset and not self._gap_allowed:
            yield Finding(
                Level.DAMAGE,
                self._path,
                f"the segment before it ends at offset {state.next_offset}: {_RECORDS_MISSING}",
            )
        state.next_offset = base

    def _open(self, kind: Kind, opened: list[File]) -> File | None:
        try:
            file = self._disk.open(self._files.path(kind))
        except FileNotFoundError:
            return None
        except StorageFailure as error:
            self._unreadable.append(gone_or_unreadable(self._files.path(kind), error))
            return None
        opened.append(file)
        self._tally.files += 1
        self._tally.bytes += file.size()
        return file

    def _missing(
        self, tail: Tail, offsets: OffsetIndexCheck | None, times: TimeIndexCheck | None
    ) -> Iterator[Finding]:
        """Every segment has its indexes once it is closed."""
        if self._lacking is None or not tail.position:
            return
        told = {finding.path for finding in self._unreadable}
        for kind, found in ((Kind.OFFSET_INDEX, offsets), (Kind.TIME_INDEX, times)):
            path = self._files.path(kind)
            if found is None and path not in told:
                problem = "it is missing; the next start makes it anew from the records"
                yield Finding(self._lacking, path, problem)

    # Batches.

    def _damage(self, position: int, problem: str) -> Finding:
        return Finding(Level.DAMAGE, self._path, problem, position)

    def _check_batch(self, found: FoundBatch) -> Iterator[Finding]:
        header, position = found.header, found.position
        self._tally.batches += 1
        self._tally.records += max(header.record_count, 0)
        right = True
        for problem in self._offset_problems(found):
            right = False
            yield self._damage(position, problem)
        if not found.crc_ok:
            right = False
            yield self._damage(position, "the CRC is wrong")
        elif found.batch is None:
            problem = f"a batch of more than {BATCH_BYTES_MAX} bytes, its records are not checked"
            yield Finding(Level.NOTE, self._path, problem, position)
        else:
            for finding in self._record_problems(found.batch, position):
                right = right and finding.level is not Level.DAMAGE
                yield finding
        if right and (found_problem := self._state.epochs.problem(header)) is not None:
            unflushed = self._unfinished and header.last_offset >= self._around.recovery_point
            lags = unflushed and found_problem.may_be_new
            level = Level.NOTE if lags else Level.DAMAGE
            yield Finding(level, self._path, found_problem.problem, position)
        if right:
            self._state.next_offset = header.next_offset
            self._gap_allowed = self._around.compacted
        else:
            yield from self._lose_track(position)

    def _lose_track(self, position: int) -> Iterator[Finding]:
        """Go on behind what is wrong: there may be any offset above those that were right."""
        self._gap_allowed = True
        if self._sound:
            self._sound = False
            self._state.transactions.lose_track()
            problem = "from here on the indexes are not compared with the records"
            yield Finding(Level.NOTE, self._path, problem, position)

    def _offset_problems(self, found: FoundBatch) -> Iterator[str]:
        header = found.header
        base, delta = header.base_offset, header.last_offset_delta
        expected, files = self._state.next_offset, self._files
        if delta < 0 or not 0 <= base <= _INT64_MAX - delta - 1:
            yield f"a batch from offset {base} with {delta} more"
            return
        last = base + delta
        if expected is not None and base < expected:
            yield f"it begins with offset {base}, {expected} is the first that is free"
        elif expected is not None and base > expected and not self._gap_allowed:
            yield (f"it begins with offset {base}, expected was {expected}: {_RECORDS_MISSING}")
        if files.base_offset is not None and last - files.base_offset > RELATIVE_MAX:
            yield f"offset {last} does not fit the segment"
        elif files.next_base_offset is not None and last >= files.next_base_offset:
            yield f"it ends with offset {last}, the next segment begins at {files.next_base_offset}"

    def _record_problems(self, batch: Batch, position: int) -> Iterator[Finding]:
        try:
            if problem := records_problem(batch):
                yield self._damage(position, problem)
        except DecompressionLimitExceeded as error:
            problem = f"{error}, its records are not checked"
            yield Finding(Level.NOTE, self._path, problem, position)
        except (CorruptRecords, CorruptCompression) as error:
            yield self._damage(position, str(error))

    def _check_transactions(
        self, found: FoundBatch, aborted: AbortedIndexCheck | None
    ) -> Iterator[Finding]:
        if not self._sound or found.batch is None:
            self._state.transactions.lose_track()
            return
        abort = self._state.transactions.note(found.batch)
        if self._around.compacted or not self._state.transactions.followed:
            if aborted is not None:
                aborted.pass_over(found.header.last_offset)
            return
        if aborted is not None:
            yield from aborted.at_batch(found.header.base_offset)
            if abort is not None:
                yield from aborted.at_abort(abort, self._lacking)
        elif abort is not None and abort.exact and self._lacking is not None:
            problem = f"the transaction aborted at offset {abort.marker_offset} is missing"
            yield Finding(self._lacking, self._files.path(Kind.ABORTED_INDEX), problem)

    # The end.

    def _check_tail(self, tail: Tail) -> Iterator[Finding]:
        if tail.kind is TailKind.WHOLE:
            return
        expected = self._state.next_offset
        # On the device was everything below the recovery point, so it is not unfinished.
        unfinished = (
            self._unfinished
            and tail.kind is not TailKind.NO_BATCH
            and (expected is None or expected >= self._around.recovery_point)
        )
        begun = tail.base_offset
        if unfinished and begun is not None and expected is not None:
            unfinished = begun == expected or (begun > expected and self._gap_allowed)
        if unfinished:
            yield Finding(Level.INCOMPLETE, self._path, tail.problem, tail.position)
            return
        self._sound = False
        problem = f"{tail.problem}; the last {tail.size} bytes are not looked at"
        yield self._damage(tail.position, problem)


def records_problem(batch: Batch) -> str | None:
    """Why the records of a batch are not what its header says, though its CRC is right."""
    header = batch.header
    if header.is_control and header.producer_id >= 0:
        record = read_control(batch)
        if record is not None:
            read_end_txn_marker(record)
        return None
    if header.record_count == header.last_offset_delta + 1:
        return find_corruption(batch)
    for _ in batch.records():  # compaction has left gaps
        pass
    return None
