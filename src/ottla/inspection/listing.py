"""Lists the content of a file, a partition's directory or a data directory.

Invariant: everything readable is listed in file order; what is not readable is a finding in its
place. Files are listed one by one; the checks compare them with each other.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ottla.errors import OttlaError, StorageFailure
from ottla.inspection.contents import Content, Identity, identify
from ottla.inspection.entries import (
    AbortedEntry,
    BatchEntry,
    Entry,
    FileEntry,
    OffsetIndexEntry,
    RecordEntry,
    TimeIndexEntry,
)
from ottla.inspection.findings import Finding, Level, missing_or_unreadable
from ottla.inspection.index_files import aborted_entries, offset_entries, time_entries
from ottla.inspection.snapshot_file import producer_entries
from ottla.inspection.text_files import text_entries
from ottla.inspection.walk import (
    BATCH_BYTES_MAX,
    FoundBatch,
    InvalidRange,
    Tail,
    TailKind,
    Walk,
)
from ottla.log.disk import Disk, File
from ottla.log.names import DIRECTORY_LOCK, FileState, parse_partition_directory
from ottla.records.batch import Batch, BatchHeader
from ottla.records.control import ControlRecord, read_control
from ottla.records.errors import CorruptCompression, CorruptRecords, DecompressionLimitExceeded

FileProgress = Callable[[str, int, int], None]
"""Called with the path, the number of bytes examined and the size of a file."""

_OFFSET_MAX: Final = 2**63 - 1
_SEQUENCE_MASK: Final = 0x7FFFFFFF
_STATES: Final = {FileState.LIVE: "live"}
_OF_DIRECTORY: Final = (Content.META_PROPERTIES, Content.CLEAN_SHUTDOWN, Content.OFFSETS)
_ORDER: Final = (
    *_OF_DIRECTORY,
    Content.PARTITION_METADATA,
    Content.LEADER_EPOCHS,
    Content.KNOWN_DAMAGE,
)


@dataclass(frozen=True, slots=True)
class View:
    """What is listed: a range of offsets, a number of entries per file, records or not."""

    records: bool = False
    from_offset: int = 0
    to_offset: int = _OFFSET_MAX  # exclusive
    entries_max: int | None = None

    def touches(self, first: int, last: int) -> bool:
        """Whether a range of offsets is wanted."""
        return last >= self.from_offset and first < self.to_offset


def is_partition(names: Sequence[str]) -> bool:
    """Whether these are the files of a partition's directory."""
    return any(
        (identity := identify(name)) and identity.content not in _OF_DIRECTORY for name in names
    )


def has_directory_files(names: Sequence[str]) -> bool:
    """Whether these include files of a data directory."""
    return any((identity := identify(name)) and identity.content in _OF_DIRECTORY for name in names)


def list_file(
    disk: Disk, path: str, view: View, progress: FileProgress
) -> Iterator[Entry | Finding]:
    """List one file; a file with an unknown name is a note."""
    identity = identify(path.rpartition("/")[2])
    if identity is None:
        yield Finding(Level.NOTE, path, "not a file of a log, skipped")
        return
    try:
        file = disk.open(path)
    except (FileNotFoundError, StorageFailure) as error:
        yield missing_or_unreadable(path, error)
        return
    try:
        state = _STATES.get(identity.state) or identity.state[1:]
        yield FileEntry(path, identity.content, file.size(), state)
        yield from _limited(_entries(disk, file, identity, view, progress), view)
    except StorageFailure as error:
        yield missing_or_unreadable(path, error)
    finally:
        file.close()


def list_partition(
    disk: Disk, directory: str, view: View, progress: FileProgress
) -> Iterator[Entry | Finding]:
    """List the files of a partition: the small ones, then segment by segment."""
    names = sorted(disk.names(directory), key=_place)
    skipped = _outside(names, view)
    for name in names:
        if name not in skipped:
            yield from list_file(disk, f"{directory}/{name}", view, progress)


def list_directory(
    disk: Disk, directory: str, view: View, progress: FileProgress
) -> Iterator[Entry | Finding]:
    """List a data directory: its own files, then partition by partition."""
    names = disk.names(directory)
    for name in sorted(names, key=_place):
        if name != DIRECTORY_LOCK and parse_partition_directory(name) is None:
            yield from list_file(disk, f"{directory}/{name}", view, progress)
    for name in partition_directories(names):
        try:
            yield from list_partition(disk, f"{directory}/{name}", view, progress)
        except (FileNotFoundError, StorageFailure) as error:
            yield missing_or_unreadable(f"{directory}/{name}", error)


def partition_directories(names: Sequence[str]) -> list[str]:
    """The partition directories among names, sorted by topic and partition."""
    found = [(directory, name) for name in names if (directory := parse_partition_directory(name))]
    return [name for _, name in sorted(found)]


def _place(name: str) -> tuple[int, int, int, str]:
    """The sort key of a file in the listing of its directory."""
    identity = identify(name)
    if identity is None:
        return 2, 0, 0, name
    if identity.content in _ORDER:
        return 0, _ORDER.index(identity.content), 0, name
    return 1, identity.offset or 0, list(Content).index(identity.content), name


def _outside(names: Sequence[str], view: View) -> set[str]:
    """The files of live segments outside of the wanted offsets."""
    bases = sorted(
        identity.offset
        for name in names
        if (identity := identify(name))
        and identity.content is Content.RECORDS
        and identity.offset is not None
        and identity.state is FileState.LIVE
    )
    unwanted = {
        base for base, end in pairwise([*bases, _OFFSET_MAX]) if not view.touches(base, end - 1)
    }
    return {
        name
        for name in names
        if (identity := identify(name))
        and identity.offset in unwanted
        and identity.content is not Content.PRODUCER_SNAPSHOT
    }


def _limited(entries: Iterator[Entry | Finding], view: View) -> Iterator[Entry | Finding]:
    """Limit the number of entries, or of records if these are listed; findings do not count."""
    shown = 0
    for entry in entries:
        yield entry
        shown += not isinstance(entry, Finding) and not (
            view.records and isinstance(entry, BatchEntry)
        )
        if shown == view.entries_max:
            return


def _entries(
    disk: Disk, file: File, identity: Identity, view: View, progress: FileProgress
) -> Iterator[Entry | Finding]:
    base = identity.offset or 0
    match identity.content:
        case Content.RECORDS:
            yield from _batches(file, view, progress)
        case Content.OFFSET_INDEX | Content.TIME_INDEX | Content.TXN_INDEX:
            if identity.offset is None:
                problem = "the file name has no base offset: offsets are relative to 0"
                yield Finding(Level.NOTE, file.path, problem)
            for entry in _index_entries(file, identity.content, base):
                if isinstance(entry, Finding) or view.touches(*_reach(entry)):
                    yield entry
        case Content.PRODUCER_SNAPSHOT:
            yield from producer_entries(file, identity.offset)
        case _:
            yield from text_entries(disk, file.path, identity.content)


def _index_entries(
    file: File, content: Content, base: int
) -> Iterator[OffsetIndexEntry | TimeIndexEntry | AbortedEntry | Finding]:
    if content is Content.OFFSET_INDEX:
        yield from offset_entries(file, base, zeros_allowed=True)
    elif content is Content.TIME_INDEX:
        yield from time_entries(file, base, zeros_allowed=True)
    else:
        yield from aborted_entries(file, base)


def _reach(entry: OffsetIndexEntry | TimeIndexEntry | AbortedEntry) -> tuple[int, int]:
    if isinstance(entry, AbortedEntry):
        return entry.first_offset, entry.last_offset
    return entry.offset, entry.offset


def _batches(file: File, view: View, progress: FileProgress) -> Iterator[Entry | Finding]:
    walk = Walk(file, lambda done, total: progress(file.path, done, total))

    def wanted(header: BatchHeader) -> bool:
        return view.touches(header.base_offset, header.base_offset + header.last_offset_delta)

    for found in walk.batches(wanted):
        if isinstance(found, InvalidRange):
            yield invalid_range_finding(file.path, found)
            continue
        header = found.header
        if header.base_offset >= view.to_offset:
            return
        if wanted(header):
            yield BatchEntry(found.position, header, found.crc_ok)
            if not found.crc_ok:
                yield Finding(Level.DAMAGE, file.path, "wrong CRC", found.position)
            if view.records:
                yield from _records(file.path, found, view)
    if walk.tail is not None and walk.tail.kind is not TailKind.WHOLE:
        yield tail_finding(file.path, walk.tail)


def invalid_range_finding(path: str, invalid: InvalidRange) -> Finding:
    """The finding for bytes between batches."""
    problem = f"{invalid.problem}; {invalid.size} bytes before the next batch are skipped"
    return Finding(Level.DAMAGE, path, problem, invalid.position)


def tail_finding(path: str, tail: Tail) -> Finding:
    """The finding for the end of a file that is inspected alone."""
    if tail.kind is TailKind.NO_BATCH:
        problem = f"{tail.problem}; the last {tail.size} bytes are skipped"
        return Finding(Level.DAMAGE, path, problem, tail.position)
    return Finding(Level.INCOMPLETE, path, tail.problem, tail.position)


def _records(path: str, found: FoundBatch, view: View) -> Iterator[RecordEntry | Finding]:
    header = found.header
    if found.batch is None:
        problem = f"a batch of more than {BATCH_BYTES_MAX} bytes: its records are skipped"
        yield Finding(Level.NOTE, path, problem, found.position)
        return
    control = _control(found.batch) if header.is_control else None
    try:
        for record in found.batch.records(from_offset=view.from_offset):
            if record.offset >= view.to_offset:
                return
            sequence = header.base_sequence
            if sequence >= 0:
                sequence = (sequence + record.offset - header.base_offset) & _SEQUENCE_MASK
            yield RecordEntry(
                record.offset,
                record.timestamp,
                sequence,
                record.key,
                record.value,
                record.headers,
                control,
            )
    except DecompressionLimitExceeded as error:
        yield Finding(Level.NOTE, path, f"{error}: its records are skipped", found.position)
    except (CorruptRecords, CorruptCompression) as error:
        yield Finding(Level.DAMAGE, path, str(error), found.position)


def _control(batch: Batch) -> ControlRecord | None:
    """The record of a control batch; None if it is not a known one."""
    try:
        return read_control(batch)
    except OttlaError:
        return None
