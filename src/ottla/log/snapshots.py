"""The `.snapshot` files of a partition, each named for the offset up to which it saw the log.

Invariant: a snapshot is written after the records it was taken of are on the device, and is gone
before the log is cut below its offset. So every file that can be read tells the truth. When a log
has been opened, one is left where each segment begins, and the latest: as many as Kafka keeps.
"""

from collections.abc import Iterable, Mapping

from ottla.ids import Offset
from ottla.log.disk import Disk, read_whole, replace
from ottla.log.errors import CorruptSnapshot
from ottla.log.names import Kind, offset_file
from ottla.log.producer_snapshot import read_snapshot, write_snapshot
from ottla.log.producers import Producers


class Snapshots:
    """What there is on the disk, and what is still to be written."""

    __slots__ = ("_directory", "_disk", "_due", "_written")

    def __init__(self, disk: Disk, directory: str, offsets: Iterable[Offset] = ()) -> None:
        self._disk = disk
        self._directory = directory
        self._written = set(offsets)
        self._due: dict[Offset, bytes] = {}

    @property
    def offsets(self) -> list[Offset]:
        """Those that can be asked for, the earliest first."""
        return sorted({*self._written, *self._due})

    def __contains__(self, offset: int) -> bool:
        """Whether there is one on the disk."""
        return offset in self._written

    @property
    def are_due(self) -> bool:
        """Whether there are any to be written."""
        return bool(self._due)

    @property
    def due(self) -> Mapping[Offset, bytes]:
        """Those to be written, as they are now."""
        return dict(self._due)

    def path(self, offset: int) -> str:
        """Where a snapshot is."""
        return f"{self._directory}/{offset_file(offset, Kind.PRODUCER_SNAPSHOT)}"

    def take(self, offset: Offset, producers: Producers) -> None:
        """Keep the state of a log that ends at an offset."""
        if offset not in self._written:
            self._due[offset] = write_snapshot(producers)

    def write(self, due: Mapping[Offset, bytes]) -> None:
        """Write snapshots; may wait for the device, and the folder has to be synced after it."""
        for offset, data in due.items():
            replace(self._disk, self.path(offset), data)

    def note_written(self, offsets: Iterable[Offset]) -> None:
        """Snapshots are on the disk now."""
        for offset in offsets:
            self._written.add(offset)
            self._due.pop(offset, None)

    def forget(self, *, below: int = 0, above: int | None = None) -> list[str]:
        """Give up what lies outside of bounds; returns the files that have to be removed."""
        return self.forget_at(
            o for o in self.offsets if o < below or (above is not None and o > above)
        )

    def forget_stray(self, bases: Iterable[Offset]) -> list[str]:
        """Give up all but the latest and those where segments begin; returns files to remove.

        Every clean stop takes one where the log ends, which soon is the middle of a segment.
        """
        kept = {*bases, *self.offsets[-1:]}
        return self.forget_at(offset for offset in self.offsets if offset not in kept)

    def forget_at(self, offsets: Iterable[Offset]) -> list[str]:
        """Give up single ones; returns the files that have to be removed."""
        gone = list(offsets)
        paths = [self.path(offset) for offset in gone if offset in self._written]
        for offset in gone:
            self._written.discard(offset)
            self._due.pop(offset, None)
        return paths

    def latest(self, until: int) -> tuple[Offset, Producers] | None:
        """The last one at or below an offset that can be read."""
        for offset in reversed(self.offsets):
            if offset <= until:
                try:
                    data = self._due.get(offset)
                    return offset, read_snapshot(
                        read_whole(self._disk, self.path(offset)) if data is None else data
                    )
                except (CorruptSnapshot, FileNotFoundError):
                    self._written.discard(offset)  # so that it is written again when it is due
        return None
