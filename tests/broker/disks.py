"""Disks for brokers under test: delayed, uncached or failing."""

import asyncio
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from ottla.errors import StorageFailure
from ottla.log.files import OsDescriptor, OsDisk, OsFile
from ottla.protocol.primitives import Buffer

T = TypeVar("T")


class HeldDisk(OsDisk):
    """A disk whose blocking calls wait until the test allows them."""

    def __init__(self) -> None:
        super().__init__()
        self.free = asyncio.Event()
        self.free.set()

    @contextmanager
    def held(self) -> Generator[None]:
        """Let blocking calls wait during the `with` block."""
        self.free.clear()
        try:
            yield
        finally:
            self.free.set()

    async def blocking(self, call: Callable[[], T]) -> T:
        await self.free.wait()
        return await super().blocking(call)


class FaultyDisk(OsDisk):
    """A disk on which record files can be uncached (`cold`) and operations can fail (`broken`)."""

    def __init__(self) -> None:
        super().__init__()
        self.cold = False
        self.broken: frozenset[str] = frozenset()  # operations that fail: "read", "write", "sync"

    def open(self, path: str, *, create: bool = False, private: bool = False) -> OsFile:
        file = super().open(path, create=create, private=private)
        return FaultyFile(self, file) if path.endswith(".log") else file


class FaultyFile(OsFile):
    """A record file on a faulty disk."""

    __slots__ = ("_disk",)

    def __init__(self, disk: FaultyDisk, file: OsFile) -> None:
        self._disk = disk
        super().__init__(file.path, os.dup(file.fileno()), set())
        file.close()

    def _check(self, what: str) -> None:
        if what in self._disk.broken:
            raise StorageFailure(f"{self.path}: {what}: Input/output error")

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        self._check("write")
        return super().write(buffers, position)

    def read(self, position: int, size: int) -> bytes:
        self._check("read")
        return super().read(position, size)

    def read_cached(self, position: int, size: int) -> Buffer | None:
        if self._disk.cold:
            return None
        self._check("read")
        return super().read_cached(position, size)

    def pin(self, end: int) -> OsDescriptor | None:
        return None if self._disk.cold else super().pin(end)

    def sync(self) -> None:
        self._check("sync")
        super().sync()
