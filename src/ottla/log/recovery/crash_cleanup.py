"""What a broker that died left in a partition's folder, put in order before the log is opened.

Invariant: afterwards every segment is there once, whole or not at all: either the old ones of a
cleaning or the new ones, never both (rule C7). What is not the log's own is left alone. Whatever
happens on the way, doing it again comes to the same end.
"""

from dataclasses import dataclass, field

from ottla.ids import Offset
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
from ottla.log.reading import read_waiting
from ottla.log.segment.segment import Segment
from ottla.log.segment.segment_files import SEGMENT_FILES
from ottla.records.errors import CorruptRecords


@dataclass(slots=True)
class Inventory:
    """What the folder holds of the log."""

    bases: list[Offset]  # of the segments, in their order
    snapshots: list[Offset]
    notes: list[str] = field(default_factory=list[str])  # for a person to read


def clean_up_after_crash(disk: Disk, directory: str) -> Inventory:
    """Remove what does not count, finish what was begun, and say what is there."""
    notes: list[str] = []
    names = disk.names(directory)
    found = {name: parsed for name in names if (parsed := parse_offset_file(name))}
    for name in set(names) - set(found):
        if name.endswith(TEMPORARY_SUFFIX):
            disk.remove(f"{directory}/{name}")
        elif name not in (LEADER_EPOCHS, PARTITION_METADATA, DAMAGED_OFFSETS):
            notes.append(f"{name} is not a file of the log and is left alone")
    for names in _doomed(found, notes):
        for name in names:
            disk.remove(f"{directory}/{name}")
            del found[name]
        if names:
            disk.sync_directory(directory)
    if any(file.state is FileState.SWAP for file in found.values()):
        found = _finish_swap(disk, directory, found, notes)
    bases = sorted(file.offset for file in found.values() if file.kind is Kind.RECORDS)
    for name, file in sorted(found.items()):
        if file.kind in SEGMENT_FILES and file.offset not in bases:
            disk.remove(f"{directory}/{name}")
            notes.append(f"{name} belonged to a segment that is not there, and was removed")
    snapshots = [file.offset for file in found.values() if file.kind is Kind.PRODUCER_SNAPSHOT]
    return Inventory(bases, sorted(snapshots), notes)


def _doomed(found: dict[str, OffsetFile], notes: list[str]) -> tuple[list[str], list[str]]:
    """Deleted files, and those of a cleaning that was not finished: what goes first, and the rest.

    Segments are renamed from `.cleaned` to `.swap` from the last one down. So where one is still
    `.cleaned`, those that were renamed before it do not replace anything. They go before it: else
    they would look finished.
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
    notes += [f"{name} was left behind and is removed" for name in (*incomplete, *others)]
    return incomplete, others


def _finish_swap(
    disk: Disk, directory: str, found: dict[str, OffsetFile], notes: list[str]
) -> dict[str, OffsetFile]:
    """Let cleaned segments take the place of those that they were made of."""
    swapped = {name: file for name, file in found.items() if file.state is FileState.SWAP}
    covered = [
        (file.offset, _end_offset(disk, directory, name, file.offset))
        for name, file in swapped.items()
        if file.kind is Kind.RECORDS
    ]
    start = min((first for first, _ in covered), default=0)
    end = max((end for _, end in covered), default=0)
    # The records of the old segments go first: without them nothing of a segment counts.
    for name, file in sorted(found.items(), key=lambda item: item[1].kind is not Kind.RECORDS):
        replaced = file.kind in SEGMENT_FILES and start <= file.offset < end
        if file.state is FileState.LIVE and replaced:
            disk.remove(f"{directory}/{name}")
            del found[name]
    disk.sync_directory(directory)
    # The records last: as long as they are to be swapped, all of this is done again.
    for name, file in sorted(swapped.items(), key=lambda item: item[1].kind is Kind.RECORDS):
        new = offset_file(file.offset, file.kind)
        disk.rename(f"{directory}/{name}", f"{directory}/{new}")
        del found[name]
        found[new] = OffsetFile(file.offset, file.kind)
        notes.append(f"{name} took its place")
    disk.sync_directory(directory)
    return found


def _end_offset(disk: Disk, directory: str, name: str, base_offset: Offset) -> int:
    """Behind the last record of a cleaned segment; it covers its base offset at least."""
    file = disk.open(f"{directory}/{name}")
    segment = Segment(directory, base_offset, file, size=file.size(), created_ms=0)
    end = base_offset + 1
    try:
        for head in segment.located_headers(0, segment.size, read_waiting):
            end = head.last_offset + 1
    except CorruptRecords:
        pass  # what is wrong with it is found when the log is checked
    return end
