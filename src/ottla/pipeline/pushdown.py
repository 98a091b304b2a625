"""Pushdown: what of a batch is wanted at most.

Invariant: narrowing leaves out what surely is not wanted, and nothing else. Times of records follow
no order, so that only a time from which on records are wanted tells anything: what lies before the
first record that is so new is older throughout.
"""

from dataclasses import dataclass, replace

from ottla.ids import TopicPartition
from ottla.pipeline.offsets import Offsets
from ottla.pipeline.plan import Range


@dataclass(frozen=True, slots=True)
class Pushdown:
    """Partitions, offsets and times that are wanted; all are when nothing is said."""

    partitions: frozenset[int] | None = None
    first_offset: int = 0
    last_offset: int | None = None
    from_ms: int | None = None

    def among(self, wanted: set[int]) -> "Pushdown":
        """These partitions alone."""
        among = wanted if self.partitions is None else wanted & self.partitions
        return replace(self, partitions=frozenset(among))

    def offsets_from(self, offset: int) -> "Pushdown":
        """Nothing before an offset."""
        return replace(self, first_offset=max(self.first_offset, offset))

    def offsets_until(self, offset: int) -> "Pushdown":
        """Nothing behind an offset."""
        last = offset if self.last_offset is None else min(self.last_offset, offset)
        return replace(self, last_offset=last)

    def since(self, time_ms: int) -> "Pushdown":
        """Nothing that is older; a time before 1970 says nothing.

        Records without a time have -1, and brokers do not look for times below 0.
        """
        if time_ms < 0:
            return self
        return replace(self, from_ms=max(time_ms, self.from_ms or 0))

    def has(self, partition: TopicPartition) -> bool:
        """Whether something of a partition is wanted."""
        return self.partitions is None or partition.partition in self.partitions

    def of(self, whole: Range, first: Offsets) -> Range:
        """What of a range is wanted; `first` is where records begin that are new enough."""
        start = max(whole.start, self.first_offset, first.get(whole.partition, 0))
        end = whole.end if self.last_offset is None else min(whole.end, self.last_offset + 1)
        return Range(whole.partition, start, max(start, end))
