"""What the log asks of a file system: the interface, and how small files are replaced.

Invariant: whatever a disk is, a write is whole or it did not happen, every failure is a
StorageFailure, DiskFull when it changed nothing for want of room, and looking at a file that is
missing is a FileNotFoundError. `files.py` has the real one; tests put in its place a disk that
forgets what was not synced, tears writes, fills up and fails.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from ottla.log.names import TEMPORARY_SUFFIX
from ottla.protocol.primitives import Buffer

T = TypeVar("T")


class File(Protocol):
    """An open file that is read anywhere and written at its end."""

    @property
    def path(self) -> str:
        """Where it was opened."""
        ...

    def size(self) -> int:
        """Bytes in the file."""
        ...

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write all buffers at a position, the file's end; returns the position behind them."""
        ...

    def read(self, position: int, size: int) -> bytes:
        """So many bytes, fewer at the end of the file. May wait for the device."""
        ...

    def read_cached(self, position: int, size: int) -> bytes | bytearray | None:
        """The same without waiting; None when something is not in memory."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file."""
        ...

    def renamed(self, path: str) -> None:
        """Go by another name from now on: it was renamed while it was open."""
        ...

    def sync(self) -> None:
        """Return when everything written is on the device."""
        ...

    def fileno(self) -> int:
        """The descriptor, for sendfile; -1 when there is none."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...


class Room(NamedTuple):
    """How large a file system is, and how much of it is free."""

    total_bytes: int
    usable_bytes: int


class Disk(Protocol):
    """The file system. Paths are whole.

    Looking at a file that is missing is a FileNotFoundError, changing one a StorageFailure.
    """

    def open(self, path: str, *, create: bool = False, private: bool = False) -> File:
        """Open for reading and writing; `create` makes the file, which must not be there.

        What is `private` no other user of the machine may open from then on.
        """
        ...

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        ...

    def is_directory(self, path: str) -> bool:
        """Whether there is a folder."""
        ...

    def names(self, directory: str) -> list[str]:
        """What is in a folder, sorted."""
        ...

    def modified_ms(self, path: str) -> int:
        """When a file was last changed."""
        ...

    def room(self, path: str) -> Room:
        """How much fits where a folder is."""
        ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Say when it was: for a file that takes the place of others."""
        ...

    def make_directory(self, path: str) -> None:
        """Make a folder, and those above it that are missing."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename at once, replacing what has the new name."""
        ...

    def remove(self, path: str) -> None:
        """Delete a file."""
        ...

    def remove_directory(self, path: str) -> None:
        """Delete an empty folder."""
        ...

    def sync_directory(self, path: str) -> None:
        """Return when the names in a folder are on the device."""
        ...

    def lock(self, path: str) -> "Lock | None":
        """Hold a file so that no other process does; None when another one holds it."""
        ...

    async def blocking(self, call: Callable[[], T]) -> T:
        """Do what may wait for the device without stopping the event loop."""
        ...

    async def working(self, call: Callable[[], T]) -> T:
        """Do what keeps a core busy, so that neither the loop nor who wants the device waits."""
        ...


class Lock(Protocol):
    """A file that this process holds."""

    def release(self) -> None:
        """Let go."""
        ...


def write_atomically(disk: Disk, path: str, data: bytes, *, private: bool = False) -> None:
    """Replace a file's content, on the device when this returns (C1)."""
    replace(disk, path, data, private=private)
    disk.sync_directory(path.rpartition("/")[0])


def replace(disk: Disk, path: str, data: bytes, *, private: bool = False) -> None:
    """Replace a file's content; after a crash there is the old or, once synced, the new one."""
    disk.rename(staged(disk, path, data, private=private), path)


def staged(disk: Disk, path: str, data: bytes, *, private: bool = False) -> str:
    """Put a file's next content on the device under another name, which is returned.

    What needs room is done then: to rename the file needs none.
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
    """The content of a small file."""
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
