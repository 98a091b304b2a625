"""Keeps what a repair cuts off, so that an operator can recover what is valid in it.

Invariant: a copy is on the device before its caller cuts anything. A repair that was interrupted
finds the copy and does not make another one. Nothing that was set aside is overwritten or removed.
The functions wait for the device.
"""

from collections.abc import Iterator
from itertools import count
from typing import Final

from ottla.log.disk import Disk, File
from ottla.log.names import TEMPORARY_SUFFIX

CHUNK_BYTES: Final = 1024 * 1024


def copy_aside(disk: Disk, file: File, start: int, path: str, *, private: bool = False) -> str:
    """Copy a file from a position on to a new file; return the path of the copy."""
    for name in _names(path):
        if not disk.exists(name):
            _copy(disk, file, start, name, private=private)
            return name
        if _is_copy(disk, file, start, name):
            return name
    raise AssertionError("unreachable: there is no last name")


def move_aside(disk: Disk, old: str, path: str) -> str:
    """Rename a file; return its new path. The caller syncs the directory."""
    new = next(name for name in _names(path) if not disk.exists(name))
    disk.rename(old, new)
    return new


def _names(path: str) -> Iterator[str]:
    yield path
    for number in count(2):
        yield f"{path}-{number}"


def _copy(disk: Disk, file: File, start: int, path: str, *, private: bool) -> None:
    temporary = path + TEMPORARY_SUFFIX
    if disk.exists(temporary):
        disk.remove(temporary)
    copy = disk.open(temporary, create=True, private=private)
    try:
        end = 0
        while piece := file.read(start + end, CHUNK_BYTES):
            end = copy.write([piece], end)
        copy.sync()
    finally:
        copy.close()
    disk.rename(temporary, path)
    disk.sync_directory(path.rpartition("/")[0])


def _is_copy(disk: Disk, file: File, start: int, path: str) -> bool:
    copy = disk.open(path)
    try:
        size = copy.size()
        return size == file.size() - start and all(
            copy.read(at, CHUNK_BYTES) == file.read(start + at, CHUNK_BYTES)
            for at in range(0, size, CHUNK_BYTES)
        )
    finally:
        copy.close()
