"""A walk over the batches of a records file of any size and content.

Invariant: batches come in file order with the size in their header; no memory is allocated because
of a size that a header claims. If there is no batch at a position, the walk continues at the next
batch with a valid CRC, and the bytes between are an invalid range. If there is no such batch, the
walk ends, and `tail` describes the rest.
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

# Bytes per read.
CHUNK_BYTES: Final = 1024 * 1024

# Of a larger batch only the CRC is checked, in chunks, and not its records.
BATCH_BYTES_MAX: Final = DECOMPRESSED_BYTES_MAX

_BASE_OFFSET_END: Final = 8
_MAGIC_AT: Final = 16
_MAGIC_BYTE: Final = bytes((MAGIC,))
_PLACE: Final = Struct(">qi")  # base offset and length
_OFFSETS_MAX: Final = 2**31  # in a segment

# The search for the next batch ends after this number of false candidates.
_CANDIDATES_MAX: Final = 1000

Progress = Callable[[int, int], None]
"""Called with the number of bytes examined and the size of the file."""


class FoundBatch(NamedTuple):
    """A batch and its position; the bytes are None if they are too large or not wanted."""

    position: int
    header: BatchHeader
    crc_ok: bool | None  # None: not computed
    batch: Batch | None


class InvalidRange(NamedTuple):
    """Bytes between batches that are not a batch."""

    position: int
    size: int
    problem: str


class TailKind(Enum):
    """How a file ends."""

    WHOLE = "with a whole batch"
    CUT_OFF = "with the beginning of a batch"
    ZEROS = "with zeros, which were preallocated or never written"
    NO_BATCH = "with bytes that are not a batch"


@dataclass(slots=True)
class Tail:
    """The bytes after the last batch."""

    kind: TailKind
    position: int
    size: int
    problem: str
    base_offset: int | None = None  # of the incomplete batch, if known


class Walk:
    """One pass over a file; iterate first, then use the tail."""

    def __init__(self, file: File, progress: Progress = lambda done, total: None) -> None:
        self.tail: Tail | None = None
        self._file = file
        self._progress = progress
        self._chunk = memoryview(b"")
        self._chunk_at = 0
        self._next_offset = 0  # after the last valid batch
        self._candidates_left = _CANDIDATES_MAX

    def batches(self, wanted: Callable[[BatchHeader], bool]) -> Iterator[FoundBatch | InvalidRange]:
        """The batches; bytes and CRC only of those whose header is wanted."""
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
                    raise CorruptRecords(f"incomplete batch: {left} of {header.size} bytes")
            except CorruptRecords as error:
                tail = self._bad_tail(position, bytes(head), str(error))
                found = None if tail.kind is TailKind.ZEROS else self._next_batch(position + 1)
                if found is None:
                    self.tail = tail
                    break
                yield InvalidRange(position, found - position, str(error))
                position = found
                continue
            batch = self._found(position, header, wanted(header))
            if batch is not None:  # None: the file was truncated meanwhile
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
        """The position of the next batch with a valid CRC; None if there is none."""
        while True:
            piece = self._file.read(position, CHUNK_BYTES)
            if len(piece) < HEADER_SIZE:
                return None
            magic_at = piece.find(_MAGIC_BYTE, _MAGIC_AT)
            while 0 <= magic_at <= len(piece) - HEADER_SIZE + _MAGIC_AT:
                at = magic_at - _MAGIC_AT
                base_offset, length = _PLACE.unpack_from(piece, at)
                # The offset rules out almost every false candidate before a CRC is computed.
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
        """Bytes at a position, fewer at the end of the file."""
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
    """Whether these bytes at the end of a file may be the start of a batch.

    Either the header is incomplete, or it is valid and its records are missing.
    """
    if len(head) >= LENGTH_END:
        length = int.from_bytes(head[_BASE_OFFSET_END:LENGTH_END], "big", signed=True)
        if length < HEADER_SIZE - LENGTH_END:
            return False
    return len(head) <= _MAGIC_AT or head[_MAGIC_AT] == MAGIC
