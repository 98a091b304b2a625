"""Cleans up a partition's directory after a crash, before the log is opened.

Invariant: afterwards every segment exists once: either the old segments of a cleaning or the new
ones, never both (rule C7). Foreign files and files that were set aside are left alone. The cleanup
can be interrupted and repeated at any point.
"""

from dataclasses import dataclass, field
from itertools import chain

from ottla.ids import Offset
from ottla.log.cached_reads import read_blocking
from ottla.log.disk import Disk
from ottla.log.names import (
    DAMAGED_OFFSETS,
    LEADER_EPOCHS,
    PARTITION_METADATA,
    TEMPORARY_SUFFIX,
    FileState,
    Kind,
    OffsetFile,
    offset_file,
    parse_offset_file,
)
from ottla.log.segment.segment import Segment
from ottla.log.segment.segment_files import SEGMENT_FILES
from ottla.records.errors import CorruptRecords


@dataclass(slots=True)
class Inventory:
    """The files of the log in the directory."""

    bases: list[Offset]  # base offsets of the segments, sorted
    snapshots: list[Offset]
    names: set[str]  # of all files, so that nobody has to look for a file that is not there
    notes: list[str] = field(default_factory=list[str])  # for the operator


def clean_up_after_crash(disk: Disk, directory: str) -> Inventory:
    """Remove leftover files, finish an interrupted swap, and return what is there."""
    notes: list[str] = []
    found: dict[str, OffsetFile] = {}
    others: set[str] = set()
    for name in disk.names(directory):
        if parsed := parse_offset_file(name):
            found[name] = parsed
        elif name.endswith(TEMPORARY_SUFFIX):
            disk.remove(f"{directory}/{name}")
        else:
            others.add(name)
            if name not in (LEADER_EPOCHS, PARTITION_METADATA, DAMAGED_OFFSETS):
                notes.append(f"{directory}/{name}: not a file of the log, ignored")
    # The records files of an interrupted deletion or cleaning.
    marked = {
        file.offset
        for file in found.values()
        if file.kind is Kind.RECORDS and file.state not in (FileState.LIVE, FileState.TRUNCATED)
    }
    if any(file.state is not FileState.LIVE for file in found.values()):
        for name in [name for name, file in found.items() if file.state is FileState.TRUNCATED]:
            del found[name]
            notes.append(f"{directory}/{name}: records that an earlier start set aside, ignored")
        leftovers = _leftovers(found)
        if removed := list(chain(*leftovers)):
            notes.append(f"{directory}: leftover files removed: {', '.join(removed)}")
        for names in leftovers:
            for name in names:
                disk.remove(f"{directory}/{name}")
                del found[name]
            if names:
                disk.sync_directory(directory)
        if any(file.state is FileState.SWAP for file in found.values()):
            found = _finish_swap(disk, directory, found, notes)
    bases = sorted(file.offset for file in found.values() if file.kind is Kind.RECORDS)
    for name, file in list(found.items()):
        if file.kind in SEGMENT_FILES and file.offset not in bases:
            disk.remove(f"{directory}/{name}")
            del found[name]
            why = "" if file.offset in marked else _missing_records(file.offset, bases)
            notes.append(f"{directory}/{name}: removed, its segment does not exist{why}")
    snapshots = [file.offset for file in found.values() if file.kind is Kind.PRODUCER_SNAPSHOT]
    return Inventory(bases, sorted(snapshots), {*found, *others}, notes)


def _missing_records(base: Offset, bases: list[Offset]) -> str:
    """Say which records are missing with a records file that nobody has deleted."""
    later = next((other for other in bases if other > base), None)
    to = "on" if later is None else f"to {later - 1}"
    name = offset_file(base, Kind.RECORDS)
    return f": {name} is missing, and with it all records from offset {base} {to}"


def _leftovers(found: dict[str, OffsetFile]) -> tuple[list[str], list[str]]:
    """Files to remove: first incomplete `.swap` files, then `.deleted` and `.cleaned` files.

    The swap renames segments from `.cleaned` to `.swap` in descending order. If a segment is still
    `.cleaned`, the `.swap` segments above it do not replace anything. They are removed first:
    otherwise they would look complete after another crash.
    """
    cleaned = [file.offset for file in found.values() if file.state is FileState.CLEANED]
    incomplete = [
        name
        for name, file in sorted(found.items())
        if file.state is FileState.SWAP and cleaned and file.offset >= min(cleaned)
    ]
    others = [
        name
        for name, file in sorted(found.items())
        if file.state in (FileState.DELETED, FileState.CLEANED)
    ]
    return incomplete, others


def _finish_swap(
    disk: Disk, directory: str, found: dict[str, OffsetFile], notes: list[str]
) -> dict[str, OffsetFile]:
    """Let cleaned segments replace the segments that they were made of."""
    swapped = {name: file for name, file in found.items() if file.state is FileState.SWAP}
    covered = [
        (file.offset, _end_offset(disk, directory, name, file.offset))
        for name, file in swapped.items()
        if file.kind is Kind.RECORDS
    ]
    start = min((first for first, _ in covered), default=0)
    end = max((end for _, end in covered), default=0)
    # The old records files go first: without its records file a segment does not exist.
    for name, file in sorted(found.items(), key=lambda item: item[1].kind is not Kind.RECORDS):
        replaced = file.kind in SEGMENT_FILES and start <= file.offset < end
        if file.state is FileState.LIVE and replaced:
            disk.remove(f"{directory}/{name}")
            del found[name]
    disk.sync_directory(directory)
    # The records file last: while it is `.swap`, the next start repeats all of this.
    for name, file in sorted(swapped.items(), key=lambda item: item[1].kind is Kind.RECORDS):
        new = offset_file(file.offset, file.kind)
        disk.rename(f"{directory}/{name}", f"{directory}/{new}")
        del found[name]
        found[new] = OffsetFile(file.offset, file.kind)
        notes.append(f"{name}: swap completed")
    disk.sync_directory(directory)
    return found


def _end_offset(disk: Disk, directory: str, name: str, base_offset: Offset) -> int:
    """The offset after the last record of a cleaned segment, at least base offset + 1."""
    file = disk.open(f"{directory}/{name}")
    segment = Segment(directory, base_offset, file, size=file.size(), created_ms=0)
    end = base_offset + 1
    try:
        for head in segment.located_headers(0, segment.size, read_blocking):
            end = head.last_offset + 1
    except CorruptRecords:
        pass  # the scan of the log reports it
    return end
