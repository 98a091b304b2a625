"""The offset index and the time index of a segment, both sparse.

Invariant: offsets lie in [base offset, base offset + 2**31) and do not decrease; positions and
timestamps increase with every entry. A lookup returns the last entry at or below the key, or the
start of the segment, and creates no object per entry. An index that breaks these rules is not
repaired but rebuilt from the records.

The index of the active segment is in memory. The index of a closed segment stays in its file, of
which a lookup reads a few blocks. Index files are not memory-mapped: a page fault would block the
event loop, and a truncated file would end the process with SIGBUS.
"""

from collections.abc import Iterator
from struct import Struct
from typing import ClassVar, Final, NamedTuple, Self

from ottla.ids import Offset, Position
from ottla.log.cached_reads import Read, read_blocking
from ottla.log.disk import File
from ottla.log.errors import CorruptIndex
from ottla.log.segment.batch_headers import BrokenSegment
from ottla.protocol.primitives import Buffer
from ottla.records.batch import NO_TIMESTAMP

BLOCK_ENTRIES: Final = 512  # entries per read: a page of 4096 bytes has 512 offset entries
GUESSES_MAX: Final = 3  # interpolations before a lookup falls back to binary search

_RELATIVE_MAX: Final = 0x7FFFFFFF
_POSITION_MAX: Final = 0x7FFFFFFF
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")


class OffsetPosition(NamedTuple):
    """An offset and the position of its batch in the records file."""

    offset: Offset
    position: Position


class TimestampOffset(NamedTuple):
    """The largest timestamp so far in a segment, and the offset of its batch."""

    timestamp: int
    offset: Offset


class Index:
    """Entries of one size, in memory or in a file: the base of a segment's indexes."""

    __slots__ = ("_appendable", "_data", "_entries", "_file", "_size", "base_offset", "is_trusted")

    ENTRY: ClassVar[Struct]

    def __init__(self, base_offset: Offset, data: Buffer | None = None) -> None:
        """Create an index that can be appended to, or one over existing bytes."""
        self.base_offset = base_offset
        self.is_trusted = data is None  # no entry was read from a file
        self._file: File | None = None
        self._appendable: bytearray | None = None
        if data is None:
            data = self._appendable = bytearray()
        self._data: Buffer = data  # all entries; of an index in a file the first and the last one
        self._size = len(data)  # of the file; not updated while an index in memory grows
        self._entries = self._size // self.ENTRY.size
        self._entries_changed()

    @classmethod
    def in_file(cls, base_offset: Offset, file: File) -> Self:
        """The index of a closed segment, which takes over the file; waits for the device."""
        size, entry = file.size(), cls.ENTRY.size
        entries = size // entry
        ends = sorted({0, entries - 1}) if entries else ()
        index = cls(base_offset, b"".join(file.read(n * entry, entry) for n in ends))
        index._file, index._size, index._entries = file.released(), size, entries
        return index

    def renamed(self, path: str) -> None:
        """Record the new path of the index file."""
        if self._file is not None:
            self._file.renamed(path)

    @property
    def is_in_file(self) -> bool:
        """Whether a lookup reads from a file."""
        return self._file is not None

    @property
    def entries(self) -> int:
        """The number of entries."""
        return self._entries

    @property
    def size(self) -> int:
        """The size of the entries in bytes; a file may have padding after them."""
        return self._entries * self.ENTRY.size

    def to_bytes(self, read: Read = read_blocking) -> bytes:
        """All entries as they are in the file.

        Entries in memory are copied with one slice: threads call this while the index grows, and a
        bytearray with an exported memoryview cannot grow.
        """
        if self._file is None:
            return bytes(self._data[: self.size])
        return bytes(self._bytes(self._file, 0, self._entries, read))

    def loaded(self, read: Read) -> Self:
        """The same index in memory."""
        return self if self._file is None else type(self)(self.base_offset, self.to_bytes(read))

    def reopen(self) -> None:
        """Copy the index to memory, so that a segment that becomes active can append to it."""
        self._data = self._appendable = bytearray(self.to_bytes())
        self._file = None

    def close(self) -> None:
        """Close the index file, if there is one."""
        if self._file is not None:
            self._file.close()

    def clear(self) -> None:
        """Remove every entry."""
        self._truncate(0)

    def _entries_changed(self) -> None:
        """Reload the last entry, in subclasses that keep it."""

    def _add(self, entry: bytes) -> None:
        assert self._appendable is not None, "the index of a closed segment is read-only"
        self._appendable += entry
        self._entries += 1

    def _truncate(self, entries: int) -> None:
        assert self._file is None, "the index of a closed segment is not truncated"
        assert entries <= self._entries
        self._entries = entries
        if self._appendable is not None:
            del self._appendable[self.size :]
        self._entries_changed()

    def _entries_below(self, field: Struct, field_at: int, key: int) -> int:
        """The number of entries with a smaller value in a field that does not decrease."""
        unpack_from, data, size = field.unpack_from, self._data, self.ENTRY.size
        low, high = 0, self._entries
        while low < high:
            middle = (low + high) // 2
            if unpack_from(data, middle * size + field_at)[0] < key:
                low = middle + 1
            else:
                high = middle
        return low

    def _bytes(self, file: File, start: int, end: int, read: Read) -> Buffer:
        """The bytes of the entries [start, end) of the file."""
        size = self.ENTRY.size
        data = read(file, start * size, (end - start) * size)
        if len(data) < (end - start) * size:
            raise BrokenSegment(self.base_offset, f"{file.path}: the file was truncated")
        return data

    def _block(self, file: File, field: Struct, field_at: int, key: int, read: Read) -> Self:
        """The block of the file that has the last entry with a smaller value in a field.

        It is the last block whose first value is smaller, or the first block.
        """
        block: Buffer = b""
        if not self._entries:
            return type(self)(self.base_offset, block)
        low, high, guesses = 0, -(-self._entries // BLOCK_ENTRIES), GUESSES_MAX
        below, above = (self._value(self._data, field, field_at, end) for end in (0, -1))
        while low < high:
            middle = (low + high) // 2
            if guesses and below < key < above:
                middle = low + (key - below) * (high - low) // (above - below)
                guesses -= 1
            start = middle * BLOCK_ENTRIES
            data = self._bytes(file, start, min(start + BLOCK_ENTRIES, self._entries), read)
            first = self._value(data, field, field_at, 0)
            if middle and first >= key:
                high, above = middle, first
                continue
            low, block = middle + 1, data
            below = self._value(data, field, field_at, -1)
            if below >= key:
                break
        return type(self)(self.base_offset, block)

    def _value(self, data: Buffer, field: Struct, field_at: int, entry: int) -> int:
        """A field of the first entry, or of the last one (-1)."""
        return field.unpack_from(data, field_at - entry * (len(data) - self.ENTRY.size))[0]

    def _checked(self, every_entry: bool) -> Iterator[tuple[int, ...]]:
        """All entries, or the first and the last one, after the size was checked."""
        size = self._size if self._appendable is None else len(self._appendable)
        if size % self.ENTRY.size:
            raise CorruptIndex(f"{size} bytes: not a multiple of the entry size {self.ENTRY.size}")
        if every_entry:
            return self.ENTRY.iter_unpack(self.to_bytes())
        at = sorted({0, len(self._data) - self.ENTRY.size}) if self._entries else ()
        return (self.ENTRY.unpack_from(self._data, position) for position in at)


class OffsetIndex(Index):
    """Maps offsets to positions; the file is `.index`, 8 bytes per entry."""

    __slots__ = ("last",)

    ENTRY = Struct(">ii")  # offset from the base offset, position
    last: OffsetPosition
    """The last entry, or the start of the segment."""

    def append(self, offset: Offset, position: Position) -> None:
        """Add a batch by its last offset; offset and position are above those of the last entry."""
        relative, last = offset - self.base_offset, self.last
        assert 0 <= relative <= _RELATIVE_MAX, "the segment must be rolled before this offset"
        assert 0 < position <= _POSITION_MAX, "the first batch of a segment needs no entry"
        assert not self._entries or (offset > last.offset and position > last.position)
        self._add(self.ENTRY.pack(relative, position))
        self.last = OffsetPosition(offset, position)

    def lookup(self, offset: int, read: Read) -> OffsetPosition:
        """The last entry at or below an offset; the start of the segment if there is none."""
        if offset >= self.last.offset:  # the common case: a reader at the tail
            return self.last
        key = offset - self.base_offset + 1
        if self._file is not None:
            return self._block(self._file, _INT32, 0, key, read).lookup(offset, read)
        return self._entry(self._entries_below(_INT32, 0, key) - 1)

    def last_at_or_before(self, position: int, read: Read) -> OffsetPosition:
        """The last entry at or before a position; the start of the segment if there is none."""
        if self._file is not None:
            return self._block(self._file, _INT32, 4, position + 1, read).last_at_or_before(
                position, read
            )
        return self._entry(self._entries_below(_INT32, 4, position + 1) - 1)

    def after(self, position: int) -> Iterator[OffsetPosition]:
        """The entries after a position; works for a wrong index in memory, too."""
        for number in range(self._entries_below(_INT32, 4, position + 1), self._entries):
            entry = self._entry(number)
            if entry.position > position:
                yield entry

    def truncate_to(self, offset: int) -> None:
        """Remove the entries from an offset on."""
        self._truncate(self._entries_below(_INT32, 0, offset - self.base_offset))

    def is_full(self, bytes_max: int) -> bool:
        """Whether one more entry would exceed the limit."""
        return self._entries >= bytes_max // self.ENTRY.size

    def check(self, *, every_entry: bool = False) -> None:
        """Raise CorruptIndex unless the first and the last entry, or all entries, are valid.

        Kafka preallocates index files. A broker that died leaves zeros after the entries, which
        make the last entry smaller than the first. No entry points to position 0.
        """
        last_offset = -1
        last_position = 0
        for relative, position in self._checked(every_entry):
            if relative <= last_offset or position <= last_position:
                raise CorruptIndex(
                    f"entry ({relative}, {position}) after ({last_offset}, {last_position})"
                )
            last_offset, last_position = relative, position

    def _entry(self, number: int) -> OffsetPosition:
        if number < 0:
            return OffsetPosition(self.base_offset, Position(0))
        relative, position = self.ENTRY.unpack_from(self._data, number * self.ENTRY.size)
        return OffsetPosition(Offset(self.base_offset + relative), Position(position))

    def _entries_changed(self) -> None:
        self.last = self._entry(self._entries - 1)


class TimeIndex(Index):
    """Maps timestamps to offsets; the file is `.timeindex`, 12 bytes per entry."""

    __slots__ = ("last",)

    ENTRY = Struct(">qi")  # timestamp, offset from the base offset
    last: TimestampOffset
    """The last entry; without entries -1 and the base offset."""

    def append(self, timestamp: int, offset: Offset) -> bool:
        """Record that no record up to the offset is later; False if the timestamp is not larger.

        A segment that is rolled or closed adds its last timestamp again, which is not an error.
        """
        relative, last = offset - self.base_offset, self.last
        assert 0 <= relative <= _RELATIVE_MAX, "the segment must be rolled before this offset"
        assert not self._entries or (timestamp >= last.timestamp and offset >= last.offset)
        if timestamp <= last.timestamp:
            return False
        self._add(self.ENTRY.pack(timestamp, relative))
        self.last = TimestampOffset(timestamp, offset)
        return True

    def lookup(self, timestamp: int, read: Read) -> TimestampOffset:
        """The last entry at or below a timestamp: records up to its offset are not later."""
        if timestamp >= self.last.timestamp:
            return self.last
        if self._file is not None:
            return self._block(self._file, _INT64, 0, timestamp + 1, read).lookup(timestamp, read)
        return self._entry(self._entries_below(_INT64, 0, timestamp + 1) - 1)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries from an offset on."""
        self._truncate(self._entries_below(_INT32, 8, offset - self.base_offset))

    def is_full(self, bytes_max: int) -> bool:
        """Whether only the entry is left that is reserved for the roll of the segment."""
        return self._entries >= bytes_max // self.ENTRY.size - 1

    def check(self, *, every_entry: bool = False) -> None:
        """Raise CorruptIndex unless the first and the last entry, or all entries, are valid.

        Zeros that a broker leaves when it dies repeat a timestamp or are smaller than the first
        one.
        """
        last_timestamp = NO_TIMESTAMP
        last_offset = 0
        for timestamp, relative in self._checked(every_entry):
            if timestamp <= last_timestamp or relative < last_offset:
                raise CorruptIndex(
                    f"entry ({timestamp}, {relative}) after ({last_timestamp}, {last_offset})"
                )
            last_timestamp, last_offset = timestamp, relative

    def _entry(self, number: int) -> TimestampOffset:
        if number < 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        timestamp, relative = self.ENTRY.unpack_from(self._data, number * self.ENTRY.size)
        return TimestampOffset(timestamp, Offset(self.base_offset + relative))

    def _entries_changed(self) -> None:
        self.last = self._entry(self._entries - 1)
