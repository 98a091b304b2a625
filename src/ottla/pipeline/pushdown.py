"""The part of a batch that pushed filters leave: partitions, offsets and a time.

Invariant: only records that cannot match are left out. Timestamps are not ordered within a
partition, so that only a lower bound helps: every record before the first one at or after that time
is older.
"""

from dataclasses import dataclass, replace

from ottla.ids import TopicPartition
from ottla.pipeline.offset_ranges import OffsetRange
from ottla.pipeline.offsets import Offsets


@dataclass(frozen=True, slots=True)
class Pushdown:
    """The wanted partitions, offsets and times; by default all."""

    partitions: frozenset[int] | None = None
    first_offset: int = 0
    last_offset: int | None = None
    from_ms: int | None = None

    def among(self, wanted: set[int]) -> "Pushdown":
        """Keep only these partitions."""
        among = wanted if self.partitions is None else wanted & self.partitions
        return replace(self, partitions=frozenset(among))

    def offsets_from(self, offset: int) -> "Pushdown":
        """Drop records below an offset."""
        return replace(self, first_offset=max(self.first_offset, offset))

    def offsets_until(self, offset: int) -> "Pushdown":
        """Drop records above an offset."""
        last = offset if self.last_offset is None else min(self.last_offset, offset)
        return replace(self, last_offset=last)

    def since(self, time_ms: int) -> "Pushdown":
        """Drop records before a time; a time before 1970 has no effect.

        Records without a timestamp have -1, and brokers do not look up timestamps below 0.
        """
        if time_ms < 0:
            return self
        return replace(self, from_ms=max(time_ms, self.from_ms or 0))

    def includes(self, partition: TopicPartition) -> bool:
        """Return whether records of a partition are wanted."""
        return self.partitions is None or partition.partition in self.partitions

    def narrowed(self, whole: OffsetRange, first: Offsets) -> OffsetRange:
        """Return the wanted part of a range; `first` is the offset of `from_ms` by partition."""
        start = max(whole.start, self.first_offset, first.get(whole.partition, 0))
        end = whole.end if self.last_offset is None else min(whole.end, self.last_offset + 1)
        return OffsetRange(whole.partition, start, max(start, end))
