"""The segments of one log, in offset order.

Invariant: there is at least one segment; the last one is active. Base offsets increase. A segment
has no offset at or above the base offset of the next one.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ottla.ids import Offset
from ottla.log.cached_reads import Read
from ottla.log.segment.segment import Extent, Segment
from ottla.log.segment.txn_index import AbortedTransaction


class Found(NamedTuple):
    """An extent and the segment that has it."""

    segment: Segment
    extent: Extent
    upper: int  # an upper bound for their offsets, as low as is cheap to find


class Segments:
    """A sorted list of segments."""

    __slots__ = ("_bases", "_list", "active")

    def __init__(self, segments: Iterable[Segment]) -> None:
        self._list = list(segments)
        self._bases = [segment.base_offset for segment in self._list]
        assert self._bases == sorted(set(self._bases))
        self.active = self._list[-1]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._list)

    def __len__(self) -> int:
        return len(self._list)

    @property
    def first(self) -> Segment:
        """The segment with the lowest offsets."""
        return self._list[0]

    @property
    def size(self) -> int:
        """The total size of the records files."""
        return sum(segment.size for segment in self._list)

    def add(self, segment: Segment) -> None:
        """Add a segment and make it active."""
        assert segment.base_offset > self.active.base_offset
        self._list.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def with_end_offsets(self, log_end_offset: Offset) -> Iterable[tuple[Segment, Offset]]:
        """Each segment with the base offset of the next one; the last with the log end offset."""
        return zip(self._list, [*self._bases[1:], log_end_offset], strict=True)

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment that may hold an offset, or the first one, and all after it."""
        return self._list[max(bisect_right(self._bases, offset) - 1, 0) :]

    def remove_first(self, count: int) -> list[Segment]:
        """Remove the first segments; never the active one."""
        assert count < len(self._list)
        removed = self._list[:count]
        del self._list[:count], self._bases[:count]
        return removed

    def remove_after(self, segment: Segment) -> list[Segment]:
        """Remove all segments after one, which becomes active."""
        at = bisect_right(self._bases, segment.base_offset)
        removed = self._list[at:]
        del self._list[at:], self._bases[at:]
        self.active = segment
        return removed

    def at_bases(self, bases: Iterable[int]) -> list[Segment]:
        """The segments with these base offsets, as far as they exist; never the active one."""
        wanted = set(bases)
        return [segment for segment in self._list[:-1] if segment.base_offset in wanted]

    def replace(self, replaced: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Replace neighbouring segments by others that start at the same offset."""
        at = self._list.index(replaced[0])
        assert self._list[at : at + len(replaced)] == list(replaced)
        assert new[0].base_offset == replaced[0].base_offset
        self._list[at : at + len(replaced)] = new
        self._bases[at : at + len(replaced)] = [segment.base_offset for segment in new]

    def replace_active(self, segment: Segment) -> None:
        """Replace an empty active segment by one that starts later."""
        assert not self.active.size
        self._list[-1] = self.active = segment
        self._bases[-1] = segment.base_offset

    def extent(self, offset: int, upper: int, bytes_max: int, read: Read) -> Found | None:
        """The batches of one segment that answer a fetch.

        If compaction removed everything from the offset on in a segment, the next segment answers.
        """
        for number in range(max(bisect_right(self._bases, offset) - 1, 0), len(self._list)):
            segment = self._list[number]
            if segment.base_offset >= upper:
                return None
            last = number + 1 == len(self._list)
            # If the next segment starts below the upper bound, the bound does not apply here.
            bound = None if not last and self._bases[number + 1] <= upper else upper
            next_base = None if last else self._bases[number + 1]
            extent = segment.extent(offset, bound, bytes_max, read, next_base)
            if extent is not None:
                if not last:
                    upper = min(upper, self._bases[number + 1])
                if extent.next_offset is not None:
                    return Found(segment, extent, min(upper, extent.next_offset))
                return Found(segment, extent, segment.offset_bound(extent, upper, read))
        return None

    def aborted(self, fetch_offset: int, upper: int) -> list[AbortedTransaction]:
        """The aborted transactions with records between two offsets."""
        found: list[AbortedTransaction] = []
        for segment in self.from_offset(fetch_offset):
            overlap = segment.txn_index.overlapping(fetch_offset, upper)
            found += overlap.transactions
            if overlap.complete:
                break
        return found
