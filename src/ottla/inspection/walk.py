"""A walk over the batches of a records file, whatever its size and its bytes.

Invariant: batches come in the order of the file, each exactly as long as its header says, and
nothing is read or made room for because a header claims it. At a place that cannot be a batch the
walk goes on with the next one that is certainly right, and what is between is a hole; where there
is none the file ends, and `tail` says how.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from struct import Struct
from typing import Final, NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from ottla.log.disk import File
from ottla.records.batch import (
    CRC_END,
    DECOMPRESSED_BYTES_MAX,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    Batch,
    BatchHeader,
    read_header,
    unpack_header,
)
from ottla.records.errors import CorruptRecords

# As much as is read at once. Less costs calls, more costs memory.
CHUNK_BYTES: Final = 1024 * 1024

# A larger batch is checked by its CRC alone, piece by piece: its records are not looked into.
BATCH_BYTES_MAX: Final = DECOMPRESSED_BYTES_MAX

_BASE_OFFSET_END: Final = 8
_MAGIC_AT: Final = 16
_MAGIC_BYTE: Final = bytes((MAGIC,))
_PLACE: Final = Struct(">qi")  # base offset and length
_OFFSETS_MAX: Final = 2**31  # in a segment

# Bytes that look like a batch and are none: so many are looked into before a search is given up.
_CANDIDATES_MAX: Final = 1000

Progress = Callable[[int, int], None]
"""Told how many bytes of a file have been looked at, of how many."""


class FoundBatch(NamedTuple):
    """A batch and its place. The bytes are None when they are too many, or were not asked for."""

    position: int
    header: BatchHeader
    crc_ok: bool | None  # None: not computed
    batch: Batch | None


class Hole(NamedTuple):
    """Bytes between batches that are no batch."""

    position: int
    size: int
    problem: str


class TailKind(Enum):
    """How a file ends."""

    WHOLE = "with a whole batch"
    CUT_OFF = "with the beginning of a batch"
    ZEROS = "with zeros, which are allotted in advance or were never written"
    NO_BATCH = "with bytes that are no batch"


@dataclass(slots=True)
class Tail:
    """What is behind the last batch."""

    kind: TailKind
    position: int
    size: int
    problem: str
    base_offset: int | None = None  # of the batch that is cut off, if that much is there


class Walk:
    """One pass over a file; iterate, then ask for the tail."""

    def __init__(self, file: File, progress: Progress = lambda done, total: None) -> None:
        self.tail: Tail | None = None
        self._file = file
        self._progress = progress
        self._chunk = memoryview(b"")
        self._chunk_at = 0
        self._next_offset = 0  # behind the last batch that was right
        self._candidates_left = _CANDIDATES_MAX

    def batches(self, wanted: Callable[[BatchHeader], bool]) -> Iterator[FoundBatch | Hole]:
        """The batches; the bytes, and the CRC, of those that are wanted by their header."""
        position = 0
        while True:
            head = self._view(position, HEADER_SIZE)
            if not head:
                self.tail = Tail(TailKind.WHOLE, position, 0, "")
                break
            try:
                header = unpack_header(head)
                left = self._file.size() - position
                if header.size > left:
                    raise CorruptRecords(f"a batch of {header.size} bytes is cut off after {left}")
            except CorruptRecords as error:
                tail = self._bad_tail(position, bytes(head), str(error))
                found = None if tail.kind is TailKind.ZEROS else self._next_batch(position + 1)
                if found is None:
                    self.tail = tail
                    break
                yield Hole(position, found - position, str(error))
                position = found
                continue
            batch = self._found(position, header, wanted(header))
            if batch is not None:  # None: the file was cut meanwhile
                if batch.crc_ok:
                    self._next_offset = header.next_offset
                yield batch
                position += header.size
        size = self._file.size()
        self._progress(size, size)

    def _found(self, position: int, header: BatchHeader, wanted: bool) -> FoundBatch | None:
        if not wanted:
            return FoundBatch(position, header, None, None)
        if header.size > BATCH_BYTES_MAX:
            return FoundBatch(position, header, self._large_crc_ok(position, header), None)
        data = self._view(position, header.size)
        if len(data) < header.size:
            return None
        batch = Batch(data, header)
        return FoundBatch(position, header, batch.crc_ok, batch)

    def _next_batch(self, position: int) -> int | None:
        """Where the next batch begins whose CRC is right; None when there is none."""
        while True:
            piece = self._file.read(position, CHUNK_BYTES)
            if len(piece) < HEADER_SIZE:
                return None
            magic_at = piece.find(_MAGIC_BYTE, _MAGIC_AT)
            while 0 <= magic_at <= len(piece) - HEADER_SIZE + _MAGIC_AT:
                at = magic_at - _MAGIC_AT
                base_offset, length = _PLACE.unpack_from(piece, at)
                # Offsets tell nearly every chance likeness apart before a CRC is computed.
                if 0 <= base_offset - self._next_offset < _OFFSETS_MAX and length > 0:
                    if self._candidates_left == 0:
                        return None
                    self._candidates_left -= 1
                    if self._is_batch(position + at):
                        return position + at
                magic_at = piece.find(_MAGIC_BYTE, magic_at + 1)
            position += len(piece) - HEADER_SIZE + 1
            self._progress(position, self._file.size())

    def _is_batch(self, position: int) -> bool:
        head = self._file.read(position, HEADER_SIZE)
        try:
            header = read_header(head)
        except CorruptRecords:
            return False
        if header.size > min(BATCH_BYTES_MAX, self._file.size() - position):
            return False
        data = self._file.read(position, header.size)
        return len(data) == header.size and Batch(data, header).crc_ok

    def _view(self, position: int, size: int) -> memoryview:
        """So many bytes, fewer at the end of the file."""
        at = position - self._chunk_at
        if at + size > len(self._chunk):
            self._chunk = memoryview(self._file.read(position, max(size, CHUNK_BYTES)))
            self._chunk_at, at = position, 0
            self._progress(position, self._file.size())
        return self._chunk[at : at + size]

    def _large_crc_ok(self, position: int, header: BatchHeader) -> bool:
        crc: int | None = None
        at, end = position + CRC_END, position + header.size
        while at < end:
            piece = self._file.read(at, min(CHUNK_BYTES, end - at))
            if not piece:
                return False
            crc = crc32c(piece) if crc is None else crc32c(piece, crc)
            at += len(piece)
            self._progress(at, self._file.size())
        return crc == header.crc

    def _bad_tail(self, position: int, head: bytes, problem: str) -> Tail:
        size = self._file.size() - position
        if not any(head) and self._zeros_from(position):
            problem = f"{size} bytes of zeros"
            return Tail(TailKind.ZEROS, position, size, problem)
        base_offset: int | None = None
        if len(head) >= _BASE_OFFSET_END:
            base_offset = int.from_bytes(head[:_BASE_OFFSET_END], "big", signed=True)
        kind = TailKind.CUT_OFF if _may_be_cut_off(head) else TailKind.NO_BATCH
        return Tail(kind, position, size, problem, base_offset)

    def _zeros_from(self, position: int) -> bool:
        while piece := self._file.read(position, CHUNK_BYTES):
            if any(piece):
                return False
            position += len(piece)
        return True


def _may_be_cut_off(head: bytes) -> bool:
    """Whether these bytes at the end of a file are the beginning of a batch, as far as can be told.

    Either the header is not all there, or it is right and its records are missing.
    """
    if len(head) >= LENGTH_END:
        length = int.from_bytes(head[_BASE_OFFSET_END:LENGTH_END], "big", signed=True)
        if length < HEADER_SIZE - LENGTH_END:
            return False
    return len(head) <= _MAGIC_AT or head[_MAGIC_AT] == MAGIC
