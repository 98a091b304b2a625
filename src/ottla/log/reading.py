"""How bytes of records files are asked for: at once from memory, or with patience.

Invariant: what is looked up on the event loop never waits for the device. A look-up that needs
bytes that are not in memory is given up with NotCached, the bytes are fetched in a thread, and the
look-up starts again with them at hand: so all state of a log is touched on the event loop alone.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from ottla.log.disk import Disk, File

T = TypeVar("T")

Read = Callable[[File, int, int], bytes]
"""(file, position, size) to bytes, fewer at the end of the file; or NotCached is raised."""


class NotCached(Exception):
    """The bytes are not in memory; whoever may wait for the device has to ask again."""

    def __init__(self, file: File, position: int, size: int) -> None:
        super().__init__(file.path, position, size)
        self.file = file
        self.position = position
        self.size = size


def read_now(file: File, position: int, size: int) -> bytes:
    """Read what is in memory."""
    found = file.read_cached(position, size)
    if found is None:
        raise NotCached(file, position, size)
    return bytes(found)


def read_waiting(file: File, position: int, size: int) -> bytes:
    """Read, whatever it takes: for threads, and for the start of a broker."""
    return file.read(position, size)


async def settled(disk: Disk, look_up: Callable[[Read], T]) -> T:
    """The outcome of a look-up, repeated until all it reads is at hand."""
    fetched: dict[tuple[File, int, int], bytes] = {}

    def read(file: File, position: int, size: int) -> bytes:
        known = fetched.get((file, position, size))
        return read_now(file, position, size) if known is None else known

    while True:
        try:
            return look_up(read)
        except NotCached as cold:
            file, position, size = cold.file, cold.position, cold.size
            data = await disk.blocking(lambda f=file, p=position, s=size: f.read(p, s))
            fetched[file, position, size] = data


class RecordSlice(NamedTuple):
    """A run of whole batches in a records file, of no bytes when there is nothing to read.

    It holds the file, so that it can be read after its segment was rolled or deleted.
    """

    disk: Disk
    file: File | None
    position: int
    size: int
    upper_offset: int  # above all of its offsets, and not far above

    def cached(self) -> bytes | bytearray | None:
        """The bytes, if they are all in memory."""
        if self.file is None:
            return b""
        return self.file.read_cached(self.position, self.size)

    async def read(self) -> bytes | bytearray:
        """The bytes; in a thread unless they are in memory."""
        found = self.cached()
        if found is not None:
            return found
        file = self.file
        assert file is not None
        return await self.disk.blocking(lambda: file.read(self.position, self.size))
