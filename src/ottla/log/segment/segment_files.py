"""Files that have been deleted by name and wait to be removed.

Invariant: a file that waits ends in `.deleted`, which no log opens; whoever still reads it has it
open. Files of one segment are renamed records first: without its records a segment is not there,
and what is left of it is tidied up when the log is opened.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.errors import DiskFull
from ottla.log.disk import Disk
from ottla.log.names import FileState, Kind
from ottla.log.segment.segment import Segment

SEGMENT_FILES = (Kind.RECORDS, Kind.OFFSET_INDEX, Kind.TIME_INDEX, Kind.ABORTED_INDEX)


class PendingDelete(NamedTuple):
    """Files to be removed, and when."""

    due_ms: int
    paths: tuple[str, ...]


def live_paths(disk: Disk, segment: Segment) -> list[str]:
    """The files that a segment has, the records first."""
    paths = (segment.path(kind) for kind in SEGMENT_FILES)
    return [path for path in paths if disk.exists(path)]


def mark_deleted(disk: Disk, paths: Iterable[str]) -> tuple[str, ...]:
    """Rename files so that they do not count any more; returns their new names.

    Where the folder has no room for a longer name, the file goes at once: that makes room.
    """
    marked: list[str] = []
    for path in paths:
        try:
            disk.rename(path, path + FileState.DELETED)
            marked.append(path + FileState.DELETED)
        except DiskFull:
            disk.remove(path)
    return tuple(marked)


def remove_all(disk: Disk, paths: Iterable[str]) -> None:
    """Remove files, those that are missing excepted."""
    for path in paths:
        if disk.exists(path):
            disk.remove(path)


def remove_segments(disk: Disk, directory: str, segments: Sequence[Segment]) -> None:
    """Remove segments, the last one first: what is left at any time is the beginning of a log.

    A file system owes no order to those who do not wait for each.
    """
    for segment in reversed(segments):
        remove_all(disk, live_paths(disk, segment))
        disk.sync_directory(directory)


def mark_segments_deleted(
    disk: Disk, directory: str, segments: Iterable[Segment]
) -> tuple[str, ...]:
    """Rename segments, the first one first: what is left at any time is the end of a log."""
    marked: list[str] = []
    for segment in segments:
        marked += mark_deleted(disk, live_paths(disk, segment))
        disk.sync_directory(directory)
    return tuple(marked)
