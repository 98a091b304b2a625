"""Every call to the operating system that the log makes, behind an interface.

Invariant: nothing else in this folder opens, writes, syncs, renames or deletes, but for `spares.py`
that syncs folders for this one. A write is whole or it did not happen: what a failed or short write
left behind is cut off again, and if even that fails the file is broken for good. Every failure is a
StorageFailure, DiskFull where there was no room and nothing was changed; a failed sync is never
tried again, because the system may have dropped the pages it could not write.

The log calls these through the `Disk` and `File` of `disk.py`.
"""

import asyncio
import errno
import fcntl
import os
import stat
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

from ottla.errors import DiskFull, StorageFailure
from ottla.log.disk import Room
from ottla.log.fd_reserve import SPARES, TOO_MANY_OPEN, FdReserve
from ottla.protocol.primitives import Buffer

T = TypeVar("T")

IOV_MAX: Final = 1024  # buffers that the system takes in one call

READ_THREADS: Final = 8  # more than a device answers at once would only wait there

WORK_THREADS: Final = max(1, (os.cpu_count() or 1) - 1)  # one core is for the event loop

_PRIVATE: Final = 0o600

# By how much a thread that works is less urgent than the event loop. Measured beside compression
# bombs: with 1 and 3 the loop still waits for its turn, 5 is as good as 10. More would be worse
# where other processes want the cores: what works may hold what the loop needs next.
WORK_NICENESS: Final = 5


class OsFile:
    """A file of the system; closed when nothing refers to it, so that who reads it reads on."""

    __slots__ = ("_broken", "_descriptor", "_nowait", "_path")

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._nowait = hasattr(os, "RWF_NOWAIT")
        self._broken = False

    @property
    def path(self) -> str:
        """Where it was opened."""
        return self._path

    def fileno(self) -> int:
        """The descriptor."""
        return self._descriptor

    def size(self) -> int:
        """Bytes in the file."""
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise self._failure("size", error) from error

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write all buffers at a position, or cut back to it and fail (C6)."""
        if self._broken:
            raise StorageFailure(f"{self._path}: broken by an earlier failure")
        total = sum(map(len, buffers))
        at_once = buffers if len(buffers) <= IOV_MAX else buffers[:IOV_MAX]
        try:
            written = os.pwritev(self._descriptor, at_once, position)
            if written != total:
                self._write_rest(buffers, position, written)
        except OSError as error:
            self._cut_back(position)
            raise self._failure("write", error) from error
        return position + total

    def _write_rest(self, buffers: Sequence[Buffer], position: int, written: int) -> None:
        """Go on after a write that was short, or had more buffers than one call takes."""
        rest = memoryview(b"".join(buffers))[written:]
        while len(rest):
            count = os.pwrite(self._descriptor, rest, position + written)
            if count == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written += count
            rest = rest[count:]

    def _cut_back(self, position: int) -> None:
        try:
            os.ftruncate(self._descriptor, position)
        except OSError:
            self._broken = True

    def read(self, position: int, size: int) -> bytes:
        """So many bytes, fewer at the end of the file."""
        try:
            data = os.pread(self._descriptor, size, position)
            while len(data) < size:
                more = os.pread(self._descriptor, size - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise self._failure("read", error) from error
        return data

    def read_cached(self, position: int, size: int) -> bytes | bytearray | None:
        """The same from the page cache alone; None when not all of it is there."""
        if not self._nowait:
            # A file system without such reads (tmpfs) keeps its files in memory.
            return self.read(position, size)
        buffer = bytearray(size)
        try:
            count = os.preadv(self._descriptor, [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise self._failure("read", error) from error
            self._nowait = False
            return self.read(position, size)
        if count < size and position + count < self.size():
            return None
        return buffer if count == size else buffer[:count]  # uncopied, as a rule

    def truncate(self, size: int) -> None:
        """Cut the file."""
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise self._failure("truncate", error) from error

    def renamed(self, path: str) -> None:
        """Go by another name from now on."""
        self._path = path

    def sync(self) -> None:
        """Return when everything written is on the device; a failure breaks the file (C5)."""
        if self._broken:
            raise StorageFailure(f"{self._path}: broken by an earlier failure")
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            self._broken = True
            raise self._failure("sync", error) from error

    def close(self) -> None:
        """Let go of the file; closing twice is no error."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with suppress(OSError):
                os.close(descriptor)

    __del__ = close

    def _failure(self, what: str, error: OSError) -> StorageFailure:
        return _failure(what, self._path, error, full=not self._broken)


class OsLock:
    """A lock that ends with the process."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Let go."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _hold(descriptor: int) -> None:
    """Lock a file, against Java's locks and against brokers of this process too."""
    if sys.platform == "linux":
        # It belongs to this opening of the file. The usual one belongs to the process, and is gone
        # when the process closes the file, be it opened a second time.
        whole = struct.pack("hhlli", fcntl.F_WRLCK, 0, 0, 0, 0)
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, whole)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class OsDisk:
    """The file system of the machine."""

    def __init__(self, *, read_only: bool = False) -> None:
        self._access = os.O_RDONLY if read_only else os.O_RDWR
        self._spares = FdReserve(0 if read_only else SPARES)
        self._threads = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="ottla-disk")
        self._workers = ThreadPoolExecutor(
            WORK_THREADS, thread_name_prefix="ottla-work", initializer=_give_way
        )

    def open(self, path: str, *, create: bool = False, private: bool = False) -> OsFile:
        """Open for reading and, unless the disk is read-only, writing."""
        # Not to wait for who writes into a pipe of that name; of a file it changes nothing.
        flags = self._access | os.O_CLOEXEC | os.O_NONBLOCK
        flags |= os.O_CREAT | os.O_EXCL if create else 0
        ask = _change if create else _look
        rights = _PRIVATE if private else 0o644
        file = OsFile(path, ask("open", path, lambda: os.open(path, flags, rights)))
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise StorageFailure(f"{path}: open: not a regular file")
        if private and stat.S_IMODE(mode) & ~_PRIVATE:
            _change("close to others", path, lambda: os.fchmod(file.fileno(), _PRIVATE))
        return file

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        return os.path.lexists(path)

    def is_directory(self, path: str) -> bool:
        """Whether there is a folder."""
        return os.path.isdir(path)

    def names(self, directory: str) -> list[str]:
        """What is in a folder, sorted."""
        return _look("list", directory, lambda: sorted(os.listdir(directory)))

    def modified_ms(self, path: str) -> int:
        """When a file was last changed."""
        return _look("look at", path, lambda: os.stat(path).st_mtime_ns // 1_000_000)

    def room(self, path: str) -> Room:
        """How much fits where a folder is."""
        found = _change("look at", path, lambda: os.statvfs(path))
        return Room(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Say when it was."""
        time_ns = modified_ms * 1_000_000
        _change("date", path, lambda: os.utime(path, ns=(time_ns, time_ns)))

    def make_directory(self, path: str) -> None:
        """Make a folder, and those above it that are missing."""
        _change("make", path, lambda: os.makedirs(path, exist_ok=True))

    def rename(self, old: str, new: str) -> None:
        """Rename at once, replacing what has the new name."""
        _change("rename", old, lambda: os.replace(old, new))

    def remove(self, path: str) -> None:
        """Delete a file."""
        _change("remove", path, lambda: os.unlink(path))

    def remove_directory(self, path: str) -> None:
        """Delete an empty folder."""
        _change("remove", path, lambda: os.rmdir(path))

    def sync_directory(self, path: str) -> None:
        """Return when the names in a folder are on the device, be it that too many are open."""
        _change("sync", path, lambda: self._spares.sync_directory(path))

    def lock(self, path: str) -> OsLock | None:
        """Hold a file so that no other process does (C9)."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = _change("open", path, lambda: os.open(path, flags, 0o644))
        try:
            _hold(descriptor)
        except OSError:
            os.close(descriptor)
            return None
        return OsLock(descriptor)

    async def blocking(self, call: Callable[[], T]) -> T:
        """Do it in a thread. What has begun is done to its end before a cancellation goes on."""
        return await _done_in(self._threads, call)

    async def working(self, call: Callable[[], T]) -> T:
        """The same in threads of their own, fewer than there are cores and less urgent."""
        return await _done_in(self._workers, call)

    def close(self) -> None:
        """Wait for the threads and end them."""
        self._threads.shutdown()
        self._workers.shutdown()
        self._spares.close()


async def _done_in(threads: ThreadPoolExecutor, call: Callable[[], T]) -> T:
    future = asyncio.get_running_loop().run_in_executor(threads, call)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        future.exception()  # nobody is there to hear of it
        raise cancelled
    try:
        return future.result()
    finally:
        del future  # it and what it raises would keep each other, and all that was in use


def _give_way() -> None:
    """Make the thread that calls it less urgent than the others, where a thread has its own."""
    if sys.platform == "linux":
        os.setpriority(
            os.PRIO_PROCESS,
            threading.get_native_id(),
            os.getpriority(os.PRIO_PROCESS, 0) + WORK_NICENESS,
        )


def _change(what: str, path: str, call: Callable[[], T]) -> T:
    try:
        return call()
    except OSError as error:
        raise _failure(what, path, error, full=what != "sync") from error


def _look(what: str, path: str, call: Callable[[], T]) -> T:
    """The same where a missing file is an answer, not a failure."""
    try:
        return call()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _failure(what, path, error, full=False) from error


def _failure(what: str, path: str, error: OSError, *, full: bool) -> StorageFailure:
    """What to raise; `full` when nothing was changed, so that it can be done again."""
    # Who has too many files open has no room for another, and the disk is as well as before.
    is_full = error.errno in TOO_MANY_OPEN or (full and error.errno in (errno.ENOSPC, errno.EDQUOT))
    kind = DiskFull if is_full else StorageFailure
    return kind(f"{path}: {what}: {error.strerror or error}")
