"""A segment that a cleaning writes: `.cleaned` files that count for nothing yet.

Invariant: it holds whole batches in rising offsets, is never larger than its limits once it has a
batch, and is on the device with its indexes when it is finished; its folder is synced by the
caller.
"""

from collections.abc import Callable

from ottla.ids import Offset
from ottla.log.disk import Disk, read_whole
from ottla.log.names import FileState, Kind, offset_file, parse_offset_file
from ottla.log.segment.index import OffsetIndex, TimeIndex
from ottla.log.segment.segment import RELATIVE_MAX, Indexes, Segment
from ottla.log.segment.segment_files import SEGMENT_FILES, mark_deleted
from ottla.log.segment.txn_index import TransactionIndex
from ottla.protocol.primitives import Buffer


class Throttle:
    """Lets its caller sleep; clock and sleep are in seconds."""

    __slots__ = ("_bytes_per_second", "_clock", "_free_at", "_sleep")

    def __init__(
        self,
        bytes_per_second: float | None,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._free_at = clock()

    def passed(self, size: int) -> None:
        """Wait until so many bytes more are within the limit."""
        if self._bytes_per_second is None:
            return
        now = self._clock()
        self._free_at = max(self._free_at, now) + size / self._bytes_per_second
        if self._free_at > now:
            self._sleep(self._free_at - now)


def cleaned_path(directory: str, base_offset: int, kind: Kind) -> str:
    """Where a file of such a segment is."""
    return f"{directory}/{offset_file(base_offset, kind, FileState.CLEANED)}"


def remove_cleaned(disk: Disk, directory: str) -> None:
    """Remove what a cleaning has written that was not swapped."""
    for name in disk.names(directory):
        found = parse_offset_file(name)
        if found is not None and found.state is FileState.CLEANED:
            disk.remove(f"{directory}/{name}")


class CleanedSegment:
    """Takes batches, and writes them in pieces of a given size."""

    __slots__ = (
        "_disk",
        "_index_bytes_max",
        "_index_interval_bytes",
        "_io_bytes",
        "_pending",
        "_size_max",
        "_throttle",
        "segment",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: Offset,
        *,
        size_max: int,
        index_bytes_max: int,
        index_interval_bytes: int,
        io_bytes: int,
        throttle: Throttle,
    ) -> None:
        file = disk.open(cleaned_path(directory, base_offset, Kind.RECORDS), create=True)
        self.segment = Segment(directory, base_offset, file, size=0, created_ms=0)
        self._disk = disk
        self._size_max = min(size_max, RELATIVE_MAX)  # positions have 31 bits too
        self._index_bytes_max = index_bytes_max
        self._index_interval_bytes = index_interval_bytes
        self._io_bytes = io_bytes
        self._throttle = throttle
        self._pending = bytearray()  # a copy: a batch that stays would hold all that was read

    def has_room(self, data: Buffer, last_offset: int) -> bool:
        """Whether a batch fits; the first one always does."""
        segment = self.segment
        size = segment.size + len(self._pending)
        return not size or (
            size + len(data) <= self._size_max
            and last_offset <= segment.offset_max
            and not segment.offsets.is_full(self._index_bytes_max)
            and not segment.times.is_full(self._index_bytes_max)
        )

    def add(self, data: Buffer, last_offset: Offset, max_timestamp: int) -> None:
        """Put a batch behind the others."""
        segment = self.segment
        position = segment.size + len(self._pending)
        segment.note(position, last_offset, len(data), max_timestamp, self._index_interval_bytes)
        self._pending += data
        if len(self._pending) >= self._io_bytes:
            self._write()

    def _write(self) -> None:
        if self._pending:
            self.segment.size = self.segment.file.write([self._pending], self.segment.size)
            self._throttle.passed(len(self._pending))
            self._pending = bytearray()

    def finish(self, modified_ms: int) -> None:
        """Put all of it on the device, as old as what it was made of.

        By that age a segment without timestamps is deleted, be it that it has no records any more.
        """
        self._write()
        segment = self.segment
        self._disk.set_modified_ms(segment.file.path, modified_ms)
        segment.file.sync()
        segment.file.close()
        segment.note_time()
        self._write_index(Kind.OFFSET_INDEX, segment.offsets.to_bytes())
        self._write_index(Kind.TIME_INDEX, segment.times.to_bytes())
        if segment.aborted.entries:
            self._write_index(Kind.ABORTED_INDEX, segment.aborted.to_bytes())

    def _write_index(self, kind: Kind, data: bytes) -> None:
        path = cleaned_path(self.segment.directory, self.segment.base_offset, kind)
        file = self._disk.open(path, create=True)
        try:
            file.write([data], 0)
            file.sync()
        finally:
            file.close()


def swap(disk: Disk, directory: str, bases: list[Offset], replaced: list[str]) -> tuple[str, ...]:
    """Let cleaned segments take the place of files; returns what those are called now.

    Rule C7. A crash before the last of the new ones is `.swap` leaves the old ones, and after it
    the new ones: `leftovers.py` removes or finishes what it finds.
    """
    for base in sorted(bases, reverse=True):
        for path in _paths(disk, directory, base, FileState.CLEANED):
            disk.rename(path, path.removesuffix(FileState.CLEANED) + FileState.SWAP)
        disk.sync_directory(directory)
    marked = mark_deleted(disk, replaced)
    disk.sync_directory(directory)
    for base in sorted(bases):
        # The records last: as long as they are to be swapped, this is done again after a crash.
        for path in reversed(_paths(disk, directory, base, FileState.SWAP)):
            disk.rename(path, path.removesuffix(FileState.SWAP))
    disk.sync_directory(directory)
    return marked


def _paths(disk: Disk, directory: str, base: Offset, state: FileState) -> list[str]:
    """The files of a segment in one state, the records first."""
    paths = (f"{directory}/{offset_file(base, kind, state)}" for kind in SEGMENT_FILES)
    return [path for path in paths if disk.exists(path)]


def open_cleaned(disk: Disk, directory: str, base_offset: Offset, created_ms: int) -> Segment:
    """A segment that is about to be swapped in, with the indexes that were written with it.

    A process that has too many files open finds out before anything is renamed.
    """

    def path(kind: Kind) -> str:
        return cleaned_path(directory, base_offset, kind)

    file = disk.open(path(Kind.RECORDS))
    segment = Segment(directory, base_offset, file, size=file.size(), created_ms=created_ms)
    segment.use_indexes(
        Indexes(
            OffsetIndex.in_file(base_offset, disk.open(path(Kind.OFFSET_INDEX))),
            TimeIndex.in_file(base_offset, disk.open(path(Kind.TIME_INDEX))),
        )
    )
    if disk.exists(aborted := path(Kind.ABORTED_INDEX)):
        segment.aborted = TransactionIndex(base_offset, read_whole(disk, aborted))
    segment.trust_times()
    segment.written_size = segment.size
    return segment


def note_swapped(segment: Segment) -> None:
    """The files of a cleaned segment have their last names now."""
    segment.file.renamed(segment.path(Kind.RECORDS))
    segment.offsets.renamed(segment.path(Kind.OFFSET_INDEX))
    segment.times.renamed(segment.path(Kind.TIME_INDEX))
