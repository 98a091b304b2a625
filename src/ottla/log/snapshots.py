"""The producer snapshots of a partition, each named for the offset at which it was taken.

Invariant: a snapshot is written after the records before its offset are on the device, and removed
before the log is truncated below its offset. So every readable file is valid. After a log was
opened, there is a snapshot at the base offset of each segment and the latest one, as in Kafka.
"""

from collections.abc import Iterable, Mapping

from ottla.ids import Offset
from ottla.log.disk import Disk, read_whole, replace
from ottla.log.errors import CorruptSnapshot
from ottla.log.names import Kind, offset_file
from ottla.log.producer_snapshot import read_snapshot, write_snapshot
from ottla.log.producer_state_manager import ProducerStateManager


class Snapshots:
    """The snapshots on the disk, and those that are not written yet."""

    __slots__ = ("_directory", "_disk", "_due", "_written")

    def __init__(self, disk: Disk, directory: str, offsets: Iterable[Offset] = ()) -> None:
        self._disk = disk
        self._directory = directory
        self._written = set(offsets)
        self._due: dict[Offset, bytes] = {}

    @property
    def offsets(self) -> list[Offset]:
        """The offsets of all snapshots, sorted."""
        return sorted({*self._written, *self._due}) if self._written or self._due else []

    def __contains__(self, offset: int) -> bool:
        """Whether a snapshot is on the disk."""
        return offset in self._written

    @property
    def are_due(self) -> bool:
        """Whether there are snapshots to write."""
        return bool(self._due)

    @property
    def due(self) -> Mapping[Offset, bytes]:
        """The snapshots to write."""
        return dict(self._due)

    def path(self, offset: int) -> str:
        """The path of a snapshot."""
        return f"{self._directory}/{offset_file(offset, Kind.PRODUCER_SNAPSHOT)}"

    def take(self, offset: Offset, producers: ProducerStateManager) -> None:
        """Take a snapshot of a log that ends at an offset; a flush writes it."""
        if offset not in self._written:
            self._due[offset] = write_snapshot(producers)

    def write(self, due: Mapping[Offset, bytes]) -> None:
        """Write snapshots; may wait for the device. The caller syncs the directory."""
        for offset, data in due.items():
            replace(self._disk, self.path(offset), data)

    def mark_written(self, offsets: Iterable[Offset]) -> None:
        """Record that snapshots are on the disk."""
        for offset in offsets:
            self._written.add(offset)
            self._due.pop(offset, None)

    def forget(self, *, below: int = 0, above: int | None = None) -> list[str]:
        """Drop the snapshots outside of bounds; return the files to remove."""
        return self.forget_at(
            o for o in self.offsets if o < below or (above is not None and o > above)
        )

    def forget_unaligned(self, bases: Iterable[Offset]) -> list[str]:
        """Drop all but the latest snapshot and those at base offsets; return the files to remove.

        Every clean shutdown takes a snapshot at the log end offset, which is soon inside a segment.
        """
        kept = {*bases, *self.offsets[-1:]}
        return self.forget_at(offset for offset in self.offsets if offset not in kept)

    def forget_at(self, offsets: Iterable[Offset]) -> list[str]:
        """Drop single snapshots; return the files to remove."""
        gone = list(offsets)
        paths = [self.path(offset) for offset in gone if offset in self._written]
        for offset in gone:
            self._written.discard(offset)
            self._due.pop(offset, None)
        return paths

    def latest(self, until: int) -> tuple[Offset, ProducerStateManager] | None:
        """The last readable snapshot at or below an offset."""
        for offset in reversed(self.offsets):
            if offset <= until:
                try:
                    data = self._due.get(offset)
                    return offset, read_snapshot(
                        read_whole(self._disk, self.path(offset)) if data is None else data
                    )
                except (CorruptSnapshot, FileNotFoundError):
                    self._written.discard(offset)  # so that it can be written again
        return None
