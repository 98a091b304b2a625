"""The two sparse indexes of a segment: where an offset is, and which offset a time has.

Invariant: offsets lie in [base offset, base offset + 2**31) and never fall; positions and
timestamps rise with every entry. A look-up gives the last entry at or below what is asked for,
or the segment's beginning, and makes no object per entry. An index is never repaired: one that
breaks these rules is thrown away and made anew from the records.

The index of the active segment grows in memory; that of a closed one stays in its file, of which a
look-up reads a few blocks. They are not mapped: a page that is not in memory would stop the event
loop, and one that somebody cut off the file would end the process.
"""

from collections.abc import Iterator
from struct import Struct
from typing import ClassVar, Final, NamedTuple, Self

from ottla.ids import Offset, Position
from ottla.log.disk import File
from ottla.log.errors import CorruptIndex
from ottla.log.reading import Read, read_waiting
from ottla.log.segment.batch_headers import BrokenSegment
from ottla.protocol.primitives import Buffer
from ottla.records.batch import NO_TIMESTAMP

BLOCK_ENTRIES: Final = 512  # read at once: a page of memory has so many offsets
GUESSES_MAX: Final = 3  # entries lie evenly, as a rule; where they do not, the rest is halved

_RELATIVE_MAX: Final = 0x7FFFFFFF
_POSITION_MAX: Final = 0x7FFFFFFF
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")


class OffsetPosition(NamedTuple):
    """An offset and where its batch begins in the records file."""

    offset: Offset
    position: Position


class TimestampOffset(NamedTuple):
    """The largest timestamp so far in a segment, and the offset that brought it."""

    timestamp: int
    offset: Offset


class Index:
    """Entries of one size, in memory or in a file: what the indexes of a segment share."""

    __slots__ = ("_data", "_entries", "_file", "_growing", "_size", "base_offset", "is_proven")

    ENTRY: ClassVar[Struct]

    def __init__(self, base_offset: Offset, data: Buffer | None = None) -> None:
        """Begin an index that grows, or take over the bytes of one that does not."""
        self.base_offset = base_offset
        self.is_proven = data is None  # whether every entry was made of a batch, none read
        self._file: File | None = None
        self._growing: bytearray | None = None
        if data is None:
            data = self._growing = bytearray()
        self._data: Buffer = data  # of an index in a file, the first and the last entry
        self._size = len(data)  # of the file; an index that grows counts its entries
        self._entries = self._size // self.ENTRY.size
        self._entries_changed()

    @classmethod
    def in_file(cls, base_offset: Offset, file: File) -> Self:
        """The index of a closed segment; waits for the device."""
        size, entry = file.size(), cls.ENTRY.size
        entries = size // entry
        ends = sorted({0, entries - 1}) if entries else ()
        index = cls(base_offset, b"".join(file.read(n * entry, entry) for n in ends))
        index._file, index._size, index._entries = file, size, entries
        return index

    def renamed(self, path: str) -> None:
        """Its file goes by another name from now on."""
        if self._file is not None:
            self._file.renamed(path)

    @property
    def is_in_file(self) -> bool:
        """Whether a look-up reads from a file."""
        return self._file is not None

    @property
    def entries(self) -> int:
        """How many entries there are."""
        return self._entries

    @property
    def size(self) -> int:
        """Bytes of the entries: what a file cut to its entries has."""
        return self._entries * self.ENTRY.size

    def to_bytes(self, read: Read = read_waiting) -> bytes:
        """All entries, as they are in the file.

        Those in memory are copied by one slice: threads ask for them while the index grows, and
        what is being looked at through a memoryview cannot.
        """
        if self._file is None:
            return bytes(self._data[: self.size])
        return self._bytes(self._file, 0, self._entries, read)

    def loaded(self, read: Read) -> Self:
        """The same index in memory."""
        return self if self._file is None else type(self)(self.base_offset, self.to_bytes(read))

    def reopen(self) -> None:
        """Grow again, over a copy: a segment that was cut becomes the active one."""
        self._data = self._growing = bytearray(self.to_bytes())
        self._file = None

    def close(self) -> None:
        """Let go of the file, if it is in one."""
        if self._file is not None:
            self._file.close()

    def clear(self) -> None:
        """Forget every entry."""
        self._cut(0)

    def _entries_changed(self) -> None:
        """Read the last entry again, in the indexes that remember it."""

    def _add(self, entry: bytes) -> None:
        assert self._growing is not None, "the index of a closed segment takes no entries"
        self._growing += entry
        self._entries += 1

    def _cut(self, entries: int) -> None:
        assert self._file is None, "the index of a closed segment is not cut"
        assert entries <= self._entries
        self._entries = entries
        if self._growing is not None:
            del self._growing[self.size :]
        self._entries_changed()

    def _entries_below(self, field: Struct, field_at: int, key: int) -> int:
        """How many entries have a smaller value in a field that never falls."""
        unpack_from, data, size = field.unpack_from, self._data, self.ENTRY.size
        low, high = 0, self._entries
        while low < high:
            middle = (low + high) // 2
            if unpack_from(data, middle * size + field_at)[0] < key:
                low = middle + 1
            else:
                high = middle
        return low

    def _bytes(self, file: File, start: int, end: int, read: Read) -> bytes:
        """The entries of the file between two numbers."""
        size = self.ENTRY.size
        data = read(file, start * size, (end - start) * size)
        if len(data) < (end - start) * size:
            raise BrokenSegment(self.base_offset, f"{file.path}: it has become shorter")
        return data

    def _block(self, file: File, field: Struct, field_at: int, key: int, read: Read) -> Self:
        """The part of the file that has the last entry with a smaller value in a field.

        It is the last block that begins with such a value, or the first of all.
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
        """A field of the first entry, or of the last one, which is -1."""
        return field.unpack_from(data, field_at - entry * (len(data) - self.ENTRY.size))[0]

    def _checked(self, every_entry: bool) -> Iterator[tuple[int, ...]]:
        """All entries or those at the ends, once the size is found to be right."""
        size = self._size if self._growing is None else len(self._growing)
        if size % self.ENTRY.size:
            raise CorruptIndex(f"{size} bytes are not entries of {self.ENTRY.size}")
        if every_entry:
            return self.ENTRY.iter_unpack(self.to_bytes())
        at = sorted({0, len(self._data) - self.ENTRY.size}) if self._entries else ()
        return (self.ENTRY.unpack_from(self._data, position) for position in at)


class OffsetIndex(Index):
    """From offsets to positions; its file is `.index`, 8 bytes an entry."""

    __slots__ = ("last",)

    ENTRY = Struct(">ii")  # offset from the base offset, position
    last: OffsetPosition
    """The last entry, or where the segment begins."""

    def append(self, offset: Offset, position: Position) -> None:
        """Point to a batch by its last offset; both must be above those of the last entry."""
        relative, last = offset - self.base_offset, self.last
        assert 0 <= relative <= _RELATIVE_MAX, "the segment should have been rolled"
        assert 0 < position <= _POSITION_MAX, "the first batch of a segment needs no entry"
        assert not self._entries or (offset > last.offset and position > last.position)
        self._add(self.ENTRY.pack(relative, position))
        self.last = OffsetPosition(offset, position)

    def lookup(self, offset: int, read: Read) -> OffsetPosition:
        """The last entry at or below an offset; the segment's beginning when there is none."""
        if offset >= self.last.offset:  # readers at the tail end here
            return self.last
        key = offset - self.base_offset + 1
        if self._file is not None:
            return self._block(self._file, _INT32, 0, key, read).lookup(offset, read)
        return self._entry(self._entries_below(_INT32, 0, key) - 1)

    def last_until(self, position: int, read: Read) -> OffsetPosition:
        """The last entry at or before a position; the segment's beginning when there is none."""
        if self._file is not None:
            return self._block(self._file, _INT32, 4, position + 1, read).last_until(position, read)
        return self._entry(self._entries_below(_INT32, 4, position + 1) - 1)

    def behind(self, position: int) -> Iterator[OffsetPosition]:
        """The entries behind a position; also of an index that is wrong, but in memory."""
        for number in range(self._entries_below(_INT32, 4, position + 1), self._entries):
            entry = self._entry(number)
            if entry.position > position:
                yield entry

    def truncate_to(self, offset: int) -> None:
        """Remove the entries from an offset on."""
        self._cut(self._entries_below(_INT32, 0, offset - self.base_offset))

    def is_full(self, bytes_max: int) -> bool:
        """Whether one more entry would pass the limit."""
        return self._entries >= bytes_max // self.ENTRY.size

    def check(self, *, every_entry: bool = False) -> None:
        """Raise CorruptIndex unless the ends are right, or every entry is.

        A broker that died leaves zeros behind the entries, for Kafka allots the file in advance:
        they make the last entry smaller than the first. No entry points to position 0.
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
    """From timestamps to offsets; its file is `.timeindex`, 12 bytes an entry."""

    __slots__ = ("last",)

    ENTRY = Struct(">qi")  # timestamp, offset from the base offset
    last: TimestampOffset
    """The last entry; without one, no timestamp and the base offset."""

    def append(self, timestamp: int, offset: Offset) -> bool:
        """Note that no record up to the offset is later; False when the time is noted already.

        Segments that are rolled or closed note their last timestamp once more, hence no error.
        """
        relative, last = offset - self.base_offset, self.last
        assert 0 <= relative <= _RELATIVE_MAX, "the segment should have been rolled"
        assert not self._entries or (timestamp >= last.timestamp and offset >= last.offset)
        if timestamp <= last.timestamp:
            return False
        self._add(self.ENTRY.pack(timestamp, relative))
        self.last = TimestampOffset(timestamp, offset)
        return True

    def lookup(self, timestamp: int, read: Read) -> TimestampOffset:
        """The last entry at or below a time: records up to its offset are not later than it."""
        if timestamp >= self.last.timestamp:
            return self.last
        if self._file is not None:
            return self._block(self._file, _INT64, 0, timestamp + 1, read).lookup(timestamp, read)
        return self._entry(self._entries_below(_INT64, 0, timestamp + 1) - 1)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries from an offset on."""
        self._cut(self._entries_below(_INT32, 8, offset - self.base_offset))

    def is_full(self, bytes_max: int) -> bool:
        """Whether only the place is left that is kept for the entry made when a segment rolls."""
        return self._entries >= bytes_max // self.ENTRY.size - 1

    def check(self, *, every_entry: bool = False) -> None:
        """Raise CorruptIndex unless the ends are right, or every entry is.

        The zeros that a broker leaves when it dies repeat a timestamp or fall below the first.
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
