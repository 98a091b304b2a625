"""Files of closed segments: opened when they are read, and closed when others are read.

Invariant: closed segments take at most OpenFileCache.capacity file descriptors, however many there
are. A read holds a reference to the open file, which is closed after the last reference is gone, so
that a thread never reads from a descriptor that was closed and reused. A path may name another file
after a compaction or a truncation: a reopened file must have the inode of the first one.

A file is given to the cache after it was synced: a failed write to the device is reported to
descriptors that were open at that time (rule C5). The only exceptions are segments that an earlier
process wrote and left unsynced; nobody had them open before recovery, either.
"""

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from ottla.errors import ErrorCode, RequestError, StorageFailure
from ottla.log.disk import File, PinnedFile
from ottla.log.names import FileState
from ottla.protocol.primitives import Buffer

_LOG = logging.getLogger(__name__)

CAPACITY_MIN: Final = 32
CAPACITY_MAX: Final = 16_384
CAPACITY_SHARE: Final = 8
"""Closed segments may take an eighth of the file descriptors of the process."""


def cache_capacity(limit: int | None) -> int:
    """How many files of closed segments stay open, by the limit of open files (None: no limit)."""
    if limit is None:
        return CAPACITY_MAX
    return max(CAPACITY_MIN, min(limit // CAPACITY_SHARE, CAPACITY_MAX))


class OpenFileCache:
    """The open files of closed segments, least recently used first; any thread may use it."""

    __slots__ = ("_capacity", "_files", "_lock", "open_file")

    def __init__(self, open_file: Callable[[str], File], capacity: Callable[[], int]) -> None:
        self.open_file = open_file
        self._capacity = capacity
        self._files: OrderedDict[int, File] = OrderedDict()  # by the id of the LazyFile
        self._lock = threading.RLock()  # reentrant: a garbage collection may close a LazyFile

    def __len__(self) -> int:
        return len(self._files)

    def get(self, key: int) -> File | None:
        """The open file, which is now the most recently used one."""
        with self._lock:
            file = self._files.get(key)
            if file is not None:
                self._files.move_to_end(key)
            return file

    def put(self, key: int, file: File) -> None:
        """Add an open file; close the least recently used ones above the capacity."""
        capacity = self._capacity()
        with self._lock:
            dropped = [self._files.pop(key, None)]  # closed after the lock is released
            self._files[key] = file
            while len(self._files) > capacity:
                dropped.append(self._files.popitem(last=False)[1])

    def pop(self, key: int) -> File | None:
        """Take a file out of the cache, without closing it."""
        with self._lock:
            return self._files.pop(key, None)

    def clear(self) -> bool:
        """Close every file that is not being read; return whether there were any."""
        with self._lock:
            dropped, self._files = self._files, OrderedDict()
        return bool(dropped)


class LazyFile:
    """A file that is opened when it is read; it is not written any more."""

    __slots__ = ("_cache", "_inode", "_is_closed", "_is_reported", "_path", "_pinned_end")

    def __init__(self, file: File, cache: OpenFileCache) -> None:
        self._path = file.path
        self._cache = cache
        self._inode = _inode(file)
        self._pinned_end = file.pinned_end
        self._is_closed = False
        self._is_reported = False
        cache.put(id(self), file)

    @property
    def path(self) -> str:
        """The path of the file."""
        return self._path

    def fileno(self) -> int:
        """Return -1: the descriptor may be closed at any time."""
        return -1

    def size(self) -> int:
        """The size in bytes."""
        return self._opened().size()

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        """Fail: `held` returns a file that can be written."""
        raise AssertionError(f"{self._path}: a closed segment is not written")

    def read(self, position: int, size: int) -> bytes:
        """Read bytes, fewer at the end of the file."""
        return self._opened().read(position, size)

    def read_cached(self, position: int, size: int) -> Buffer | None:
        """Read from the page cache only; None if the file is not open, because opening may wait."""
        file = self._cache.get(id(self))
        return None if file is None else file.read_cached(position, size)

    def truncate(self, size: int) -> None:
        """Truncate the file."""
        self._opened().truncate(size)

    def renamed(self, path: str) -> None:
        """Record the new path."""
        self._path = path
        file = self._cache.get(id(self))
        if file is not None:
            file.renamed(path)

    def is_in_place(self) -> bool:
        """Whether the path still names this file."""
        return self._is_closed or self._reopened(self._path) is not None

    def sync(self) -> None:
        """Return when everything written is on the device."""
        self._opened().sync()

    def pin(self, end: int) -> PinnedFile | None:
        """Keep the file open for sendfile; None if it is not open, because opening may wait."""
        file = self._cache.get(id(self))
        if file is None:
            return None
        self._pinned_end = max(self._pinned_end, end)
        return file.pin(end)

    @property
    def pinned_end(self) -> int:
        """The end of the bytes that must not change."""
        return self._pinned_end

    def released(self) -> File:
        """Return this file."""
        return self

    def held(self) -> File:
        """Take the file out of the cache and return it open; waits for the device."""
        file = self._opened()
        self._cache.pop(id(self))
        file.pin(self._pinned_end)
        return file

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        self._is_closed = True
        self._cache.pop(id(self))  # a read in progress keeps its reference

    __del__ = close

    def _opened(self) -> File:
        """The open file; RequestError if it was deleted before it was opened again."""
        file = self._cache.get(id(self))
        if file is not None:
            return file
        if self._is_closed:
            raise StorageFailure(f"{self._path}: the file is closed")
        # A deleted segment keeps its records under another name while readers may need them.
        for path in (self._path, self._path + FileState.DELETED):
            file = self._reopened(path)
            if file is not None:
                self._cache.put(id(self), file)
                return file
        if not self._is_reported:
            self._is_reported = True
            _LOG.warning("segment file not found", {"file": self._path})
        raise RequestError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"{self._path}: the file was deleted, moved or replaced"
        )

    def _reopened(self, path: str) -> File | None:
        """Open a path; None if it does not name this file."""
        try:
            file = self._cache.open_file(path)
        except FileNotFoundError:
            return None
        return file if _inode(file) == self._inode else None


def _inode(file: File) -> tuple[int, int]:
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino
