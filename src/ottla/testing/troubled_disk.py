"""The disk of the machine, that can be made full and can be taken away.

Invariant: while the disk is full nothing grows and nothing is made; what is there can be read, cut,
renamed and deleted. Once it is taken away nothing changes any more, as for a process that was
killed: what was written is in the page cache and stays, and nothing is added or synced. Both look
like any other failure of a disk.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from ottla.errors import DiskFull, StorageFailure
from ottla.log.disk import File, Lock, Room
from ottla.log.files import OsDisk
from ottla.protocol.primitives import Buffer

T = TypeVar("T")


class TroubledFile:
    """A file on such a disk."""

    __slots__ = ("_disk", "_file")

    def __init__(self, disk: "TroubledDisk", file: File) -> None:
        self._disk = disk
        self._file = file

    @property
    def path(self) -> str:
        """Where it was opened."""
        return self._file.path

    def fileno(self) -> int:
        """The descriptor."""
        return self._file.fileno()

    def size(self) -> int:
        """Bytes in the file."""
        return self._file.size()

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write, if there is room."""
        self._disk.check_room("write", self.path)
        return self._file.write(buffers, position)

    def read(self, position: int, size: int) -> bytes:
        """So many bytes, fewer at the end of the file."""
        return self._file.read(position, size)

    def read_cached(self, position: int, size: int) -> bytes | bytearray | None:
        """The same without waiting."""
        return self._file.read_cached(position, size)

    def truncate(self, size: int) -> None:
        """Cut the file."""
        self._disk.check_there("truncate", self.path)
        self._file.truncate(size)

    def renamed(self, path: str) -> None:
        """Go by another name from now on."""
        self._file.renamed(path)

    def sync(self) -> None:
        """Return when everything written is on the device."""
        self._disk.check_there("sync", self.path)
        self._file.sync()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


class TroubledDisk:
    """The file system of the machine, for one broker from its start to its end."""

    def __init__(self, full: Callable[[], bool]) -> None:
        self._disk = OsDisk()
        self._full = full
        self._gone = False
        self._locks: list[Lock] = []

    def take_away(self) -> None:
        """Let nothing more reach the files."""
        self._gone = True

    def close(self) -> None:
        """Wait for what is being done; locks end with their process."""
        self._disk.close()
        for lock in self._locks:
            lock.release()

    def check_there(self, what: str, path: str) -> None:
        """Fail when the disk was taken away."""
        if self._gone:
            raise StorageFailure(f"{path}: {what}: the broker was killed")

    def check_room(self, what: str, path: str) -> None:
        """Fail when nothing more can be written."""
        self.check_there(what, path)
        if self._full():
            raise DiskFull(f"{path}: {what}: No space left on device")

    # As any disk.

    def open(self, path: str, *, create: bool = False, private: bool = False) -> TroubledFile:
        """Open for reading and writing."""
        if create:
            self.check_room("open", path)
        return TroubledFile(self, self._disk.open(path, create=create, private=private))

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""
        return self._disk.exists(path)

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory."""
        return self._disk.is_directory(path)

    def names(self, directory: str) -> list[str]:
        """What is in a directory, sorted."""
        return self._disk.names(directory)

    def modified_ms(self, path: str) -> int:
        """When a file was last changed."""
        return self._disk.modified_ms(path)

    def room(self, path: str) -> Room:
        """How much fits where a directory is."""
        room = self._disk.room(path)
        return Room(room.total_bytes, 0) if self._full() else room

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Say when it was."""
        self.check_there("date", path)
        self._disk.set_modified_ms(path, modified_ms)

    def make_directory(self, path: str) -> None:
        """Make a directory, and those above it that are missing."""
        if not self._disk.is_directory(path):
            self.check_room("mkdir", path)
        self._disk.make_directory(path)

    def rename(self, old: str, new: str) -> None:
        """Rename at once, replacing what has the new name."""
        self.check_there("rename", old)
        self._disk.rename(old, new)

    def remove(self, path: str) -> None:
        """Delete a file."""
        self.check_there("remove", path)
        self._disk.remove(path)

    def remove_directory(self, path: str) -> None:
        """Delete an empty directory."""
        self.check_there("remove", path)
        self._disk.remove_directory(path)

    def sync_directory(self, path: str) -> None:
        """Return when the names in a directory are on the device."""
        self.check_there("sync", path)
        self._disk.sync_directory(path)

    def lock(self, path: str) -> Lock | None:
        """Hold a file so that no other broker does."""
        lock = self._disk.lock(path)
        if lock is not None:
            self._locks.append(lock)
        return lock

    async def blocking(self, call: Callable[[], T]) -> T:
        """Do what may wait for the device without stopping the event loop."""
        return await self._disk.blocking(call)

    async def working(self, call: Callable[[], T]) -> T:
        """The same."""
        return await self.blocking(call)
