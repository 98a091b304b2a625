"""A disk in memory that loses unsynced data, tears writes, fills up, fails and rots.

Invariant: after a crash a file has its synced content plus a part of the later changes that the
loss mode allows; an unsynced rename has or has not happened. Renames reach the device in order or,
in HOLES mode, independently: a file system guarantees no order without sync. Everything else
behaves as a real disk, so the log cannot tell the difference.

Calls are counted. A crash can be set for any of them: the call has no effect, Crashed is raised
through all code, and no later call has an effect either.
"""

import sys
from collections.abc import Callable, Coroutine, Sequence
from copy import copy
from random import Random
from typing import Any, NamedTuple, TypeVar

from ottla.errors import DiskFull, StorageFailure
from ottla.log.disk import Reader, Room
from ottla.protocol.primitives import Buffer
from ottla.testing.content import Content, Cut, Loss, Write

T = TypeVar("T")


class Crashed(BaseException):
    """Simulated power failure. Not an Exception: nothing in the log may catch it."""


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that awaits only a simulated disk, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise AssertionError("the coroutine awaits something that is not simulated")


class _Naming(NamedTuple):
    """A name that was bound to a file or removed; those of one call reach the device together."""

    path: str
    node: "Content | None"


class SimulatedFile:
    """A file of a simulated disk."""

    def __init__(self, disk: "SimulatedDisk", path: str, node: Content) -> None:
        self._disk = disk
        self._node = node
        self._path = path
        self._broken = False

    @property
    def path(self) -> str:
        """The path under which it was opened."""
        return self._path

    def fileno(self) -> int:
        """Return -1: there is no descriptor."""
        return -1

    def pin(self, end: int) -> None:
        """Return None: there is no descriptor to send from."""

    @property
    def pinned_end(self) -> int:
        """Return 0, or a large number if the test asked for pinned files."""
        return sys.maxsize if self._disk.pinned else 0

    def size(self) -> int:
        """Return the size in bytes."""
        return len(self._node.data)

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write at a position, or raise and change nothing."""
        data = b"".join(buffers)
        self._disk.call("write", self._path)
        if self._broken:
            raise StorageFailure(f"{self._path}: broken by an earlier failure")
        self._disk.check_room(position + len(data) - len(self._node.data), self._path)
        self._node.do(Write(position, data))
        return position + len(data)

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes, fewer at the end."""
        return bytes(self._node.data[position : position + size])

    def read_cached(self, position: int, size: int) -> Buffer | None:
        """Like `read`, but return None while the disk is cold."""
        return None if self._disk.is_cold(self._path) else self.read(position, size)

    def truncate(self, size: int) -> None:
        """Truncate the file."""
        self._disk.call("truncate", self._path)
        self._node.do(Cut(size))

    def renamed(self, path: str) -> None:
        """Note the new path after a rename."""
        self._path = path

    def is_in_place(self) -> bool:
        """Whether the path still names this file."""
        return self._disk.has(self._node, self._path)

    def sync(self) -> None:
        """Make the content durable; after a failure the file is unusable."""
        try:
            self._disk.call("sync", self._path)
            if not self.is_in_place() and not self._disk.has(self._node):
                raise StorageFailure(f"{self._path}: sync: the file was removed")
        except StorageFailure:
            self._broken = True
            raise
        self._node.sync()

    def released(self) -> "SimulatedFile":
        """Return this file: there are no descriptors."""
        return self

    def held(self) -> "SimulatedFile":
        """Return this file."""
        return self

    def close(self) -> None:
        """Close the file; no effect here."""


class SimulatedLock:
    """A held lock."""

    def __init__(self, held: "dict[str, SimulatedLock]", path: str) -> None:
        self._held = held
        self._path = path

    def is_in_place(self) -> bool:
        """Whether the path still names the locked file."""
        return self._held.get(self._path) is self

    def release(self) -> None:
        """Release the lock."""
        if self.is_in_place():
            del self._held[self._path]


class SimulatedDisk:
    """A file system in memory; open the log again on the result of `after_crash`."""

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.cold = False  # whether the page cache is empty
        self.pinned = False  # whether sockets may refer to every byte
        self.is_cold: Callable[[str], bool] = lambda path: self.cold  # the same by path
        self.calls: list[tuple[str, str]] = []
        self.crash_at: int | None = None  # number of the call that crashes
        self.fails: Callable[[str, str], bool] = lambda what, path: False
        self.now_ms = 0
        self._files: dict[str, Content] = {}
        self._directories: set[str] = {"/"}
        self._locks: dict[str, SimulatedLock] = {}
        # Names on the device, and the unsynced changes of names.
        self._synced_names: dict[str, Content] = {}
        self._pending_names: list[tuple[str, list[_Naming]]] = []  # with their directory
        self._modified_ms: dict[str, int] = {}

    def call(self, what: str, path: str) -> None:
        """Record a call; crash or fail if a test asked for it."""
        if self.crash_at is not None and len(self.calls) >= self.crash_at:
            raise Crashed(f"{what} {path}")
        self.calls.append((what, path))
        if what in ("create", "write", "truncate"):
            self._modified_ms[path] = self.now_ms
        if self.fails(what, path):
            raise StorageFailure(f"{path}: {what}: injected failure")

    def check_room(self, more: int, path: str) -> None:
        """Raise DiskFull if `more` bytes do not fit."""
        if self.capacity_bytes is not None:
            used = sum(len(node.data) for node in self._files.values())
            if used + more > self.capacity_bytes:
                raise DiskFull(f"{path}: write: no space left on the disk")

    def open(self, path: str, *, create: bool = False, private: bool = False) -> SimulatedFile:
        """Open a file for reading and writing."""
        if create:
            if path in self._files:
                raise StorageFailure(f"{path}: open: the file exists")
            if _parent(path) not in self._directories:
                raise _missing("open", path)
            self.call("create", path)
            self._name(_Naming(path, Content()))
        if path not in self._files:
            raise FileNotFoundError(path)
        return SimulatedFile(self, path, self._files[path])

    def exists(self, path: str) -> bool:
        """Whether a file or directory exists."""
        return path in self._files or path in self._directories

    def has(self, node: Content, path: str | None = None) -> bool:
        """Whether a path, or any path, names this content."""
        if path is not None:
            return self._files.get(path) is node
        return any(one is node for one in self._files.values())

    def is_directory(self, path: str) -> bool:
        """Whether a directory exists."""
        return path in self._directories

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted."""
        if directory not in self._directories:
            raise FileNotFoundError(directory)
        inside = [path for path in (*self._files, *self._directories) if _parent(path) == directory]
        return sorted(path.rsplit("/", 1)[1] for path in inside if path != "/")

    def modified_ms(self, path: str) -> int:
        """Return the modification time of a file."""
        if not self.exists(path):
            raise FileNotFoundError(path)
        return self._modified_ms.get(path, 0)

    def room(self, path: str) -> Room:
        """Return the configured capacity, or a terabyte, and the free space."""
        total = 2**40 if self.capacity_bytes is None else self.capacity_bytes
        used = sum(len(node.data) for node in self._files.values())
        return Room(total, max(total - used, 0))

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the modification time."""
        self.modified_ms(path)
        self._modified_ms[path] = modified_ms

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents; directories survive a crash."""
        while path not in self._directories:
            self._directories.add(path)
            path = _parent(path)

    def rename(self, old: str, new: str) -> None:
        """Rename a file or a directory atomically."""
        modified_ms = self._modified_ms.get(old, 0)
        self.call("rename", old)
        self._modified_ms[new] = modified_ms  # a rename keeps the modification time
        if old in self._directories:
            self._rename_directory(old, new)
            return
        if old not in self._files:
            raise _missing("rename", old)
        self._name(_Naming(old, None), _Naming(new, self._files[old]))

    def _rename_directory(self, old: str, new: str) -> None:
        """Rename a directory, on the device at once: the crash test comes before it."""
        self._directories.discard(old)
        self._directories.add(new)
        self._forget_locks(old)
        for names in (self._files, self._synced_names):
            for path in [path for path in names if path.startswith(old + "/")]:
                names[new + path[len(old) :]] = names.pop(path)

    def remove(self, path: str) -> None:
        """Delete a file."""
        self.call("remove", path)
        if path not in self._files:
            raise _missing("remove", path)
        self._name(_Naming(path, None))

    def remove_directory(self, path: str) -> None:
        """Delete an empty directory."""
        self.call("remove", path)
        if self.names(path):
            raise StorageFailure(f"{path}: remove: the directory is not empty")
        self._directories.discard(path)
        self._forget_locks(path)

    def _forget_locks(self, directory: str) -> None:
        """Forget the locks in a directory that was removed or renamed: lock files go with it."""
        for path in [path for path in self._locks if path.startswith(directory + "/")]:
            del self._locks[path]

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        self.call("sync", path)
        for directory, namings in self._pending_names:
            if directory == path:
                _set(self._synced_names, namings)
        self._pending_names = [one for one in self._pending_names if one[0] != path]

    def lock(self, path: str) -> SimulatedLock | None:
        """Lock a path; return None if it is locked."""
        if path in self._locks:
            return None
        lock = self._locks[path] = SimulatedLock(self._locks, path)
        return lock

    @property
    def is_short_of_descriptors(self) -> bool:
        """Return False: there are no descriptors."""
        return False

    async def blocking(self, call: Callable[[], T]) -> T:
        """Run the call at once: simulated devices do not wait."""
        return call()

    async def reading(self, call: Callable[[], T], reader: Reader) -> T:
        """Run the read at once."""
        return await self.blocking(call)

    async def working(self, call: Callable[[], T]) -> T:
        """Run the call at once."""
        return await self.blocking(call)

    def fill(self) -> None:
        """Leave no free space, until `capacity_bytes` is set again."""
        self.capacity_bytes = sum(len(node.data) for node in self._files.values())

    def wipe(self, directory: str) -> None:
        """Lose everything in a directory, as if its device was replaced by an empty one."""
        inside = f"{directory}/"
        for names in (self._files, self._synced_names, self._modified_ms):
            for path in [path for path in names if path.startswith(inside)]:
                del names[path]
        self._pending_names = [
            one for one in self._pending_names if not f"{one[0]}/".startswith(inside)
        ]
        self._directories = {one for one in self._directories if not one.startswith(inside)}
        self._forget_locks(directory)

    def rot(self, path: str, position: int, bits: int = 1) -> None:
        """Flip bits of a byte, as bit rot does."""
        node = self._files[path]
        node.data[position] ^= bits
        if position < len(node.synced):
            synced = bytearray(node.synced)
            synced[position] ^= bits
            node.synced = bytes(synced)

    def _name(self, *namings: _Naming) -> None:
        _set(self._files, namings)
        self._pending_names.append((_parent(namings[0].path), list(namings)))

    def after_crash(self, loss: Loss, random: Random) -> "SimulatedDisk":
        """Return the disk as found after a power failure."""
        names = dict(self._synced_names)
        for namings in self._surviving(loss, random):
            # Skip a rename whose source name did not survive.
            if len(namings) == 1 or names.get(namings[0].path) is namings[1].node:
                _set(names, namings)
        found: dict[str, Content] = {}
        for path, node in names.items():
            survivor = found[path] = Content()
            survivor.data = bytearray(node.after(loss, random))
            survivor.sync()
        return self._next(found, dict(found), [])

    def _surviving(self, loss: Loss, random: Random) -> list[list[_Naming]]:
        """Return the unsynced changes of names that reached the device anyway."""
        pending = [namings for _, namings in self._pending_names]
        if loss is Loss.ALL:
            return []
        if loss is Loss.TORN:
            return pending[: random.randrange(len(pending) + 1)]
        share = random.random()
        return [namings for namings in pending if random.random() < share]

    def after_kill(self) -> "SimulatedDisk":
        """Return the disk as the next process finds it after a kill: nothing is lost.

        Unsynced changes remain unsynced. The killed process cannot change the disk any more.
        """
        self.crash_at = 0
        return self._next(dict(self._files), dict(self._synced_names), [*self._pending_names])

    def _next(
        self,
        files: dict[str, Content],
        synced_names: dict[str, Content],
        pending_names: list[tuple[str, list[_Naming]]],
    ) -> "SimulatedDisk":
        """Return a copy of the disk with other content, for the next process."""
        found = copy(self)
        found.renew(files, synced_names, pending_names)
        return found

    def renew(
        self,
        files: dict[str, Content],
        synced_names: dict[str, Content],
        pending_names: list[tuple[str, list[_Naming]]],
    ) -> None:
        """Replace the content, and clear locks, call records and faults."""
        self.cold = False
        self.is_cold = lambda path: self.cold
        self.calls = []
        self.crash_at = None
        self.fails = lambda what, path: False
        self._files = files
        self._directories = set(self._directories)
        self._locks = {}
        self._synced_names = synced_names
        self._pending_names = pending_names
        self._modified_ms = dict(self._modified_ms)


def _set(names: dict[str, Content], namings: Sequence[_Naming]) -> None:
    for path, node in namings:
        if node is None:
            names.pop(path, None)
        else:
            names[path] = node


def _missing(what: str, path: str) -> StorageFailure:
    return StorageFailure(f"{path}: {what}: no such file")


def _parent(path: str) -> str:
    return path.rsplit("/", 1)[0] or "/"
