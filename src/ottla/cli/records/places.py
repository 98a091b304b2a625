"""Start and end offsets of reading.

Invariant: a start is within its partition: a position before the first record is the first record,
one after the end is the end. The end is the one at the start of reading.
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
    """Return the start offset per partition; `at_time` has the offsets of a time.

    -10 is ten records before the end, +10 ten after the start.
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
    """What is left to read: a number of records, and the end of each partition."""

    left: int | None = None
    """None for unlimited."""

    ends: dict[TopicPartition, int] | None = None
    """Ends not reached yet; None if reading does not stop at the end."""

    def rows(self, taken: Taken) -> int:
        """Return how many of the arrived records are wanted, and count them."""
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
