"""Where a segment ends when its log is cut at an offset.

Invariant: a cut lies between batches. The one that holds the offset goes as a whole, so the log
ends at that offset or before it.
"""

from typing import NamedTuple

from ottla.ids import Offset
from ottla.log.heads import Head
from ottla.log.reading import Read
from ottla.log.segment import Indexes, Segment


class Cut(NamedTuple):
    """Where a segment is to end."""

    position: int
    end_offset: Offset
    tail: list[Head]  # the batches that stay behind the last index entry that stays
    first_timestamp: int | None
    indexes: Indexes  # of the segment as it was, in memory


def place_of_cut(segment: Segment, offset: int, read: Read) -> Cut:
    """The end of the last batch that lies below an offset."""
    position = segment.locate(offset, read)
    end_offset = offset
    if position is None:
        position = segment.size
    else:
        end_offset = min(offset, next(segment.heads(position, segment.size, read)).base_offset)
    first = segment.read_first_timestamp(read) if position else None
    heads = segment.heads_for(end_offset - 1, position, read)
    tail = [head for head in heads if head.base_offset < end_offset]
    return Cut(position, Offset(end_offset), tail, first, segment.loaded_indexes(read))
