"""Where reading begins in each partition, and where it stops.

Invariant: a place is one that the partition has: a position before its first record is the first,
one behind its end is the end. What stops at the end stops where the end was when it began.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.cli.offsets.positions import Position, PositionKind
from ottla.cli.records.cells import Taken
from ottla.ids import TopicPartition


def places(
    position: Position,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    at_time: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Where a position is in each partition; `at_time` has the first offset that is as late.

    -10 is ten records before the end, and +10 ten behind the start.
    """
    found: dict[TopicPartition, int] = {}
    for where, start in starts.items():
        end = ends[where]
        match position.kind:
            case PositionKind.START:
                offset = start
            case PositionKind.END:
                offset = end
            case PositionKind.OFFSET:
                offset = position.value
            case PositionKind.SHIFT:
                offset = position.value + (end if position.value < 0 else start)
            case PositionKind.TIME:
                offset = at_time.get(where, end)
        found[where] = max(start, min(offset, end))
    return found


@dataclass(slots=True)
class Limits:
    """How much more is read: at most so many records, and of each partition up to its end."""

    left: int | None = None
    """None is without an end."""

    ends: dict[TopicPartition, int] | None = None
    """Those that are not reached; None where it does not stop at the end."""

    def rows(self, taken: Taken) -> int:
        """How many of the records that came are wanted; they count from now on."""
        rows = taken.rows
        if self.ends is not None:
            end = self.ends.get(taken.partition, 0)
            if taken.next_offset >= end:
                self.ends.pop(taken.partition, None)
                rows = taken.before(end)
        if self.left is not None:
            rows = min(rows, self.left)
            self.left -= rows
        return rows

    @property
    def is_reached(self) -> bool:
        """Whether nothing more is wanted."""
        return self.left == 0 or self.ends == {}
