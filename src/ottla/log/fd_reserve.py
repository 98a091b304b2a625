"""Reserved file descriptors, so that a directory can be synced when no descriptor is free.

Invariant: after a rename the directory must be synced, or the content of the device is unknown; so
a sync must not wait for a free descriptor. A reserved descriptor is closed right before the
directory is opened, by one thread at a time, and the directory's descriptor takes its place in the
reserve. If another thread takes the free descriptor first, the next reserved one is closed.
"""

import errno
import os
import resource
import threading
from contextlib import suppress
from typing import Final

from ottla.errors import RAISE_OPEN_FILES

# More than there are threads that sync: each may take one descriptor. An event loop without a
# descriptor for a connection tries again after a second.
RESERVED: Final = 16

TOO_MANY_OPEN: Final = (errno.EMFILE, errno.ENFILE)  # in this process, on this machine

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def too_many_open_remedy(error: OSError) -> str:
    """Return the limit that was reached and how to raise it."""
    if error.errno == errno.ENFILE:
        return "the machine has no free file descriptors: raise fs.file-max"
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"the process may open {limit} file descriptors; {RAISE_OPEN_FILES}"


class FdReserve:
    """The reserve of one disk; any thread may use it."""

    __slots__ = ("_count", "_lock", "_reserved")

    def __init__(self, count: int = RESERVED) -> None:
        self._count = count
        self._reserved: list[int] = []
        self._lock = threading.Lock()
        self._refill()

    def sync_directory(self, path: str) -> None:
        """Return when the names in a directory are on the device; OSError if that failed."""
        try:
            descriptor = os.open(path, _DIRECTORY)
        except OSError as error:
            if error.errno not in TOO_MANY_OPEN:
                raise
            self._sync_with_reserve(path)
            return
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        # Refill after another thread or process took descriptors, unless a thread already does.
        if len(self._reserved) < self._count and self._lock.acquire(blocking=False):
            try:
                self._refill()
            finally:
                self._lock.release()

    def close(self) -> None:
        """Close the reserve."""
        with self._lock:
            self._count = 0
            self._refill()

    __del__ = close

    def _sync_with_reserve(self, path: str) -> None:
        with self._lock:
            try:
                self._reserved.append(self._opened(path))
                os.fsync(self._reserved[-1])
            finally:
                self._refill()

    def _opened(self, path: str) -> int:
        while True:
            try:
                return os.open(path, _DIRECTORY)
            except OSError as error:
                if error.errno not in TOO_MANY_OPEN or not self._reserved:
                    raise
            self._drop()

    def _drop(self) -> None:
        with suppress(OSError):
            os.close(self._reserved.pop())

    def _refill(self) -> None:
        """Fill the reserve, as far as descriptors are available."""
        while len(self._reserved) > self._count:
            self._drop()
        with suppress(OSError):
            while len(self._reserved) < self._count:
                self._reserved.append(os.open("/", _DIRECTORY))
