"""Checks a partition's directory: its segments in order, and its other files.

Invariant: each file is checked by its format, by the records, and by the checkpoints of the data
directory. What only a broker that died leaves is damage after a clean shutdown and a note
otherwise, because the next start repairs it.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

from ottla.errors import StorageFailure
from ottla.ids import Uuid
from ottla.inspection.contents import Content, Identity, identify
from ottla.inspection.directory_context import DirectoryContext
from ottla.inspection.entries import EpochEntry, ProducerStateEntry
from ottla.inspection.findings import Finding, Level, missing_or_unreadable
from ottla.inspection.history import OPEN_TRANSACTIONS_MAX, Epochs, OpenTransactions
from ottla.inspection.listing import FileProgress
from ottla.inspection.segment_check import LogState, SegmentCheck, SegmentFiles, Tally
from ottla.inspection.snapshot_file import producer_entries
from ottla.inspection.text_files import parse_epochs, parsed, text_entries, topic_id_in
from ottla.log.disk import Disk
from ottla.log.names import (
    DAMAGED_OFFSETS,
    LEADER_EPOCHS,
    PARTITION_METADATA,
    TEMPORARY_SUFFIX,
    FileState,
    Kind,
    offset_file,
)

_SEGMENT_CONTENTS: Final = frozenset((Content.OFFSET_INDEX, Content.TIME_INDEX, Content.TXN_INDEX))


class PartitionCheck:
    """A pass over a directory; iterate over `run` to its end, then use its results."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        context: DirectoryContext,
        tally: Tally,
        progress: FileProgress,
    ) -> None:
        self.end_offset: int | None = None  # the log end offset, if it is known
        self.topic_id: Uuid | None = None
        self._disk = disk
        self._directory = directory
        self._context = context
        self._tally = tally
        self._progress = progress

    def run(self) -> Iterator[Finding]:
        """All findings."""
        names = self._disk.names(self._directory)
        found = {name: identity for name in names if (identity := identify(name))}
        for name in names:
            if name not in found:
                yield from self._unknown(name)
        yield from self._check_text(found, PARTITION_METADATA, Content.PARTITION_METADATA)
        yield from self._check_text(found, LEADER_EPOCHS, Content.LEADER_EPOCHS)
        yield from self._check_text(found, DAMAGED_OFFSETS, Content.KNOWN_DAMAGE)
        self.topic_id = topic_id_in(self._disk, f"{self._directory}/{PARTITION_METADATA}")
        epochs = parsed(self._disk, f"{self._directory}/{LEADER_EPOCHS}", parse_epochs)
        known_epochs = epochs if isinstance(epochs, list) else None
        bases = sorted(
            identity.offset
            for identity in found.values()
            if identity.content is Content.RECORDS
            and identity.state is FileState.LIVE
            and identity.offset is not None
        )
        if bases:
            yield from self._check_segments(bases, known_epochs or [])
        for name, identity in sorted(found.items()):
            yield from self._check_other(name, identity, bases)

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _unknown(self, name: str) -> Iterator[Finding]:
        if name.endswith(TEMPORARY_SUFFIX):
            problem = "incomplete temporary file; the next start of the broker removes it"
            yield Finding(self._context.crash_level, self._path(name), problem)
        else:
            yield Finding(Level.NOTE, self._path(name), "not a file of a log, skipped")

    def _check_text(
        self, found: Mapping[str, Identity], name: str, content: Content
    ) -> Iterator[Finding]:
        if name in found:
            self._tally.files += 1
            entries = text_entries(self._disk, self._path(name), content)
            yield from (entry for entry in entries if isinstance(entry, Finding))

    # Segments.

    def _check_segments(self, bases: list[int], epochs: list[EpochEntry]) -> Iterator[Finding]:
        # A clean shutdown stores the epochs of all records, a flush those below the recovery point.
        stored_until = None if self._context.clean else self._context.recovery_point
        transactions = OpenTransactions(self._producers_at(bases[0]))
        state = LogState(Epochs(epochs, stored_until), transactions)
        for base, next_base in pairwise([*bases, None]):
            assert base is not None
            stem = self._path(f"{base:020d}")
            files = SegmentFiles(stem, base, next_base)
            yield from self._segment(files, self._context, state)
        self.end_offset = state.next_offset
        yield from self._check_bounds(bases[0], epochs, state.epochs.uncovered_until)

    def _segment(
        self, files: SegmentFiles, context: DirectoryContext, state: LogState
    ) -> Iterator[Finding]:
        self._tally.files += 1
        check = SegmentCheck(self._disk, files, context, state, self._tally, self._progress)
        yield from check.run()

    def _producers_at(self, base: int) -> list[ProducerStateEntry] | None:
        """Producers with an open transaction at the start of the log; None if unknown."""
        if base == 0:
            return []
        try:
            file = self._disk.open(self._path(offset_file(base, Kind.PRODUCER_SNAPSHOT)))
        except (FileNotFoundError, StorageFailure):
            return None
        opened: list[ProducerStateEntry] = []
        try:
            for entry in producer_entries(file, base):
                if isinstance(entry, Finding) or len(opened) > OPEN_TRANSACTIONS_MAX:
                    return None
                if entry.transaction_first_offset >= 0:
                    opened.append(entry)
        finally:
            file.close()
        return opened

    # Comparisons between files.

    def _check_bounds(
        self, first_base: int, epochs: list[EpochEntry], uncovered_until: int
    ) -> Iterator[Finding]:
        context, end = self._context, self.end_offset
        if end is None:
            return
        if end < context.recovery_point:
            yield Finding(
                Level.DAMAGE,
                self._directory,
                f"the log end offset {end} is below the recovery point {context.recovery_point}: "
                "records are missing",
            )
        start = context.log_start
        if start is not None and start > end:
            problem = f"the log end offset {end} is below the log start offset {start}"
            yield Finding(context.crash_level, self._directory, problem)
        path = self._path(LEADER_EPOCHS)
        if epochs and epochs[-1].start_offset > end:
            latest = epochs[-1]
            problem = (
                f"epoch {latest.epoch} starts at offset {latest.start_offset}, "
                f"but the log end offset is {end}"
            )
            yield Finding(context.crash_level, path, problem)
        if context.known:
            log_start = first_base if start is None else max(start, first_base)
            earliest = epochs[0].start_offset if epochs else end
            # Epochs start with the log, or later if records were written without epochs.
            before = bool(epochs) and earliest < log_start
            if before or min(uncovered_until, earliest - 1) >= log_start:
                problem = (
                    f"the log start offset is {log_start}, but the first epoch starts at {earliest}"
                )
                yield Finding(context.crash_level, path, problem)

    def _check_other(self, name: str, identity: Identity, bases: list[int]) -> Iterator[Finding]:
        """Check snapshots and files that do not belong to a live segment."""
        path = self._path(name)
        if identity.state in (FileState.DELETED, FileState.CLEANED):
            yield Finding(Level.NOTE, path, "deleted, not checked")
        elif identity.state is FileState.TRUNCATED:
            problem = "records that the broker cut off after damage and set aside, not checked"
            yield Finding(Level.NOTE, path, problem)
        elif identity.content is Content.PRODUCER_SNAPSHOT:
            yield from self._check_snapshot(path, identity.offset)
        elif identity.state is FileState.SWAP:
            if identity.content is Content.RECORDS:
                yield from self._check_swap(path, identity)
        elif identity.offset is None and identity.content is Content.RECORDS:
            yield Finding(Level.NOTE, path, "the file name has no offset, skipped")
        elif identity.content in _SEGMENT_CONTENTS and identity.offset not in bases:
            problem = "the segment of this file does not exist"
            yield Finding(self._context.crash_level, path, problem)

    def _check_swap(self, path: str, identity: Identity) -> Iterator[Finding]:
        """Check a cleaned segment that is complete but not swapped yet."""
        stem = path.removesuffix(f"{Kind.RECORDS}{FileState.SWAP}")
        files = SegmentFiles(stem, identity.offset, None, FileState.SWAP)
        state = LogState(Epochs(), OpenTransactions(None))
        yield from self._segment(files, DirectoryContext(compacted=True, clean=True), state)

    def _check_snapshot(self, path: str, offset: int | None) -> Iterator[Finding]:
        self._tally.files += 1
        try:
            file = self._disk.open(path)
        except (FileNotFoundError, StorageFailure) as error:
            yield missing_or_unreadable(path, error)
            return
        try:
            entries = producer_entries(file, offset)
            yield from (entry for entry in entries if isinstance(entry, Finding))
            self._tally.bytes += file.size()
        finally:
            file.close()
        if offset is not None and self.end_offset is not None and offset > self.end_offset:
            problem = f"snapshot at offset {offset}, but the log end offset is {self.end_offset}"
            yield Finding(self._context.crash_level, path, problem)
