"""What is in a file, a partition's folder or a data directory, entry by entry.

Invariant: everything that can be read is listed in the order of the files, and what cannot is a
finding in its place. Files are judged one by one here: whether they fit each other is the business
of the checks.
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
from ottla.inspection.findings import Finding, Level, gone_or_unreadable
from ottla.inspection.index_files import aborted_entries, offset_entries, time_entries
from ottla.inspection.snapshot_file import producer_entries
from ottla.inspection.text_files import text_entries
from ottla.inspection.walk import (
    BATCH_BYTES_MAX,
    FoundBatch,
    Hole,
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
"""Told of a file how many bytes have been looked at, of how many."""

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
    """How much is listed: of each file only so many entries, and those with offsets in a range."""

    records: bool = False
    from_offset: int = 0
    to_offset: int = _OFFSET_MAX  # the first one that is not wanted
    entries_max: int | None = None

    def touches(self, first: int, last: int) -> bool:
        """Whether something from one offset to another is wanted."""
        return last >= self.from_offset and first < self.to_offset


def is_partition(names: Sequence[str]) -> bool:
    """Whether these are the files of a partition's folder."""
    return any(
        (identity := identify(name)) and identity.content not in _OF_DIRECTORY for name in names
    )


def has_directory_files(names: Sequence[str]) -> bool:
    """Whether files are among these that only a data directory has."""
    return any((identity := identify(name)) and identity.content in _OF_DIRECTORY for name in names)


def list_file(
    disk: Disk, path: str, view: View, progress: FileProgress
) -> Iterator[Entry | Finding]:
    """One file, whatever it is; one whose name says nothing is a note."""
    identity = identify(path.rpartition("/")[2])
    if identity is None:
        yield Finding(Level.NOTE, path, "not a file of a log, left out")
        return
    try:
        file = disk.open(path)
    except (FileNotFoundError, StorageFailure) as error:
        yield gone_or_unreadable(path, error)
        return
    try:
        state = _STATES.get(identity.state) or identity.state[1:]
        yield FileEntry(path, identity.content, file.size(), state)
        yield from _limited(_entries(disk, file, identity, view, progress), view)
    except StorageFailure as error:
        yield gone_or_unreadable(path, error)
    finally:
        file.close()


def list_partition(
    disk: Disk, folder: str, view: View, progress: FileProgress
) -> Iterator[Entry | Finding]:
    """The files of a partition: the small ones, then segment by segment."""
    names = sorted(disk.names(folder), key=_place)
    skipped = _outside(names, view)
    for name in names:
        if name not in skipped:
            yield from list_file(disk, f"{folder}/{name}", view, progress)


def list_directory(
    disk: Disk, directory: str, view: View, progress: FileProgress
) -> Iterator[Entry | Finding]:
    """A data directory: its own files, then partition by partition."""
    names = disk.names(directory)
    for name in sorted(names, key=_place):
        if name != DIRECTORY_LOCK and parse_partition_directory(name) is None:
            yield from list_file(disk, f"{directory}/{name}", view, progress)
    for name in partition_folders(names):
        try:
            yield from list_partition(disk, f"{directory}/{name}", view, progress)
        except (FileNotFoundError, StorageFailure) as error:
            yield gone_or_unreadable(f"{directory}/{name}", error)


def partition_folders(names: Sequence[str]) -> list[str]:
    """The folders of partitions among names, in the order of topics and numbers."""
    found = [(folder, name) for name in names if (folder := parse_partition_directory(name))]
    return [name for _, name in sorted(found)]


def _place(name: str) -> tuple[int, int, int, str]:
    """Where a file comes in the listing of its folder."""
    identity = identify(name)
    if identity is None:
        return 2, 0, 0, name
    if identity.content in _ORDER:
        return 0, _ORDER.index(identity.content), 0, name
    return 1, identity.offset or 0, list(Content).index(identity.content), name


def _outside(names: Sequence[str], view: View) -> set[str]:
    """The files of live segments of which nothing is wanted."""
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
    """So many entries, or records where these are wanted; findings among them do not count."""
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
        case Content.OFFSET_INDEX | Content.TIME_INDEX | Content.ABORTED_INDEX:
            if identity.offset is None:
                problem = "its name has no base offset: offsets are counted from 0"
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
        if isinstance(found, Hole):
            yield hole_finding(file.path, found)
            continue
        header = found.header
        if header.base_offset >= view.to_offset:
            return
        if wanted(header):
            yield BatchEntry(found.position, header, found.crc_ok)
            if not found.crc_ok:
                yield Finding(Level.DAMAGE, file.path, "the CRC is wrong", found.position)
            if view.records:
                yield from _records(file.path, found, view)
    if walk.tail is not None and walk.tail.kind is not TailKind.WHOLE:
        yield tail_finding(file.path, walk.tail)


def hole_finding(path: str, hole: Hole) -> Finding:
    """What lies between batches."""
    problem = f"{hole.problem}; {hole.size} bytes before the next batch are left out"
    return Finding(Level.DAMAGE, path, problem, hole.position)


def tail_finding(path: str, tail: Tail) -> Finding:
    """What a file that is looked at alone ends with; only some bytes can be no batch at all."""
    if tail.kind is TailKind.NO_BATCH:
        problem = f"{tail.problem}; the last {tail.size} bytes are not looked at"
        return Finding(Level.DAMAGE, path, problem, tail.position)
    return Finding(Level.INCOMPLETE, path, tail.problem, tail.position)


def _records(path: str, found: FoundBatch, view: View) -> Iterator[RecordEntry | Finding]:
    header = found.header
    if found.batch is None:
        problem = f"a batch of more than {BATCH_BYTES_MAX} bytes, its records are left out"
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
        yield Finding(Level.NOTE, path, f"{error}, its records are left out", found.position)
    except (CorruptRecords, CorruptCompression) as error:
        yield Finding(Level.DAMAGE, path, str(error), found.position)


def _control(batch: Batch) -> ControlRecord | None:
    """What the record of a control batch tells; None where it is not one that is known."""
    try:
        return read_control(batch)
    except OttlaError:
        return None
