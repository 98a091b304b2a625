"""Reads of records files: from the page cache at once, or with a wait for the device.

Invariant: a lookup on the event loop never waits for the device. If it needs bytes that are not in
the page cache, it raises NotCached. The bytes are then read in a thread and the lookup starts
again. So the state of a log is only used on the event loop.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from ottla.log.disk import Disk, File
from ottla.protocol.primitives import Buffer

T = TypeVar("T")

Read = Callable[[File, int, int], Buffer]
"""(file, position, size) -> bytes, fewer at the end of the file; may raise NotCached."""


class NotCached(Exception):
    """The bytes are not in the page cache; a caller that may wait reads them in a thread."""

    def __init__(self, file: File, position: int, size: int) -> None:
        super().__init__(file.path, position, size)
        self.file = file
        self.position = position
        self.size = size


def read_page_cache(file: File, position: int, size: int) -> Buffer:
    """Read from the page cache, or raise NotCached."""
    found = file.read_cached(position, size)
    if found is None:
        raise NotCached(file, position, size)
    return found


def read_blocking(file: File, position: int, size: int) -> Buffer:
    """Read and wait for the device: for threads, and for the start of a broker."""
    return file.read(position, size)


async def retry_uncached(disk: Disk, look_up: Callable[[Read], T]) -> T:
    """Run a lookup; read uncached bytes in threads and repeat it until it has all of them."""
    fetched: dict[tuple[File, int, int], bytes] = {}

    def read(file: File, position: int, size: int) -> Buffer:
        known = fetched.get((file, position, size))
        return read_page_cache(file, position, size) if known is None else known

    while True:
        try:
            return look_up(read)
        except NotCached as cold:
            file, position, size = cold.file, cold.position, cold.size
            data = await disk.blocking(lambda f=file, p=position, s=size: f.read(p, s))
            fetched[file, position, size] = data


class RecordSlice(NamedTuple):
    """A range of whole batches in a records file; empty if there is nothing to read.

    It keeps the file open, so it can be read after its segment was rolled or deleted.
    """

    disk: Disk
    file: File | None
    position: int
    size: int
    upper_offset: int  # an upper bound for its offsets

    def cached(self) -> Buffer | None:
        """The bytes, if all of them are in the page cache."""
        if self.file is None:
            return b""
        return self.file.read_cached(self.position, self.size)

    async def read(self) -> Buffer:
        """The bytes; read in a thread unless they are cached."""
        found = self.cached()
        if found is not None:
            return found
        file = self.file
        assert file is not None
        return await self.disk.blocking(lambda: file.read(self.position, self.size))
