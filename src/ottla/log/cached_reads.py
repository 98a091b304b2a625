"""Reads of records files: from the page cache at once, or with a wait for the device.

Invariant: a lookup on the event loop never waits for the device. If it needs bytes that are not in
the page cache, it raises NotCached. The bytes are then read in a thread and the lookup starts
again. So the state of a log is only used on the event loop.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from ottla.log.disk import Disk, File, PinnedFile, Reader
from ottla.protocol.file_slice import FileSlice
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


async def retry_uncached(
    disk: Disk, look_up: Callable[[Read], T], reader: Reader = Reader.BROKER
) -> T:
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
            data = await disk.reading(lambda f=file, p=position, s=size: f.read(p, s), reader)
            fetched[file, position, size] = data


_OFFSET_BYTES: Final = 8
"""The size of the base offset, with which a batch begins."""


class PinnedRecords(FileSlice):
    """Whole batches that are sent from their file, whatever happens to the log meanwhile."""

    __slots__ = ("_disk", "_file", "_position", "_reader", "_size", "records")

    def __init__(
        self,
        disk: Disk,
        file: PinnedFile,
        position: int,
        size: int,
        records: int,
        reader: Reader = Reader.BROKER,
    ) -> None:
        self._disk = disk
        self._reader = reader
        self._file = file
        self._position = position
        self._size = size
        self.records = records  # how many there are

    def __len__(self) -> int:
        return self._size

    @property
    def position(self) -> int:
        """Where the first batch starts in the file."""
        return self._position

    def fileno(self) -> int:
        """The descriptor of the records file."""
        return self._file.fileno()

    def is_cached(self, start: int, count: int) -> bool:
        """Whether a part is in the page cache."""
        return self._file.is_cached(self._position + start, count)

    async def read(self, start: int, count: int) -> Buffer:
        """Read a part in a thread."""
        file, position = self._file, self._position + start
        return await self._disk.reading(lambda: file.read(position, count), self._reader)


class RecordSlice(NamedTuple):
    """A range of whole batches in a records file; empty if there is nothing to read.

    It keeps the file open, so it can be read after its segment was rolled or deleted.
    """

    disk: Disk
    file: File | None
    position: int
    size: int
    upper_offset: int  # an upper bound for its offsets
    is_gapless: bool = False  # the bound is exact and every offset below it exists
    base_offset: int | None = None  # of the first batch, if it is known

    def cached(self) -> Buffer | None:
        """The bytes, if all of them are in the page cache."""
        if self.file is None:
            return b""
        return self.file.read_cached(self.position, self.size)

    def pinned(self, reader: Reader = Reader.BROKER) -> "PinnedRecords | None":
        """The bytes where they are in the file, if all of them are in the page cache."""
        file, position, size = self.file, self.position, self.size
        if file is None or not self.is_gapless:
            return None
        base_offset = self.base_offset
        if base_offset is None:
            first = file.read_cached(position, _OFFSET_BYTES)
            if first is None:
                return None
            base_offset = int.from_bytes(first, "big")
        # The last page tells whether a read ahead of the range is still under way.
        if file.read_cached(position + size - 1, 1) is None:
            return None
        pin = file.pin(position + size)
        if pin is None or not pin.is_cached(position, size):
            return None
        records = self.upper_offset - base_offset
        return PinnedRecords(self.disk, pin, position, size, records, reader)

    async def read(self, reader: Reader = Reader.BROKER) -> Buffer:
        """The bytes; read in a thread unless they are cached."""
        found = self.cached()
        if found is not None:
            return found
        file = self.file
        assert file is not None
        return await self.disk.reading(lambda: file.read(self.position, self.size), reader)
