"""A file system in memory, with inodes that are used again."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import PurePath

from ottla.cli.collect.tail import FileId, Look


@dataclass(eq=False)
class Inode:
    number: int
    data: bytearray = field(default_factory=bytearray)
    changes: int = 0
    links: int = 1
    opened: int = 0


@dataclass(eq=False)
class MemoryFile:
    inode: Inode
    is_open: bool = True

    @property
    def id(self) -> FileId:
        return FileId(1, self.inode.number)

    def look(self) -> Look:
        assert self.is_open
        return Look(len(self.inode.data), self.inode.changes, self.inode.links)

    def read(self, start: int, size: int) -> bytes:
        assert self.is_open
        return bytes(self.inode.data[start : start + size])

    def close(self) -> None:
        assert self.is_open
        self.is_open = False
        self.inode.opened -= 1


class MemoryDisk:
    def __init__(self) -> None:
        self.files: dict[str, Inode] = {}
        self._inodes: list[Inode] = []

    def create(self, path: str) -> Inode:
        """Create a file, with the lowest free inode."""
        self._inodes = [one for one in self._inodes if one.links or one.opened]
        used = {one.number for one in self._inodes}
        inode = Inode(next(one for one in range(1, 1000) if one not in used))
        self._inodes.append(inode)
        self.files[path] = inode
        return inode

    def append(self, inode: Inode, data: bytes) -> None:
        inode.data += data
        inode.changes += 1

    def truncate(self, inode: Inode) -> None:
        inode.data.clear()
        inode.changes += 1

    def rename(self, path: str, to: str) -> None:
        self.delete(to)
        self.files[to] = self.files.pop(path)

    def delete(self, path: str) -> None:
        inode = self.files.pop(path, None)
        if inode is not None:
            inode.links = 0

    def close_all(self) -> None:
        """Close all files, as the end of a process does."""
        for one in self._inodes:
            one.opened = 0

    def matches(self, patterns: Iterable[str]) -> dict[str, FileId]:
        every = [*patterns]
        return {
            path: FileId(1, inode.number)
            for path, inode in sorted(self.files.items())
            if any(fnmatch(path, one) for one in every)
        }

    def neighbours(self, path: str) -> dict[str, FileId]:
        return self.matches([f"{PurePath(path).parent}/*"])

    def open(self, path: str) -> MemoryFile:
        if path not in self.files:
            raise FileNotFoundError(2, "No such file or directory", path)
        inode = self.files[path]
        inode.opened += 1
        return MemoryFile(inode)
