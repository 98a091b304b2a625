"""The real disk with injected faults: full, failed, or cut off.

Invariant: while the disk is full no file grows or is created, but files can be read, truncated,
renamed and deleted. In a failed directory nothing changes any more. Once cut off, nothing changes
anywhere, as after a kill: written data stays in the page cache, and nothing is added or synced. All
faults look like any other disk failure.
"""

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from ottla.errors import DiskFull, StorageFailure
from ottla.log.disk import File, Lock, PinnedFile, Reader, Room
from ottla.log.files import OsDisk
from ottla.protocol.primitives import Buffer

T = TypeVar("T")


class TroubledFile:
    """A file on a disk with faults."""

    __slots__ = ("_disk", "_file")

    def __init__(self, disk: "TroubledDisk", file: File) -> None:
        self._disk = disk
        self._file = file

    @property
    def path(self) -> str:
        """The path under which it was opened."""
        return self._file.path

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self._file.fileno()

    def pin(self, end: int) -> PinnedFile | None:
        """Keep the file open for sendfile."""
        return self._file.pin(end)

    @property
    def pinned_end(self) -> int:
        """The end of the bytes that must not change."""
        return self._file.pinned_end

    def size(self) -> int:
        """Return the size in bytes."""
        return self._file.size()

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write, unless the disk is full."""
        self._disk.check_room("write", self.path)
        return self._file.write(buffers, position)

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes, fewer at the end of the file."""
        return self._file.read(position, size)

    def read_cached(self, position: int, size: int) -> Buffer | None:
        """Like `read`, but without blocking."""
        return self._file.read_cached(position, size)

    def truncate(self, size: int) -> None:
        """Truncate the file."""
        self._disk.check_there("truncate", self.path)
        self._file.truncate(size)

    def renamed(self, path: str) -> None:
        """Note the new path after a rename."""
        self._file.renamed(path)

    def is_in_place(self) -> bool:
        """Whether the path still names this file."""
        return self._file.is_in_place()

    def sync(self) -> None:
        """Return when everything written is on the device."""
        self._disk.check_there("sync", self.path)
        self._file.sync()

    def released(self) -> "TroubledFile":
        """Return the same file, which the disk may close."""
        return TroubledFile(self._disk, self._file.released())

    def held(self) -> "TroubledFile":
        """Return the same file, open."""
        return TroubledFile(self._disk, self._file.held())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TroubledDisk:
    """The file system of the machine, for one run of a broker."""

    def __init__(
        self, full: Callable[[], bool], failed: Callable[[], Collection[str]] = lambda: ()
    ) -> None:
        """A disk; `failed` returns the directories that have failed."""
        self._disk = OsDisk()
        self._full = full
        self._failed = failed
        self._gone = False
        self._locks: list[Lock] = []

    def take_away(self) -> None:
        """Cut the broker off from its files."""
        self._gone = True

    def close(self) -> None:
        """Wait for calls in progress; locks end with the process."""
        self._disk.close()
        for lock in self._locks:
            lock.release()

    def check_there(self, what: str, path: str) -> None:
        """Raise if the disk is cut off or the directory has failed."""
        if self._gone:
            raise StorageFailure(f"{path}: {what}: the broker was killed")
        if any(path == one or path.startswith(f"{one}/") for one in self._failed()):
            raise StorageFailure(f"{path}: {what}: Input/output error")

    def check_room(self, what: str, path: str) -> None:
        """Raise DiskFull if the disk is full."""
        self.check_there(what, path)
        if self._full():
            raise DiskFull(f"{path}: {what}: No space left on device")

    # The Disk interface.

    def open(self, path: str, *, create: bool = False, private: bool = False) -> TroubledFile:
        """Open a file for reading and writing."""
        if create:
            self.check_room("open", path)
        return TroubledFile(self, self._disk.open(path, create=create, private=private))

    def exists(self, path: str) -> bool:
        """Whether a file or directory exists."""
        return self._disk.exists(path)

    def is_directory(self, path: str) -> bool:
        """Whether a directory exists."""
        return self._disk.is_directory(path)

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted."""
        return self._disk.names(directory)

    def modified_ms(self, path: str) -> int:
        """Return the modification time of a file."""
        return self._disk.modified_ms(path)

    def room(self, path: str) -> Room:
        """Return the capacity and free space of a directory's file system."""
        room = self._disk.room(path)
        return Room(room.total_bytes, 0) if self._full() else room

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the modification time."""
        self.check_there("date", path)
        self._disk.set_modified_ms(path, modified_ms)

    def make_directory(self, path: str) -> None:
        """Create a directory and its missing parents."""
        if not self._disk.is_directory(path):
            self.check_room("mkdir", path)
        self._disk.make_directory(path)

    def rename(self, old: str, new: str) -> None:
        """Rename atomically, replacing an existing file."""
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
        """Lock a file against other brokers."""
        lock = self._disk.lock(path)
        if lock is not None:
            self._locks.append(lock)
        return lock

    @property
    def is_short_of_descriptors(self) -> bool:
        """Whether the log should not open more files than it must."""
        return self._disk.is_short_of_descriptors

    async def blocking(self, call: Callable[[], T]) -> T:
        """Run a call that may block on the device, without stopping the event loop."""
        return await self._disk.blocking(call)

    async def reading(self, call: Callable[[], T], reader: Reader) -> T:
        """Run a read, without stopping the event loop."""
        return await self._disk.reading(call, reader)

    async def working(self, call: Callable[[], T]) -> T:
        """Run a long computation, without stopping the event loop."""
        return await self.blocking(call)
