"""Checks one segment: its batches, and its index files against them.

Invariant: a batch is valid if its size, CRC and records are, and its offsets follow those before it
and stay within the segment. After the first invalid batch the indexes are not compared any more,
because the missing content is unknown; the later batches are still checked.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ottla.errors import StorageFailure
from ottla.inspection.directory_context import DirectoryContext
from ottla.inspection.findings import Finding, Level, missing_or_unreadable
from ottla.inspection.history import Epochs, OpenTransactions
from ottla.inspection.index_check import AbortedIndexCheck, OffsetIndexCheck, TimeIndexCheck
from ottla.inspection.index_files import aborted_entries, offset_entries, time_entries
from ottla.inspection.listing import FileProgress, invalid_range_finding
from ottla.inspection.walk import (
    BATCH_BYTES_MAX,
    FoundBatch,
    InvalidRange,
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
    """How much was checked."""

    files: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0


@dataclass(slots=True)
class LogState:
    """What the segments before this one imply."""

    epochs: Epochs
    transactions: OpenTransactions
    next_offset: int | None = None  # None: this is the first segment, or the offset is unknown


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The files of a segment and what their names say."""

    stem: str  # the path without extensions
    base_offset: int | None
    next_base_offset: int | None  # None: the last segment
    state: FileState = FileState.LIVE

    def path(self, kind: Kind) -> str:
        """The path of one of the files."""
        return f"{self.stem}{kind}{self.state}"

    @property
    def active(self) -> bool:
        """Whether a running broker appends to the segment."""
        return self.next_base_offset is None and self.state is FileState.LIVE


class SegmentCheck:
    """A pass over the files of a segment; iterate over `run` to its end."""

    def __init__(
        self,
        disk: Disk,
        files: SegmentFiles,
        context: DirectoryContext,
        state: LogState,
        tally: Tally,
        progress: FileProgress,
    ) -> None:
        self._disk = disk
        self._files = files
        self._context = context
        self._state = state
        self._tally = tally
        self._progress = progress
        self._path = files.path(Kind.RECORDS)
        self._unreadable: list[Finding] = []
        self._comparable = True  # the indexes can still be compared
        self._gap_allowed = context.compacted
        self._unfinished = files.active and not context.clean
        self._missing_level = self._index_missing_level()

    def _index_missing_level(self) -> Level | None:
        """The level of a finding if an index file does not cover all records.

        Index files are written after a segment was closed, and are on the device before the
        recovery point passes its end.
        """
        next_base, context = self._files.next_base_offset, self._context
        if self._unfinished:
            return None
        flushed = context.known and next_base is not None and next_base < context.recovery_point
        return Level.DAMAGE if context.clean or flushed else Level.NOTE

    def run(self) -> Iterator[Finding]:
        """All findings."""
        opened: list[File] = []
        try:
            records = self._disk.open(self._path)
            opened.append(records)
            yield from self._check(records, opened)
        except (FileNotFoundError, StorageFailure) as error:
            self._state.next_offset = None
            self._state.transactions.lose_track()
            yield missing_or_unreadable(self._path, error)
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
        if (file := self._open(Kind.TXN_INDEX, opened)) is not None:
            aborted = AbortedIndexCheck(file.path, aborted_entries(file, base))
        yield from self._unreadable
        walk = Walk(records, lambda done, total: self._progress(self._path, done, total))
        yield from self._start()
        for found in walk.batches(lambda header: True):
            if isinstance(found, InvalidRange):
                yield invalid_range_finding(self._path, found)
                yield from self._lose_track(found.position)
                continue
            yield from self._check_batch(found)
            header = found.header
            if self._comparable and offsets is not None:
                yield from offsets.at_batch(found.position, header.last_offset)
            if self._comparable and times is not None:
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
        growing = not self._comparable or (self._unfinished and records.size() > tail.position)
        if offsets is not None:
            yield from offsets.at_end(tail.position, growing)
        if times is not None:
            missing_level = self._missing_level if self._comparable else None
            yield from times.at_end(missing_level=missing_level, growing=growing)
        if aborted is not None:
            yield from aborted.at_end(growing=growing)
        if not self._comparable:
            self._state.next_offset = None

    def _start(self) -> Iterator[Finding]:
        """A segment starts where the one before it ends, unless compaction emptied that."""
        base, state = self._files.base_offset, self._state
        if base is None:
            return
        if state.next_offset is not None and base > state.next_offset and not self._gap_allowed:
            yield Finding(
                Level.DAMAGE,
                self._path,
                f"the previous segment ends at offset {state.next_offset}: {_RECORDS_MISSING}",
            )
        state.next_offset = base

    def _open(self, kind: Kind, opened: list[File]) -> File | None:
        try:
            file = self._disk.open(self._files.path(kind))
        except FileNotFoundError:
            return None
        except StorageFailure as error:
            self._unreadable.append(missing_or_unreadable(self._files.path(kind), error))
            return None
        opened.append(file)
        self._tally.files += 1
        self._tally.bytes += file.size()
        return file

    def _missing(
        self, tail: Tail, offsets: OffsetIndexCheck | None, times: TimeIndexCheck | None
    ) -> Iterator[Finding]:
        """Every closed segment has index files."""
        if self._missing_level is None or not tail.position:
            return
        told = {finding.path for finding in self._unreadable}
        for kind, found in ((Kind.OFFSET_INDEX, offsets), (Kind.TIME_INDEX, times)):
            path = self._files.path(kind)
            if found is None and path not in told:
                problem = "missing; the next start of the broker rebuilds it"
                yield Finding(self._missing_level, path, problem)

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
            yield self._damage(position, "wrong CRC")
        elif found.batch is None:
            problem = f"a batch of more than {BATCH_BYTES_MAX} bytes: its records are not checked"
            yield Finding(Level.NOTE, self._path, problem, position)
        else:
            for finding in self._record_problems(found.batch, position):
                right = right and finding.level is not Level.DAMAGE
                yield finding
        if right and (found_problem := self._state.epochs.problem(header)) is not None:
            # Epochs are stored with the flush of their records.
            context = self._context
            unflushed = not context.clean and header.last_offset >= context.recovery_point
            lags = unflushed and found_problem.may_be_new
            level = Level.NOTE if lags else Level.DAMAGE
            yield Finding(level, self._path, found_problem.problem, position)
        if right:
            self._state.next_offset = header.next_offset
            self._gap_allowed = self._context.compacted
        else:
            yield from self._lose_track(position)

    def _lose_track(self, position: int) -> Iterator[Finding]:
        """Continue after an invalid batch: any higher offset may follow."""
        self._gap_allowed = True
        if self._comparable:
            self._comparable = False
            self._state.transactions.lose_track()
            problem = "indexes are not compared with the records from here on"
            yield Finding(Level.NOTE, self._path, problem, position)

    def _offset_problems(self, found: FoundBatch) -> Iterator[str]:
        header = found.header
        base, delta = header.base_offset, header.last_offset_delta
        expected, files = self._state.next_offset, self._files
        if delta < 0 or not 0 <= base <= _INT64_MAX - delta - 1:
            yield f"invalid base offset {base} or last offset delta {delta}"
            return
        last = base + delta
        if expected is not None and base < expected:
            yield f"base offset {base} is below the next offset {expected}"
        elif expected is not None and base > expected and not self._gap_allowed:
            yield f"base offset {base}, expected {expected}: {_RECORDS_MISSING}"
        if files.base_offset is not None and last - files.base_offset > RELATIVE_MAX:
            yield f"offset {last} is outside of the segment"
        elif files.next_base_offset is not None and last >= files.next_base_offset:
            yield f"last offset {last}, but the next segment starts at {files.next_base_offset}"

    def _record_problems(self, batch: Batch, position: int) -> Iterator[Finding]:
        try:
            if problem := records_problem(batch):
                yield self._damage(position, problem)
        except DecompressionLimitExceeded as error:
            problem = f"{error}: its records are not checked"
            yield Finding(Level.NOTE, self._path, problem, position)
        except (CorruptRecords, CorruptCompression) as error:
            yield self._damage(position, str(error))

    def _check_transactions(
        self, found: FoundBatch, aborted: AbortedIndexCheck | None
    ) -> Iterator[Finding]:
        if not self._comparable or found.batch is None:
            self._state.transactions.lose_track()
            return
        abort = self._state.transactions.apply(found.batch)
        if self._context.compacted or not self._state.transactions.followed:
            if aborted is not None:
                aborted.pass_over(found.header.last_offset)
            return
        if aborted is not None:
            yield from aborted.at_batch(found.header.base_offset)
            if abort is not None:
                yield from aborted.at_abort(abort, self._missing_level)
        elif abort is not None and abort.exact and self._missing_level is not None:
            problem = f"the transaction aborted at offset {abort.marker_offset} is missing"
            yield Finding(self._missing_level, self._files.path(Kind.TXN_INDEX), problem)

    # The end of the file.

    def _check_tail(self, tail: Tail) -> Iterator[Finding]:
        if tail.kind is TailKind.WHOLE:
            return
        expected = self._state.next_offset
        # Everything below the recovery point was on the device, so it is not incomplete.
        unfinished = (
            self._unfinished
            and tail.kind is not TailKind.NO_BATCH
            and (expected is None or expected >= self._context.recovery_point)
        )
        begun = tail.base_offset
        if unfinished and begun is not None and expected is not None:
            unfinished = begun == expected or (begun > expected and self._gap_allowed)
        if unfinished:
            yield Finding(Level.INCOMPLETE, self._path, tail.problem, tail.position)
            return
        self._comparable = False
        problem = f"{tail.problem}; the last {tail.size} bytes are skipped"
        yield self._damage(tail.position, problem)


def records_problem(batch: Batch) -> str | None:
    """Why the records of a batch contradict its header, although its CRC is right."""
    header = batch.header
    if header.is_control and header.producer_id >= 0:
        record = read_control(batch)
        if record is not None:
            read_end_txn_marker(record)
        return None
    if header.record_count == header.last_offset_delta + 1:
        return find_corruption(batch)
    for _ in batch.records():  # compaction left gaps
        pass
    return None
