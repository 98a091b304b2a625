"""The files that a collector reads, as an interface and on this machine.

Invariant: only regular files are found. A file stays readable while it is open, also after it was
renamed or deleted. A missing file is not a failure: it may have been deleted in the meantime.
"""

import glob
import os
import stat
from collections.abc import Iterable
from pathlib import PurePath
from typing import Protocol

from ottla.cli.collect.tail import FileId, Look


class OpenFile(Protocol):
    """An open file."""

    @property
    def id(self) -> FileId:
        """What the file system calls it."""
        ...

    def look(self) -> Look:
        """Return its size and state now."""
        ...

    def read(self, start: int, size: int) -> bytes:
        """Return bytes from a position on; fewer at the end of the file."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


class Disk(Protocol):
    """A file system."""

    def matches(self, patterns: Iterable[str]) -> dict[str, FileId]:
        """Return the files that match the patterns."""
        ...

    def neighbours(self, path: str) -> dict[str, FileId]:
        """Return the files in the directory of a file, also if that file does not exist."""
        ...

    def open(self, path: str) -> OpenFile:
        """Open a file; raises OSError."""
        ...


class LocalFile:
    """An open file of this machine."""

    def __init__(self, path: str) -> None:
        # A FIFO that replaced the file would block.
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        found = os.fstat(self._descriptor)
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise FileNotFoundError(2, "not a regular file", path)
        self.id = FileId(found.st_dev, found.st_ino)

    def look(self) -> Look:
        """Return its size and state now."""
        found = os.fstat(self._descriptor)
        return Look(found.st_size, found.st_mtime_ns, found.st_nlink)

    def read(self, start: int, size: int) -> bytes:
        """Return bytes from a position on; fewer at the end of the file."""
        return os.pread(self._descriptor, size, start)

    def close(self) -> None:
        """Close it."""
        os.close(self._descriptor)


class LocalDisk:
    """The file system of this machine."""

    def matches(self, patterns: Iterable[str]) -> dict[str, FileId]:
        """Return the files that match the patterns, by absolute path; `**` matches directories."""
        paths: set[str] = set()
        for each in patterns:
            # A file with brackets in its name is not a pattern.
            found = [each] if os.path.isfile(each) else glob.iglob(each, recursive=True)
            paths |= {os.path.abspath(one) for one in found}
        return _identified(sorted(paths))

    def neighbours(self, path: str) -> dict[str, FileId]:
        """Return the files in the directory of a file, also if that file does not exist."""
        directory = PurePath(path).parent
        try:
            names = os.listdir(directory)
        except OSError:
            return {}
        return _identified(str(directory / name) for name in sorted(names))

    def open(self, path: str) -> LocalFile:
        """Open a file; raises OSError."""
        return LocalFile(path)


def _identified(paths: Iterable[str]) -> dict[str, FileId]:
    found: dict[str, FileId] = {}
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode):
            found[path] = FileId(status.st_dev, status.st_ino)
    return found
