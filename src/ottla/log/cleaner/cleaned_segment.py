"""Segments that a cleaning writes as `.cleaned` files, and the swap that makes them live.

Invariant: a cleaned segment has whole batches with increasing offsets, does not exceed its limits
after the first batch, and is on the device with its indexes when it is finished. The caller syncs
the directory.
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
    """Limits the bytes per second that a cleaning reads and writes; clock and sleep are in seconds.

    Unused bytes are not saved up: after a pause the rate is the same as before.
    """

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
        """Sleep until this number of bytes is within the rate."""
        if self._bytes_per_second is None:
            return
        now = self._clock()
        self._free_at = max(self._free_at, now) + size / self._bytes_per_second
        if self._free_at > now:
            self._sleep(self._free_at - now)


def cleaned_path(directory: str, base_offset: int, kind: Kind) -> str:
    """The path of a `.cleaned` file."""
    return f"{directory}/{offset_file(base_offset, kind, FileState.CLEANED)}"


def remove_cleaned(disk: Disk, directory: str) -> None:
    """Remove the `.cleaned` files in a partition's directory."""
    for name in disk.names(directory):
        found = parse_offset_file(name)
        if found is not None and found.state is FileState.CLEANED:
            disk.remove(f"{directory}/{name}")


class CleanedSegment:
    """Collects batches and writes them in chunks."""

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
        self._size_max = min(size_max, RELATIVE_MAX)  # positions have 31 bits, too
        self._index_bytes_max = index_bytes_max
        self._index_interval_bytes = index_interval_bytes
        self._io_bytes = io_bytes
        self._throttle = throttle
        self._pending = bytearray()  # a copy: a slice would keep the whole read buffer

    def has_room(self, data: Buffer, last_offset: int) -> bool:
        """Whether a batch fits; the first one always does."""
        segment = self.segment
        size = segment.size + len(self._pending)
        return not size or (
            size + len(data) <= self._size_max
            and last_offset <= segment.offset_max
            and not segment.offset_index.is_full(self._index_bytes_max)
            and not segment.time_index.is_full(self._index_bytes_max)
        )

    def add(self, data: Buffer, last_offset: Offset, max_timestamp: int) -> None:
        """Add a batch."""
        segment = self.segment
        position = segment.size + len(self._pending)
        segment.index_batch(
            position, last_offset, len(data), max_timestamp, self._index_interval_bytes
        )
        self._pending += data
        if len(self._pending) >= self._io_bytes:
            self._write()

    def _write(self) -> None:
        if self._pending:
            self.segment.size = self.segment.file.write([self._pending], self.segment.size)
            self._throttle.passed(len(self._pending))
            self._pending = bytearray()

    def finish(self, modified_ms: int) -> None:
        """Put the segment on the device with the modification time of its sources.

        Retention uses that time for a segment without timestamps, for example one without records.
        """
        self._write()
        segment = self.segment
        self._disk.set_modified_ms(segment.file.path, modified_ms)
        segment.file.sync()
        segment.file.close()
        segment.index_time()
        self._write_index(Kind.OFFSET_INDEX, segment.offset_index.to_bytes())
        self._write_index(Kind.TIME_INDEX, segment.time_index.to_bytes())
        if segment.txn_index.entries:
            self._write_index(Kind.TXN_INDEX, segment.txn_index.to_bytes())

    def _write_index(self, kind: Kind, data: bytes) -> None:
        path = cleaned_path(self.segment.directory, self.segment.base_offset, kind)
        file = self._disk.open(path, create=True)
        try:
            file.write([data], 0)
            file.sync()
        finally:
            file.close()


def swap(disk: Disk, directory: str, bases: list[Offset], replaced: list[str]) -> tuple[str, ...]:
    """Replace files by cleaned segments; return the new paths of the replaced files.

    Rule C7. A crash before the last segment is `.swap` keeps the old segments; a crash after it
    keeps the new ones: `recovery/crash_cleanup.py` completes or reverts the swap.
    """
    for base in sorted(bases, reverse=True):
        for path in _paths(disk, directory, base, FileState.CLEANED):
            disk.rename(path, path.removesuffix(FileState.CLEANED) + FileState.SWAP)
        disk.sync_directory(directory)
    marked = mark_deleted(disk, replaced)
    disk.sync_directory(directory)
    for base in sorted(bases):
        # The records file last: while it is `.swap`, the next start repeats this after a crash.
        for path in reversed(_paths(disk, directory, base, FileState.SWAP)):
            disk.rename(path, path.removesuffix(FileState.SWAP))
    disk.sync_directory(directory)
    return marked


def _paths(disk: Disk, directory: str, base: Offset, state: FileState) -> list[str]:
    """The files of a segment in one state, the records file first."""
    paths = (f"{directory}/{offset_file(base, kind, state)}" for kind in SEGMENT_FILES)
    return [path for path in paths if disk.exists(path)]


def open_cleaned(disk: Disk, directory: str, base_offset: Offset, created_ms: int) -> Segment:
    """Open a cleaned segment with its indexes before it is swapped in.

    So a process without free file descriptors fails before anything is renamed.
    """

    def path(kind: Kind) -> str:
        return cleaned_path(directory, base_offset, kind)

    file = disk.open(path(Kind.RECORDS))
    segment = Segment(
        directory, base_offset, file.released(), size=file.size(), created_ms=created_ms
    )
    segment.use_indexes(
        Indexes(
            OffsetIndex.in_file(base_offset, disk.open(path(Kind.OFFSET_INDEX))),
            TimeIndex.in_file(base_offset, disk.open(path(Kind.TIME_INDEX))),
        )
    )
    if disk.exists(aborted := path(Kind.TXN_INDEX)):
        segment.txn_index = TransactionIndex(base_offset, read_whole(disk, aborted))
    segment.load_latest_timestamp()
    segment.indexed_size = segment.size
    return segment


def mark_swapped(segment: Segment) -> None:
    """Record the final paths of a segment's files after the swap."""
    segment.file.renamed(segment.path(Kind.RECORDS))
    segment.offset_index.renamed(segment.path(Kind.OFFSET_INDEX))
    segment.time_index.renamed(segment.path(Kind.TIME_INDEX))
