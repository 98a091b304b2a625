"""Descriptors that are held in reserve, so that a folder is synced though no other is free.

Invariant: what was renamed has to be synced, or nobody knows what is on the device; so that does
not wait for others to close their files. A spare is closed for the moment in which the folder is
opened, one thread after the other, and the folder's own descriptor takes its place: nobody else
could get that. Who is faster than the folder has got a spare; then the next one is closed.
"""

import errno
import os
import threading
from contextlib import suppress
from typing import Final

# More than there are threads that sync, each of which may be faster once. An event loop that finds
# no descriptor for a connection does not look for one again within a second.
SPARES: Final = 16

TOO_MANY_OPEN: Final = (errno.EMFILE, errno.ENFILE)  # in this process, on this machine

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class FdReserve:
    """The reserve of one disk; any thread may sync by it."""

    __slots__ = ("_count", "_held", "_turn")

    def __init__(self, count: int = SPARES) -> None:
        self._count = count
        self._held: list[int] = []
        self._turn = threading.Lock()
        self._settle()

    def sync_directory(self, path: str) -> None:
        """Return when the names in a folder are on the device; OSError when that failed."""
        try:
            descriptor = os.open(path, _FOLDER)
        except OSError as error:
            if error.errno not in TOO_MANY_OPEN:
                raise
            self._sync_by_spare(path)
            return
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        # Others were faster, here or elsewhere. Whoever has the turn settles that too.
        if len(self._held) < self._count and self._turn.acquire(blocking=False):
            try:
                self._settle()
            finally:
                self._turn.release()

    def close(self) -> None:
        """Hold none any more."""
        with self._turn:
            self._count = 0
            self._settle()

    __del__ = close

    def _sync_by_spare(self, path: str) -> None:
        with self._turn:
            try:
                self._held.append(self._opened(path))
                os.fsync(self._held[-1])
            finally:
                self._settle()

    def _opened(self, path: str) -> int:
        while True:
            try:
                return os.open(path, _FOLDER)
            except OSError as error:
                if error.errno not in TOO_MANY_OPEN or not self._held:
                    raise
            self._drop()

    def _drop(self) -> None:
        with suppress(OSError):
            os.close(self._held.pop())

    def _settle(self) -> None:
        """Hold as many as there should be, or as there are to be had."""
        while len(self._held) > self._count:
            self._drop()
        with suppress(OSError):
            while len(self._held) < self._count:
                self._held.append(os.open("/", _FOLDER))
