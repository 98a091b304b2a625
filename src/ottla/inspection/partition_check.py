"""A partition's folder checked: its segments in their order, and everything beside them.

Invariant: each file is judged by its own format, by the records, and by what the data directory
says. What only a broker that died leaves behind is damage after a clean stop and a note otherwise,
because the next start mends it.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

from ottla.errors import StorageFailure
from ottla.ids import Uuid
from ottla.inspection.contents import Content, Identity, identify
from ottla.inspection.directory_context import DirectoryContext
from ottla.inspection.entries import EpochEntry, ProducerStateEntry
from ottla.inspection.findings import Finding, Level, gone_or_unreadable
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

_SEGMENT_CONTENTS: Final = frozenset(
    (Content.OFFSET_INDEX, Content.TIME_INDEX, Content.ABORTED_INDEX)
)


class PartitionCheck:
    """A pass over a folder; iterate over `run` to its end, then ask for what it learned."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        around: DirectoryContext,
        tally: Tally,
        progress: FileProgress,
    ) -> None:
        self.end_offset: int | None = None  # of the log, if it is known
        self.topic_id: Uuid | None = None
        self._disk = disk
        self._folder = folder
        self._around = around
        self._tally = tally
        self._progress = progress

    def run(self) -> Iterator[Finding]:
        """Everything that is found."""
        names = self._disk.names(self._folder)
        found = {name: identity for name in names if (identity := identify(name))}
        for name in names:
            if name not in found:
                yield from self._unknown(name)
        yield from self._check_text(found, PARTITION_METADATA, Content.PARTITION_METADATA)
        yield from self._check_text(found, LEADER_EPOCHS, Content.LEADER_EPOCHS)
        yield from self._check_text(found, DAMAGED_OFFSETS, Content.KNOWN_DAMAGE)
        self.topic_id = topic_id_in(self._disk, f"{self._folder}/{PARTITION_METADATA}")
        epochs = parsed(self._disk, f"{self._folder}/{LEADER_EPOCHS}", parse_epochs)
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
        return f"{self._folder}/{name}"

    def _unknown(self, name: str) -> Iterator[Finding]:
        if name.endswith(TEMPORARY_SUFFIX):
            problem = "a file that was not written to its end; the next start removes it"
            yield Finding(self._around.strictly, self._path(name), problem)
        else:
            yield Finding(Level.NOTE, self._path(name), "not a file of a log, left out")

    def _check_text(
        self, found: Mapping[str, Identity], name: str, content: Content
    ) -> Iterator[Finding]:
        if name in found:
            self._tally.files += 1
            entries = text_entries(self._disk, self._path(name), content)
            yield from (entry for entry in entries if isinstance(entry, Finding))

    # Segments.

    def _check_segments(self, bases: list[int], epochs: list[EpochEntry]) -> Iterator[Finding]:
        state = LogState(Epochs(epochs), OpenTransactions(self._producers_at(bases[0])))
        for base, next_base in pairwise([*bases, None]):
            assert base is not None
            stem = self._path(f"{base:020d}")
            files = SegmentFiles(stem, base, next_base)
            yield from self._segment(files, self._around, state)
        self.end_offset = state.next_offset
        yield from self._check_bounds(bases[0], epochs, state.epochs.uncovered_until)

    def _segment(
        self, files: SegmentFiles, around: DirectoryContext, state: LogState
    ) -> Iterator[Finding]:
        self._tally.files += 1
        check = SegmentCheck(self._disk, files, around, state, self._tally, self._progress)
        yield from check.run()

    def _producers_at(self, base: int) -> list[ProducerStateEntry] | None:
        """Those with an open transaction where the log begins; None when nothing tells."""
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

    # What the files say of each other.

    def _check_bounds(
        self, first_base: int, epochs: list[EpochEntry], uncovered_until: int
    ) -> Iterator[Finding]:
        around, end = self._around, self.end_offset
        if end is None:
            return
        if end < around.recovery_point:
            yield Finding(
                Level.DAMAGE,
                self._folder,
                f"the log ends at offset {end}, but up to {around.recovery_point} it was on the "
                "device once",
            )
        start = around.log_start
        if start is not None and start > end:
            problem = f"the log ends at offset {end} and is said to start at {start}"
            yield Finding(around.strictly, self._folder, problem)
        path = self._path(LEADER_EPOCHS)
        if epochs and epochs[-1].start_offset > end:
            latest = epochs[-1]
            problem = (
                f"epoch {latest.epoch} is said to begin at {latest.start_offset}, "
                f"the log ends at offset {end}"
            )
            yield Finding(around.strictly, path, problem)
        if around.known:
            log_start = first_base if start is None else max(start, first_base)
            earliest = epochs[0].start_offset if epochs else end
            # Epochs begin with the log, or later where records were written without one.
            before = bool(epochs) and earliest < log_start
            if before or min(uncovered_until, earliest - 1) >= log_start:
                problem = f"the log starts at offset {log_start}, the epochs at {earliest}"
                yield Finding(around.strictly, path, problem)

    def _check_other(self, name: str, identity: Identity, bases: list[int]) -> Iterator[Finding]:
        """Snapshots, and what does not belong to a segment that counts."""
        path = self._path(name)
        if identity.state in (FileState.DELETED, FileState.CLEANED):
            yield Finding(Level.NOTE, path, "it waits to be removed and is not checked")
        elif identity.content is Content.PRODUCER_SNAPSHOT:
            yield from self._check_snapshot(path, identity.offset)
        elif identity.state is FileState.SWAP:
            if identity.content is Content.RECORDS:
                yield from self._check_swap(path, identity)
        elif identity.offset is None and identity.content is Content.RECORDS:
            yield Finding(Level.NOTE, path, "its name has no offset, left out")
        elif identity.content in _SEGMENT_CONTENTS and identity.offset not in bases:
            problem = "it belongs to a segment that is not there"
            yield Finding(self._around.strictly, path, problem)

    def _check_swap(self, path: str, identity: Identity) -> Iterator[Finding]:
        """A cleaned segment, complete but not in its place yet."""
        stem = path.removesuffix(f"{Kind.RECORDS}{FileState.SWAP}")
        files = SegmentFiles(stem, identity.offset, None, FileState.SWAP)
        state = LogState(Epochs(), OpenTransactions(None))
        yield from self._segment(files, DirectoryContext(compacted=True, clean=True), state)

    def _check_snapshot(self, path: str, offset: int | None) -> Iterator[Finding]:
        self._tally.files += 1
        try:
            file = self._disk.open(path)
        except (FileNotFoundError, StorageFailure) as error:
            yield gone_or_unreadable(path, error)
            return
        try:
            entries = producer_entries(file, offset)
            yield from (entry for entry in entries if isinstance(entry, Finding))
            self._tally.bytes += file.size()
        finally:
            file.close()
        if offset is not None and self.end_offset is not None and offset > self.end_offset:
            problem = f"a snapshot of offset {offset}, the log ends at {self.end_offset}"
            yield Finding(self._around.strictly, path, problem)
