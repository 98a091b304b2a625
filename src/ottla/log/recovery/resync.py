"""Finds the first valid batch after damaged bytes (rule C4).

Invariant: a resync point has a valid size, magic and CRC, and its offsets lie within the given
bounds; no batch before it has. The search goes byte by byte, but not further than the next valid
entry of the offset index. So its cost is bounded by the size of the damage.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from ottla.log.disk import File
from ottla.log.segment.index import OffsetPosition
from ottla.records.batch import CRC_END, HEADER_SIZE, MAGIC, BatchHeader, read_header
from ottla.records.errors import CorruptRecords

# Bytes per read: they stay in the processor cache until the CRC is computed.
CHUNK_BYTES: Final = 256 * 1024

_MAGIC_BYTE: Final = bytes([MAGIC])
_MAGIC_AT: Final = 16


class ResyncPoint(NamedTuple):
    """A valid batch and its position."""

    position: int
    header: BatchHeader


class Offsets(NamedTuple):
    """The offsets that a batch may have."""

    first: int
    end: int  # exclusive

    def have(self, header: BatchHeader) -> bool:
        """Whether a batch lies within them."""
        return self.first <= header.base_offset and header.next_offset <= self.end


def valid_batch_at(file: File, position: int, stop: int) -> BatchHeader | None:
    """The header of a batch at a position, if it ends before `stop` and its CRC is right."""
    try:
        header = read_header(file.read(position, HEADER_SIZE))
    except CorruptRecords:
        return None
    end = position + header.size
    if end > stop or crc_of(file, position + CRC_END, end) != header.crc:
        return None
    return header


def crc_of(file: File, position: int, end: int) -> int | None:
    """The CRC of the bytes between two positions, read in chunks; None if there are none."""
    crc: int | None = None
    while position < end:
        piece = file.read(position, min(CHUNK_BYTES, end - position))
        if not piece:
            return None
        crc = crc32c(piece, crc)
        position += len(piece)
    return crc


def find_resync_point(
    file: File, start: int, stop: int, offsets: Offsets, entries: Iterable[OffsetPosition]
) -> ResyncPoint | None:
    """The first valid batch in a range of positions.

    `entries` are index entries with the last offsets of batches; any of them may be wrong.
    """
    following = _first_valid_entry(file, stop, offsets, entries)
    if following is None:
        return _search(file, start, stop, offsets)
    before = Offsets(offsets.first, following.header.base_offset)
    return _search(file, start, following.position, before) or following


def _first_valid_entry(
    file: File, stop: int, offsets: Offsets, entries: Iterable[OffsetPosition]
) -> ResyncPoint | None:
    for entry in entries:
        header = valid_batch_at(file, entry.position, stop)
        if header is not None and header.last_offset == entry.offset and offsets.have(header):
            return ResyncPoint(entry.position, header)
    return None


def _search(file: File, start: int, stop: int, offsets: Offsets) -> ResyncPoint | None:
    """The first valid batch, byte by byte."""
    while stop - start >= HEADER_SIZE:
        chunk = file.read(start, min(CHUNK_BYTES, stop - start))
        for at in _candidates(chunk, offsets):
            header = valid_batch_at(file, start + at, stop)
            if header is not None and offsets.have(header):
                return ResyncPoint(start + at, header)
        if len(chunk) < HEADER_SIZE:
            break
        start += len(chunk) - HEADER_SIZE + 1
    return None


def _candidates(chunk: bytes, offsets: Offsets) -> Iterator[int]:
    """The positions where magic and base offset may be valid, found without a loop over bytes."""
    first, end = offsets.first.to_bytes(8, "big"), offsets.end.to_bytes(8, "big")
    magic_at = chunk.find(_MAGIC_BYTE, _MAGIC_AT)
    while 0 <= magic_at <= len(chunk) - HEADER_SIZE + _MAGIC_AT:
        at = magic_at - _MAGIC_AT
        if first <= chunk[at : at + 8] < end:
            yield at
        magic_at = chunk.find(_MAGIC_BYTE, magic_at + 1)
