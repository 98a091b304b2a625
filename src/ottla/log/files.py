"""The real file system: every call of the log to the operating system.

Invariant: no other module of the log opens, writes, syncs, renames or deletes files, except
`fd_reserve.py`, which syncs directories for this one, and `lazy_files.py`, which opens files
through it. A write is complete or did not happen: a
failed or short write is truncated again, and if that fails the file is broken. Every failure is a
StorageFailure, and StorageExhausted if disk space or file descriptors ran out and nothing was
changed. A failed sync is never repeated, because the system may have dropped the pages that it
could not write.

The log calls these classes through the `Disk` and `File` protocols of `disk.py`.
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

from ottla.errors import DescriptorsExhausted, DiskFull, StorageFailure
from ottla.log.disk import File, Reader, Room
from ottla.log.fd_reserve import RESERVED, TOO_MANY_OPEN, FdReserve, too_many_open_remedy
from ottla.log.lazy_files import LazyFile, OpenFileCache, cache_capacity
from ottla.log.page_cache import is_cached
from ottla.protocol.buffer_pool import PIECE_BYTES_MIN, BufferPool
from ottla.protocol.primitives import Buffer

T = TypeVar("T")

IOV_MAX: Final = 1024  # buffers per system call

READ_THREADS: Final = 8  # a device serves about as many requests at a time

WORK_THREADS: Final = max(1, (os.cpu_count() or 1) - 1)  # one core is for the event loop

_PRIVATE: Final = 0o600
_FILE_MODE: Final = 0o640  # other users of the machine read no records
_DIRECTORY_MODE: Final = 0o750

# The niceness of a working thread above the event loop. Measured beside compression bombs: with 1
# and 3 the loop still waits, 5 is as good as 10. A higher value is worse when other processes need
# the cores, because a working thread may hold what the loop needs next.
WORK_NICENESS: Final = 5

READ_BUFFER_BYTES_MAX: Final = 8 * 1024 * 1024
"""Memory kept for cached reads: eight of a consumer's responses with default settings."""


class OsDescriptor:
    """A file descriptor, which is closed when nothing refers to it."""

    __slots__ = ("_number", "_open", "_path")

    def __init__(self, path: str, number: int, open_descriptors: set[int]) -> None:
        self._path = path
        self._number = number
        self._open = open_descriptors
        self._open.add(number)

    def fileno(self) -> int:
        """The file descriptor."""
        return self._number

    def is_cached(self, position: int, size: int) -> bool:
        """Whether all bytes of a range are in the page cache."""
        return is_cached(self._number, position, size)

    def read(self, position: int, size: int) -> bytes:
        """Read bytes, fewer at the end of the file."""
        try:
            return _read(self._number, position, size)
        except OSError as error:
            raise _failure("read", self._path, error, full=False) from error

    def __del__(self) -> None:
        self._open.discard(self._number)  # first: another thread may get the same number
        with suppress(OSError):
            os.close(self._number)


class OsFile:
    """An open file; it is closed when nothing refers to it, so that readers can finish."""

    __slots__ = (
        "_broken",
        "_buffer_pool",
        "_cache",
        "_descriptor",
        "_nowait",
        "_open",
        "_path",
        "_pinned_end",
    )

    def __init__(
        self,
        path: str,
        descriptor: int,
        open_descriptors: set[int],
        buffer_pool: BufferPool | None = None,
        cache: OpenFileCache | None = None,
    ) -> None:
        self._path = path
        self._descriptor = descriptor
        self._open: OsDescriptor | None = OsDescriptor(path, descriptor, open_descriptors)
        self._pinned_end = 0
        self._buffer_pool = buffer_pool  # for cached reads
        self._cache = cache  # for released files
        self._nowait = hasattr(os, "RWF_NOWAIT")
        self._broken = False

    @property
    def path(self) -> str:
        """The path of the file."""
        return self._path

    def fileno(self) -> int:
        """The file descriptor."""
        return self._descriptor

    def size(self) -> int:
        """The size in bytes."""
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise self._failure("size", error) from error

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write all buffers at a position, or truncate the file to it and raise (rule C6)."""
        if self._broken:
            raise StorageFailure(f"{self._path}: broken by an earlier failure")
        total = sum(map(len, buffers))
        at_once = buffers if len(buffers) <= IOV_MAX else buffers[:IOV_MAX]
        try:
            written = os.pwritev(self._descriptor, at_once, position)
            if written != total:
                self._write_rest(buffers, position, written)
        except OSError as error:
            self._undo_write(position)
            raise self._failure("write", error) from error
        return position + total

    def _write_rest(self, buffers: Sequence[Buffer], position: int, written: int) -> None:
        """Continue after a short write, or with more buffers than one call takes."""
        rest = memoryview(b"".join(buffers))[written:]
        while len(rest):
            count = os.pwrite(self._descriptor, rest, position + written)
            if count == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written += count
            rest = rest[count:]

    def _undo_write(self, position: int) -> None:
        try:
            os.ftruncate(self._descriptor, position)
        except OSError:
            self._broken = True

    def read(self, position: int, size: int) -> bytes:
        """Read bytes, fewer at the end of the file."""
        try:
            return _read(self._descriptor, position, size)
        except OSError as error:
            raise self._failure("read", error) from error

    def read_cached(self, position: int, size: int) -> Buffer | None:
        """Read from the page cache only; None if some bytes are not cached."""
        if not self._nowait:
            # A file system without such reads (tmpfs) keeps its files in memory.
            return self.read(position, size)
        buffer = self._buffer(size)
        try:
            with memoryview(buffer)[:size] as room:
                count = os.preadv(self._descriptor, [room], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise self._failure("read", error) from error
            self._nowait = False
            return self.read(position, size)
        if count < size and position + count < self.size():
            return None
        return memoryview(buffer)[:count].toreadonly()

    def _buffer(self, size: int) -> bytearray:
        """Memory that is not cleared and not mapped again, if there is some."""
        pool = self._buffer_pool
        if pool is None or size < PIECE_BYTES_MIN:
            return bytearray(size)
        buffer = pool.take(size)
        if buffer is None:
            buffer = bytearray(-(-size // PIECE_BYTES_MIN) * PIECE_BYTES_MIN)
        pool.keep(buffer)  # handed out again when nothing refers to its bytes
        return buffer

    def truncate(self, size: int) -> None:
        """Truncate the file."""
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise self._failure("truncate", error) from error

    def renamed(self, path: str) -> None:
        """Record the new path."""
        self._path = path

    def is_in_place(self) -> bool:
        """Whether the path still names this file, or it is closed and nothing is written to it."""
        return self._descriptor < 0 or _is_in_place(self._path, self._descriptor)

    def sync(self) -> None:
        """Return when everything written is on the device; a failure breaks the file (rule C5).

        A removed file accepts data while it is open, but the next start does not find it (C10).
        """
        if self._broken:
            raise StorageFailure(f"{self._path}: broken by an earlier failure")
        try:
            os.fsync(self._descriptor)
            links = os.fstat(self._descriptor).st_nlink
        except OSError as error:
            self._broken = True
            raise self._failure("sync", error) from error
        if not links:
            self._broken = True
            raise StorageFailure(f"{self._path}: sync: the file was removed")

    def pin(self, end: int) -> OsDescriptor | None:
        """Keep the descriptor open, and note that the bytes below `end` must not change."""
        if end > self._pinned_end:
            self._pinned_end = end
        return self._open

    def released(self) -> File:
        """Give the file to the cache of open files."""
        if self._cache is None or self._broken or self._descriptor < 0:
            return self
        return LazyFile(self, self._cache)

    def held(self) -> File:
        """Return this file."""
        return self

    @property
    def pinned_end(self) -> int:
        """The end of the bytes that must not change."""
        return self._pinned_end

    def close(self) -> None:
        """Close the file, as soon as nothing pins it; closing twice is allowed."""
        self._descriptor, self._open = -1, None

    def _failure(self, what: str, error: OSError) -> StorageFailure:
        return _failure(what, self._path, error, full=not self._broken)


def _read(descriptor: int, position: int, size: int) -> bytes:
    """Read bytes, fewer at the end of the file."""
    data = os.pread(descriptor, size, position)
    while len(data) < size:
        more = os.pread(descriptor, size - len(data), position + len(data))
        if not more:
            break
        data += more
    return data


class OsLock:
    """A lock that ends with the process."""

    __slots__ = ("_descriptor", "_path")

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def is_in_place(self) -> bool:
        """Whether the path still names the locked file."""
        return _is_in_place(self._path, self._descriptor)

    def release(self) -> None:
        """Release the lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _is_in_place(path: str, descriptor: int) -> bool:
    """Whether a path names an open file, whose inode number cannot be reused meanwhile."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise _failure("stat", path, error, full=False) from error


def _hold(descriptor: int) -> None:
    """Lock a file, also against Java's locks and against brokers of this process."""
    if sys.platform == "linux":
        # The lock belongs to this open file description. A usual lock belongs to the process and is
        # released when the process closes any descriptor of the file.
        whole = struct.pack("hhlli", fcntl.F_WRLCK, 0, 0, 0, 0)
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, whole)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class OsDisk:
    """The file system of the machine."""

    def __init__(
        self,
        *,
        read_only: bool = False,
        open_files_max: Callable[[], int | None] = lambda: None,  # None: unlimited
    ) -> None:
        self._access = os.O_RDONLY if read_only else os.O_RDWR
        self._open_files_max = open_files_max
        self._open: set[int] = set()  # threads add and remove; both are atomic
        self._buffer_pool = BufferPool(READ_BUFFER_BYTES_MAX)
        self._reserve = FdReserve(0 if read_only else RESERVED)
        self._cache = OpenFileCache(self.open, lambda: cache_capacity(open_files_max()))
        self._threads = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="ottla-disk")
        # Threads start when they are needed. Consumers may read as much as they like from slow
        # devices: neither flushes nor followers wait for them.
        self._readers = {
            Reader.BROKER: self._threads,
            Reader.CLIENT: ThreadPoolExecutor(READ_THREADS, thread_name_prefix="ottla-read"),
            Reader.FOLLOWER: ThreadPoolExecutor(READ_THREADS, thread_name_prefix="ottla-follow"),
        }
        self._workers = ThreadPoolExecutor(
            WORK_THREADS, thread_name_prefix="ottla-work", initializer=_lower_priority
        )

    def open(self, path: str, *, create: bool = False, private: bool = False) -> OsFile:
        """Open for reading and, unless the disk is read-only, writing."""
        # O_NONBLOCK: do not wait for the writer of a named pipe; it has no effect on a file.
        flags = self._access | os.O_CLOEXEC | os.O_NONBLOCK
        flags |= os.O_CREAT | os.O_EXCL if create else 0
        rights = _PRIVATE if private else _FILE_MODE
        try:
            descriptor = os.open(path, flags, rights)
        except OSError as error:
            if error.errno in TOO_MANY_OPEN:
                self._cache.clear()
            ask = _change if create else _look  # which raise the right failure
            descriptor = ask("open", path, lambda: os.open(path, flags, rights))
        file = OsFile(path, descriptor, self._open, self._buffer_pool, self._cache)
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise StorageFailure(f"{path}: open: not a regular file")
        if private and stat.S_IMODE(mode) & ~_PRIVATE:
            _change("chmod", path, lambda: os.fchmod(file.fileno(), _PRIVATE))
        return file

    @property
    def open_files(self) -> int:
        """The number of open files."""
        return len(self._open)

    @property
    def is_short_of_descriptors(self) -> bool:
        """Whether the log has half of the file descriptors of the process open."""
        limit = self._open_files_max()
        return limit is not None and len(self._open) >= limit // 2

    def exists(self, path: str) -> bool:
        """Whether a file or directory exists."""
        return os.path.lexists(path)

    def is_directory(self, path: str) -> bool:
        """Whether a directory exists."""
        return os.path.isdir(path)

    def names(self, directory: str) -> list[str]:
        """The names in a directory, sorted."""
        return _look("list", directory, lambda: sorted(os.listdir(directory)))

    def modified_ms(self, path: str) -> int:
        """The modification time of a file."""
        return _look("stat", path, lambda: os.stat(path).st_mtime_ns // 1_000_000)

    def room(self, path: str) -> Room:
        """The space of the file system that holds a directory."""
        found = _change("statvfs", path, lambda: os.statvfs(path))
        return Room(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the modification time of a file."""
        time_ns = modified_ms * 1_000_000
        _change("utime", path, lambda: os.utime(path, ns=(time_ns, time_ns)))

    def make_directory(self, path: str) -> None:
        """Create a directory and its missing parents."""
        _change("mkdir", path, lambda: os.makedirs(path, _DIRECTORY_MODE, exist_ok=True))

    def rename(self, old: str, new: str) -> None:
        """Rename atomically; an existing file of the new name is replaced."""
        _change("rename", old, lambda: os.replace(old, new))

    def remove(self, path: str) -> None:
        """Delete a file."""
        _change("remove", path, lambda: os.unlink(path))

    def remove_directory(self, path: str) -> None:
        """Delete an empty directory."""
        _change("remove", path, lambda: os.rmdir(path))

    def sync_directory(self, path: str) -> None:
        """Return when the names in a directory are on the device, even without free descriptors."""
        _change("sync", path, lambda: self._reserve.sync_directory(path))

    def lock(self, path: str) -> OsLock | None:
        """Lock a file against other processes (rule C9)."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = _change("open", path, lambda: os.open(path, flags, _FILE_MODE))
        try:
            _hold(descriptor)
        except OSError:
            os.close(descriptor)
            return None
        return OsLock(path, descriptor)

    async def blocking(self, call: Callable[[], T]) -> T:
        """Run a call in a thread; a call that has started completes before a cancellation."""
        return await _done_in(self._threads, call)

    async def reading(self, call: Callable[[], T], reader: Reader) -> T:
        """Run a read in the threads for its reader."""
        return await _done_in(self._readers[reader], call)

    async def working(self, call: Callable[[], T]) -> T:
        """Run a call in low-priority threads of their own, fewer than there are cores."""
        return await _done_in(self._workers, call)

    def close(self) -> None:
        """Wait for the threads and end them; close the files of closed segments."""
        for threads in self._readers.values():
            threads.shutdown()
        self._workers.shutdown()
        self._reserve.close()
        self._cache.clear()


async def _done_in(threads: ThreadPoolExecutor, call: Callable[[], T]) -> T:
    future = asyncio.get_running_loop().run_in_executor(threads, call)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        future.exception()  # retrieve it, so that asyncio does not log it
        raise cancelled
    try:
        return future.result()
    finally:
        del future  # break the reference cycle of the future and its exception


def _lower_priority() -> None:
    """Lower the priority of the current thread, where threads have their own priority."""
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
    """Do the same for calls where a missing file is a result, not a failure."""
    try:
        return call()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _failure(what, path, error, full=False) from error


def _failure(what: str, path: str, error: OSError, *, full: bool) -> StorageFailure:
    """The error to raise; `full` if nothing was changed, so that the call can be repeated."""
    why = f"{path}: {what}: {error.strerror or error}"
    if error.errno in TOO_MANY_OPEN:
        return DescriptorsExhausted(f"{why}: {too_many_open_remedy(error)}")
    is_full = full and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return DiskFull(why) if is_full else StorageFailure(why)
