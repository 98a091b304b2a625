"""A walk over the batch headers of a records file.

Invariant: headers come in file order without a gap between batches, and offsets increase. A known
damaged range is returned as one batch. At the first position that cannot be a batch the walk raises
BrokenSegment (rule C4). No CRC is computed.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from ottla.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, Position
from ottla.log.cached_reads import Read
from ottla.log.damage import Damage, damage_from
from ottla.log.disk import File
from ottla.protocol.primitives import Buffer
from ottla.records.batch import HEADER_SIZE, LENGTH_END, MAGIC, NO_TIMESTAMP
from ottla.records.errors import CorruptRecords

# Bytes per read while walking headers: more than the distance between two index entries.
WALK_BYTES: Final = 16 * 1024

# Base offset, length, leader epoch, magic, last offset delta and max timestamp of a batch.
_HEAD: Final = Struct(">qiib6xi8xq")


class BrokenSegment(CorruptRecords):
    """The batches of a segment cannot be walked: the segment must be scanned."""

    def __init__(self, base_offset: Offset, problem: str) -> None:
        super().__init__(problem)
        self.base_offset = base_offset


class LocatedHeader(NamedTuple):
    """The fields of a batch header that the log needs, with the position of the batch."""

    position: Position
    base_offset: Offset
    last_offset: Offset
    size: int
    leader_epoch: LeaderEpoch
    max_timestamp: int


def located_headers(
    file: File,
    position: int,
    end: int,
    read: Read,
    *,
    base_offset: Offset,
    offset_max: int,
    damaged: Sequence[Damage],
) -> Iterator[LocatedHeader]:
    """The batch headers of a segment between two positions, with few reads."""
    damages = damage_from(damaged, position) if damaged else []
    if damages:
        position = min(position, damages[0].position)
    chunk: Buffer = b""
    chunk_at, expected = position, base_offset
    while True:
        if damages and damages[0].position == position and (position < end or not damages[0].size):
            header = _damaged_header(damages.pop(0))
        elif position < end:
            at = position - chunk_at
            if at + HEADER_SIZE > len(chunk):
                chunk, chunk_at, at = read(file, position, WALK_BYTES), position, 0
            header = _parse_header(chunk, at, position)
            if (
                header is None
                or position + header.size > end
                or not expected <= header.base_offset <= header.last_offset <= offset_max
            ):
                raise BrokenSegment(base_offset, f"{file.path}: no batch at position {position}")
        else:
            return
        yield header
        position += header.size
        expected = Offset(header.last_offset + 1)


def verified_start(
    found: Iterator[LocatedHeader], offset: int, base_offset: Offset, path: str
) -> Iterator[LocatedHeader]:
    """Headers from the position of an index entry on, if none of its batches is skipped.

    A flipped bit in an index would otherwise skip records, or keep some after a truncation. The
    entry has the last offset of a batch. If no batch has it, a base offset is damaged, which no CRC
    covers.
    """
    is_empty = True
    for one in found:
        if one.base_offset > offset:
            raise BrokenSegment(
                base_offset,
                f"{path}: the offset index has a wrong position for offset {offset}, or the base "
                f"offset before position {one.position} is damaged",
            )
        is_empty = False
        yield one
        if one.last_offset >= offset:
            break
    if is_empty:
        raise BrokenSegment(
            base_offset, f"{path}: the offset index has a wrong position for offset {offset}"
        )
    yield from found


def batch_over(
    chunk: Buffer, position: int, last_offset: int, wanted: int, end: int, offset_max: int
) -> LocatedHeader | None:
    """The first batch in a chunk that ends after the position `wanted`, but not after `end`.

    The chunk begins at a position with a batch that ends with `last_offset`, as an index entry
    says. None if the chunk is too short, or the walk over its headers has to judge it.
    """
    at, expected = 0, last_offset
    limit = len(chunk) - HEADER_SIZE
    while at <= limit:
        base_offset, length, epoch, magic, last_delta, timestamp = _HEAD.unpack_from(chunk, at)
        size = LENGTH_END + length
        last = base_offset + last_delta
        if (
            size < HEADER_SIZE
            or magic != MAGIC
            or not base_offset <= last <= offset_max
            or position + at + size > end
            or (base_offset < expected if at else last != expected)
        ):
            return None
        if position + at + size > wanted:
            return LocatedHeader(
                Position(position + at), base_offset, Offset(last), size, epoch, timestamp
            )
        at += size
        expected = last + 1
    return None


def _parse_header(chunk: Buffer, at: int, position: int) -> LocatedHeader | None:
    if len(chunk) - at < HEADER_SIZE:
        return None
    base_offset, length, epoch, magic, last_delta, timestamp = _HEAD.unpack_from(chunk, at)
    size = LENGTH_END + length
    if size < HEADER_SIZE or magic != MAGIC:
        return None
    last_offset = Offset(base_offset + last_delta)
    return LocatedHeader(Position(position), base_offset, last_offset, size, epoch, timestamp)


def _damaged_header(damage: Damage) -> LocatedHeader:
    """A header without timestamp and epoch: it only tells where the damaged offsets are."""
    first, last = damage.first_offset, Offset(damage.end_offset - 1)
    position = Position(damage.position)
    return LocatedHeader(position, first, last, damage.size, NO_LEADER_EPOCH, NO_TIMESTAMP)
