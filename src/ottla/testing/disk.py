"""A disk in memory that loses what was not synced, tears writes, fills up, fails and rots.

Invariant: after `crash` a file holds what was synced, and of what was done to it since then some
part that its mode allows; a name that was not synced is the old or the new one. Changes of names
reach the device in their order or, where there are holes, each by itself: a file system owes no
order to those who do not sync. Everything else is as on a real disk, so the log cannot tell the
difference.

Calls are counted. A crash can be ordered at any of them: the call is not done, Crashed goes up
through everything, and no later call is done either.
"""

from collections.abc import Callable, Coroutine, Sequence
from copy import copy
from random import Random
from typing import Any, NamedTuple, TypeVar

from ottla.errors import DiskFull, StorageFailure
from ottla.log.disk import Room
from ottla.protocol.primitives import Buffer
from ottla.testing.content import Content, Cut, Loss, Write

T = TypeVar("T")


class Crashed(BaseException):
    """The power went out. Not an Exception: nothing in the log may catch it."""


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing but a simulated disk."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise AssertionError("it waits for something that is not simulated")


class _Naming(NamedTuple):
    """A name that got a file or lost it; those of one call reach the device together."""

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
        """Where it was opened."""
        return self._path

    def fileno(self) -> int:
        """There is no descriptor."""
        return -1

    def size(self) -> int:
        """Bytes in the file."""
        return len(self._node.data)

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write at a position, or fail and be as before."""
        data = b"".join(buffers)
        self._disk.call("write", self._path)
        if self._broken:
            raise StorageFailure(f"{self._path}: broken by an earlier failure")
        self._disk.check_room(position + len(data) - len(self._node.data), self._path)
        self._node.do(Write(position, data))
        return position + len(data)

    def read(self, position: int, size: int) -> bytes:
        """So many bytes, fewer at the end."""
        return bytes(self._node.data[position : position + size])

    def read_cached(self, position: int, size: int) -> bytes | bytearray | None:
        """The same, or None while the disk is told to be cold."""
        return None if self._disk.is_cold(self._path) else self.read(position, size)

    def truncate(self, size: int) -> None:
        """Cut the file."""
        self._disk.call("truncate", self._path)
        self._node.do(Cut(size))

    def renamed(self, path: str) -> None:
        """Go by another name from now on."""
        self._path = path

    def sync(self) -> None:
        """What is written now stays; a failure breaks the file."""
        try:
            self._disk.call("sync", self._path)
        except StorageFailure:
            self._broken = True
            raise
        self._node.sync()

    def close(self) -> None:
        """Let go of the file."""


class SimulatedLock:
    """A held name."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        """Let go."""
        self._held.discard(self._path)


class SimulatedDisk:
    """The file system in memory; give `after_crash` to what opens the log again."""

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.cold = False  # whether nothing is in the page cache
        self.is_cold: Callable[[str], bool] = lambda path: self.cold  # or what of it is not
        self.calls: list[tuple[str, str]] = []
        self.crash_at: int | None = None  # the number of the call that is not done any more
        self.fails: Callable[[str, str], bool] = lambda what, path: False
        self.now_ms = 0
        self._files: dict[str, Content] = {}
        self._directories: set[str] = {"/"}
        self._locks: set[str] = set()
        # Names as they are on the device, and what was done to names since.
        self._synced_names: dict[str, Content] = {}
        self._pending_names: list[tuple[str, list[_Naming]]] = []  # by directory
        self._modified_ms: dict[str, int] = {}

    def call(self, what: str, path: str) -> None:
        """Count a call; crash or fail if that was ordered."""
        if self.crash_at is not None and len(self.calls) >= self.crash_at:
            raise Crashed(f"{what} {path}")
        self.calls.append((what, path))
        if what in ("create", "write", "truncate"):
            self._modified_ms[path] = self.now_ms
        if self.fails(what, path):
            raise StorageFailure(f"{path}: {what}: ordered to fail")

    def check_room(self, more: int, path: str) -> None:
        """Fail when the disk is full."""
        if self.capacity_bytes is not None:
            used = sum(len(node.data) for node in self._files.values())
            if used + more > self.capacity_bytes:
                raise DiskFull(f"{path}: write: no space left on the disk")

    def open(self, path: str, *, create: bool = False, private: bool = False) -> SimulatedFile:
        """Open for reading and writing."""
        if create:
            if path in self._files:
                raise StorageFailure(f"{path}: open: it exists")
            if _parent(path) not in self._directories:
                raise _missing("open", path)
            self.call("create", path)
            self._name(_Naming(path, Content()))
        if path not in self._files:
            raise FileNotFoundError(path)
        return SimulatedFile(self, path, self._files[path])

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""
        return path in self._files or path in self._directories

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory."""
        return path in self._directories

    def names(self, directory: str) -> list[str]:
        """What is in a directory, sorted."""
        if directory not in self._directories:
            raise FileNotFoundError(directory)
        inside = [path for path in (*self._files, *self._directories) if _parent(path) == directory]
        return sorted(path.rsplit("/", 1)[1] for path in inside if path != "/")

    def modified_ms(self, path: str) -> int:
        """When a file was last changed."""
        if not self.exists(path):
            raise FileNotFoundError(path)
        return self._modified_ms.get(path, 0)

    def room(self, path: str) -> Room:
        """As much as the disk is told to have, or a terabyte."""
        total = 2**40 if self.capacity_bytes is None else self.capacity_bytes
        used = sum(len(node.data) for node in self._files.values())
        return Room(total, max(total - used, 0))

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Say when it was."""
        self.modified_ms(path)
        self._modified_ms[path] = modified_ms

    def make_directory(self, path: str) -> None:
        """Make a directory, and those above it; directories survive a crash."""
        while path not in self._directories:
            self._directories.add(path)
            path = _parent(path)

    def rename(self, old: str, new: str) -> None:
        """Rename a file or a directory at once."""
        modified_ms = self._modified_ms.get(old, 0)
        self.call("rename", old)
        self._modified_ms[new] = modified_ms  # renaming is no change
        if old in self._directories:
            self._rename_directory(old, new)
            return
        if old not in self._files:
            raise _missing("rename", old)
        self._name(_Naming(old, None), _Naming(new, self._files[old]))

    def _rename_directory(self, old: str, new: str) -> None:
        """As renaming a file, but reaching the device at once: a crash here is tried before it."""
        self._directories.discard(old)
        self._directories.add(new)
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
            raise StorageFailure(f"{path}: remove: it is not empty")
        self._directories.discard(path)

    def sync_directory(self, path: str) -> None:
        """The names in a directory stay as they are now."""
        self.call("sync", path)
        for directory, namings in self._pending_names:
            if directory == path:
                _set(self._synced_names, namings)
        self._pending_names = [one for one in self._pending_names if one[0] != path]

    def lock(self, path: str) -> SimulatedLock | None:
        """Hold a name."""
        if path in self._locks:
            return None
        self._locks.add(path)
        return SimulatedLock(self._locks, path)

    async def blocking(self, call: Callable[[], T]) -> T:
        """Do it at once: simulated devices do not wait."""
        return call()

    async def working(self, call: Callable[[], T]) -> T:
        """The same."""
        return await self.blocking(call)

    def rot(self, path: str, position: int, bits: int = 1) -> None:
        """Let bits of a byte turn over by themselves."""
        node = self._files[path]
        node.data[position] ^= bits
        synced = bytearray(node.synced)
        synced[position] ^= bits
        node.synced = bytes(synced)

    def _name(self, *namings: _Naming) -> None:
        _set(self._files, namings)
        self._pending_names.append((_parent(namings[0].path), list(namings)))

    def after_crash(self, loss: Loss, random: Random) -> "SimulatedDisk":
        """The disk as a machine finds it when it starts again."""
        names = dict(self._synced_names)
        for namings in self._surviving(loss, random):
            # A file whose earlier name did not survive was not renamed from there.
            if len(namings) == 1 or names.get(namings[0].path) is namings[1].node:
                _set(names, namings)
        found: dict[str, Content] = {}
        for path, node in names.items():
            survivor = found[path] = Content()
            survivor.data = bytearray(node.after(loss, random))
            survivor.sync()
        return self._next(found, dict(found), [])

    def _surviving(self, loss: Loss, random: Random) -> list[list[_Naming]]:
        """The changes of names that reached the device though nobody waited for it."""
        pending = [namings for _, namings in self._pending_names]
        if loss is Loss.ALL:
            return []
        if loss is Loss.TORN:
            return pending[: random.randrange(len(pending) + 1)]
        share = random.random()
        return [namings for namings in pending if random.random() < share]

    def after_kill(self) -> "SimulatedDisk":
        """The disk as the next process finds it when only the last one ended: nothing is lost.

        What was not synced still is not. The ended process can do no more to it.
        """
        self.crash_at = 0
        return self._next(dict(self._files), dict(self._synced_names), [*self._pending_names])

    def _next(
        self,
        files: dict[str, Content],
        synced_names: dict[str, Content],
        pending_names: list[tuple[str, list[_Naming]]],
    ) -> "SimulatedDisk":
        """The same disk with other content, for the next process."""
        found = copy(self)
        found.renew(files, synced_names, pending_names)
        return found

    def renew(
        self,
        files: dict[str, Content],
        synced_names: dict[str, Content],
        pending_names: list[tuple[str, list[_Naming]]],
    ) -> None:
        """Be as found by a new process: nothing is ordered, held or counted."""
        self.cold = False
        self.is_cold = lambda path: self.cold
        self.calls = []
        self.crash_at = None
        self.fails = lambda what, path: False
        self._files = files
        self._directories = set(self._directories)
        self._locks = set()
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
    return StorageFailure(f"{path}: {what}: it is not there")


def _parent(path: str) -> str:
    return path.rsplit("/", 1)[0] or "/"
