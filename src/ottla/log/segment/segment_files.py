"""The files of segments: their paths, and their deletion in two steps.

Invariant: a deleted file is renamed to `.deleted`, which no start opens, and removed later; readers
of the segment still find it. The records file of a segment is renamed first: without it the segment
does not exist, and the next start removes its other files.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.errors import DiskFull
from ottla.log.disk import Disk
from ottla.log.names import FileState, Kind
from ottla.log.segment.segment import Segment

SEGMENT_FILES = (Kind.RECORDS, Kind.OFFSET_INDEX, Kind.TIME_INDEX, Kind.TXN_INDEX)


class PendingDelete(NamedTuple):
    """Deleted files, and when they are removed."""

    due_ms: int
    paths: tuple[str, ...]


def live_paths(disk: Disk, segment: Segment) -> list[str]:
    """The existing files of a segment, the records file first."""
    paths = (segment.path(kind) for kind in SEGMENT_FILES)
    return [path for path in paths if disk.exists(path)]


def mark_deleted(disk: Disk, paths: Iterable[str]) -> tuple[str, ...]:
    """Rename files to `.deleted`; return the new paths.

    If a full disk has no space for the longer name, the file is removed at once.
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
    """Remove files that exist."""
    for path in paths:
        if disk.exists(path):
            disk.remove(path)


def remove_segments(disk: Disk, directory: str, segments: Sequence[Segment]) -> None:
    """Remove segments, the last one first, so that a crash leaves a prefix of the log.

    The directory is synced after each segment: file systems may reorder removals.
    """
    for segment in reversed(segments):
        remove_all(disk, live_paths(disk, segment))
        disk.sync_directory(directory)


def mark_segments_deleted(
    disk: Disk, directory: str, segments: Iterable[Segment]
) -> tuple[str, ...]:
    """Rename segments, the first one first, so that a crash leaves a suffix of the log."""
    marked: list[str] = []
    for segment in segments:
        marked += mark_deleted(disk, live_paths(disk, segment))
        disk.sync_directory(directory)
    return tuple(marked)
