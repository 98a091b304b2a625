"""A walk over the batches of a records file, of which it sees the headers.

Invariant: what it yields lies in the order of the file without a byte between, and the offsets
rise. Damage that is known is passed over as one batch; the first place that cannot be a batch ends
the walk with BrokenSegment, and nobody takes what lies there for one (rule C4). No CRC is computed.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from ottla.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, Position
from ottla.log.damage import Damage, damage_from
from ottla.log.disk import File
from ottla.log.reading import Read
from ottla.records.batch import HEADER_SIZE, LENGTH_END, MAGIC, NO_TIMESTAMP
from ottla.records.errors import CorruptRecords

# As much as is read at once to walk over headers: more than lies between two index entries.
WALK_BYTES: Final = 16 * 1024

# Base offset, length, leader epoch, magic, last offset delta and largest timestamp of a batch.
_HEAD: Final = Struct(">qiib6xi8xq")


class BrokenSegment(CorruptRecords):
    """The batches of a segment cannot be walked: it has to be examined."""

    def __init__(self, base_offset: Offset, problem: str) -> None:
        super().__init__(problem)
        self.base_offset = base_offset


class LocatedHeader(NamedTuple):
    """What the log needs of a batch without reading its records."""

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
    """The batches of a segment between two positions, by few reads."""
    damages = damage_from(damaged, position) if damaged else []
    if damages:
        position = min(position, damages[0].position)
    chunk, chunk_at, expected = b"", position, base_offset
    while True:
        if damages and damages[0].position == position and (position < end or not damages[0].size):
            head = _damaged_head(damages.pop(0))
        elif position < end:
            at = position - chunk_at
            if at + HEADER_SIZE > len(chunk):
                chunk, chunk_at, at = read(file, position, WALK_BYTES), position, 0
            head = _head(chunk, at, position)
            if (
                head is None
                or position + head.size > end
                or not expected <= head.base_offset <= head.last_offset <= offset_max
            ):
                raise BrokenSegment(base_offset, f"{file.path}: no batch at position {position}")
        else:
            return
        yield head
        position += head.size
        expected = Offset(head.last_offset + 1)


def vouched(
    found: Iterator[LocatedHeader], offset: int, base_offset: Offset, path: str
) -> Iterator[LocatedHeader]:
    """Batches from a place on that an index named for an offset, if nothing before it is missed.

    One bit that fell over in an index would skip records, or leave some behind a cut.
    """
    first = next(found, None)
    if first is None or first.base_offset > offset:
        raise BrokenSegment(base_offset, f"{path}: its index is wrong about offset {offset}")
    yield first
    yield from found


def _head(chunk: bytes, at: int, position: int) -> LocatedHeader | None:
    if len(chunk) - at < HEADER_SIZE:
        return None
    base_offset, length, epoch, magic, last_delta, timestamp = _HEAD.unpack_from(chunk, at)
    size = LENGTH_END + length
    if size < HEADER_SIZE or magic != MAGIC:
        return None
    last_offset = Offset(base_offset + last_delta)
    return LocatedHeader(Position(position), base_offset, last_offset, size, epoch, timestamp)


def _damaged_head(damage: Damage) -> LocatedHeader:
    """Without time and epoch, so that it answers no question but where an offset is."""
    first, last = damage.first_offset, Offset(damage.end_offset - 1)
    position = Position(damage.position)
    return LocatedHeader(position, first, last, damage.size, NO_LEADER_EPOCH, NO_TIMESTAMP)
