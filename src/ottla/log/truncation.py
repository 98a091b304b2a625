"""Where a segment ends when its log is cut at an offset.

Invariant: a cut lies behind the last batch that is left. The one that holds the offset goes as a
whole, and what compaction took before it leaves nothing there to tell of it: so the log ends at
that offset or before it, and where it would end if it were opened again.
"""

from typing import NamedTuple

from ottla.ids import Offset
from ottla.log.batch_headers import LocatedHeader
from ottla.log.reading import Read
from ottla.log.segment import Indexes, Segment


class TruncationPoint(NamedTuple):
    """Where a segment is to end."""

    position: int
    end_offset: Offset
    tail: list[LocatedHeader]  # the batches that stay behind the last index entry that stays
    first_timestamp: int | None
    indexes: Indexes  # of the segment as it was, in memory


def truncation_point(segment: Segment, offset: int, read: Read) -> TruncationPoint:
    """The end of the last batch that lies below an offset."""
    position = segment.locate(offset, read)
    if position is None:
        position = segment.size
    first = segment.read_first_timestamp(read) if position else None
    tail = list(segment.heads_for(offset - 1, position, read)) if position else []
    end_offset = tail[-1].last_offset + 1 if tail else segment.base_offset
    return TruncationPoint(position, Offset(end_offset), tail, first, segment.loaded_indexes(read))
