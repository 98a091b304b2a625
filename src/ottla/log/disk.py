"""The file system interface of the log, and the atomic replacement of small files.

Invariant: a write is complete or did not happen. Every failure is a StorageFailure, and
StorageExhausted if nothing was changed for lack of space or descriptors. Reading a missing file
is a FileNotFoundError. `files.py` has the real file system; tests use one that loses unsynced data,
tears writes, fills up and fails.
"""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol, TypeVar

from ottla.log.names import TEMPORARY_SUFFIX
from ottla.protocol.primitives import Buffer

T = TypeVar("T")


class PinnedFile(Protocol):
    """A file that stays open until nothing refers to it, even if the log closes it."""

    def fileno(self) -> int:
        """The file descriptor."""
        ...

    def is_cached(self, position: int, size: int) -> bool:
        """Whether all bytes of a range are in the page cache; for the event loop only."""
        ...

    def read(self, position: int, size: int) -> bytes:
        """Read bytes, fewer at the end of the file; may wait for the device."""
        ...


class File(Protocol):
    """An open file that is read anywhere and written at its end."""

    @property
    def path(self) -> str:
        """The path of the file."""
        ...

    def size(self) -> int:
        """The size in bytes."""
        ...

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write all buffers at the end of the file; return the new end."""
        ...

    def read(self, position: int, size: int) -> bytes:
        """Read bytes, fewer at the end of the file; may wait for the device."""
        ...

    def read_cached(self, position: int, size: int) -> Buffer | None:
        """Read without waiting, on the event loop; None if some bytes are not in the page cache."""
        ...

    def truncate(self, size: int) -> None:
        """Truncate the file."""
        ...

    def renamed(self, path: str) -> None:
        """Record the new path of a file that was renamed while it was open."""
        ...

    def is_in_place(self) -> bool:
        """Whether the path still names this file; False if it was removed, moved or replaced."""
        ...

    def sync(self) -> None:
        """Return when everything written is on the device; a removed file is a failure."""
        ...

    def fileno(self) -> int:
        """The file descriptor; -1 if there is none."""
        ...

    def pin(self, end: int) -> PinnedFile | None:
        """Keep the file open for sendfile; None if its bytes cannot be sent from the file.

        The bytes below `end` must not change any more: see `pinned_end`.
        """
        ...

    @property
    def pinned_end(self) -> int:
        """The end of the bytes that must not change, because sockets may refer to their pages."""
        ...

    def released(self) -> "File":
        """Return the same file, which the disk may close until it is read again.

        The file has been synced and is not written any more.
        """
        ...

    def held(self) -> "File":
        """Return the same file, open until it is closed; waits for the device."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class Room(NamedTuple):
    """The size of a file system and its free space."""

    total_bytes: int
    usable_bytes: int


class Reader(Enum):
    """For whom a read waits for the device."""

    BROKER = auto()  # for the broker itself
    CLIENT = auto()
    FOLLOWER = auto()


class Disk(Protocol):
    """The file system; paths are absolute.

    Reading a missing file is a FileNotFoundError, changing one a StorageFailure.
    """

    def open(self, path: str, *, create: bool = False, private: bool = False) -> File:
        """Open for reading and writing; `create` creates the file, which must not exist.

        A `private` file is not accessible to other users.
        """
        ...

    def exists(self, path: str) -> bool:
        """Whether a file or directory exists."""
        ...

    def is_directory(self, path: str) -> bool:
        """Whether a directory exists."""
        ...

    def names(self, directory: str) -> list[str]:
        """The names in a directory, sorted."""
        ...

    def modified_ms(self, path: str) -> int:
        """The modification time of a file."""
        ...

    def room(self, path: str) -> Room:
        """The space of the file system that holds a directory."""
        ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the modification time of a file that replaces others."""
        ...

    def make_directory(self, path: str) -> None:
        """Create a directory and its missing parents."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename atomically; an existing file of the new name is replaced."""
        ...

    def remove(self, path: str) -> None:
        """Delete a file."""
        ...

    def remove_directory(self, path: str) -> None:
        """Delete an empty directory."""
        ...

    def sync_directory(self, path: str) -> None:
        """Return when the names in a directory are on the device."""
        ...

    def lock(self, path: str) -> "Lock | None":
        """Lock a file against other processes; None if another one holds the lock."""
        ...

    @property
    def is_short_of_descriptors(self) -> bool:
        """Whether the log has so many open files that it should not open more than it must."""
        ...

    async def blocking(self, call: Callable[[], T]) -> T:
        """Run a call that may wait for the device without blocking the event loop."""
        ...

    async def reading(self, call: Callable[[], T], reader: Reader) -> T:
        """Do the same for a read; other readers and other calls do not wait for it."""
        ...

    async def working(self, call: Callable[[], T]) -> T:
        """Run a call that keeps a core busy, apart from the threads that wait for the device."""
        ...


class Lock(Protocol):
    """A file that this process has locked."""

    def is_in_place(self) -> bool:
        """Whether the path still names the locked file."""
        ...

    def release(self) -> None:
        """Release the lock."""
        ...


def write_atomically(disk: Disk, path: str, data: bytes, *, private: bool = False) -> None:
    """Replace the content of a file; on the device when this returns (rule C1)."""
    replace(disk, path, data, private=private)
    disk.sync_directory(path.rpartition("/")[0])


def replace(disk: Disk, path: str, data: bytes, *, private: bool = False) -> None:
    """Replace the content of a file; after a crash it has the old or the new content."""
    disk.rename(staged(disk, path, data, private=private), path)


def staged(disk: Disk, path: str, data: bytes, *, private: bool = False) -> str:
    """Write the next content of a file to a temporary file on the device; return its path.

    Only this step needs disk space; the rename that follows does not.
    """
    temporary = path + TEMPORARY_SUFFIX
    if disk.exists(temporary):
        disk.remove(temporary)
    file = disk.open(temporary, create=True, private=private)
    try:
        file.write([data], 0)
        file.sync()
    finally:
        file.close()
    return temporary


def read_whole(disk: Disk, path: str) -> bytes:
    """Read a small file."""
    file = disk.open(path)
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def remove_tree(disk: Disk, path: str) -> None:
    """Remove a directory and its files; it has no directories inside."""
    for name in disk.names(path):
        disk.remove(f"{path}/{name}")
    disk.remove_directory(path)
