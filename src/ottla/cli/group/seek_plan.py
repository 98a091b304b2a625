"""The plan of a seek: present and new offsets of a group.

Invariant: planning changes nothing. A new offset is between the first record and the end of its
partition, unless the group stays. Skipped and repeated records are counted in offsets, an upper
bound for a compacted topic.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from ottla.cli.offsets.positions import Position, PositionKind
from ottla.client.partitions import Partition, partition
from ottla.errors import OttlaError

Aim: TypeAlias = Position | None
"""The new position; None to stay, or the end without a committed offset."""


class NothingCommitted(OttlaError):
    """A relative move needs a committed offset."""

    def __init__(self, where: Partition) -> None:
        super().__init__(f"the group has no committed offset for {partition(*where)}")
        self.partition = where


class Limit(StrEnum):
    """Why the new offset differs from the requested one."""

    START = "start"
    """The requested offset is before the first record."""

    END = "end"
    """The requested offset is after the last record."""

    NO_LATER = "no_later"
    """No record is that late."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The first offset of a partition and the offset after the last."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Move:
    """The move of a group in one partition."""

    partition: Partition
    before: int | None
    """The present offset; None without a committed one."""

    after: int
    bounds: Bounds
    limit: Limit | None = None
    wanted: int | None = None
    """The requested offset, if a limit changed it."""

    @property
    def skipped(self) -> int:
        """The number of records that will be skipped."""
        if self.before is None:
            return 0
        return max(0, self.after - max(self.before, self.bounds.start))

    @property
    def again(self) -> int:
        """The number of existing records that will be read again."""
        return 0 if self.before is None else max(0, min(self.before, self.bounds.end) - self.after)


def planned(
    aims: Mapping[Partition, Aim],
    committed: Mapping[Partition, int | None],
    bounds: Mapping[Partition, Bounds],
    found: Mapping[Partition, int | None],
) -> list[Move]:
    """Return the moves in order; `found` has the offsets of requested times."""
    return [
        _move(where, aims[where], committed.get(where), bounds[where], found.get(where))
        for where in sorted(aims)
    ]


def _move(
    where: Partition, aim: Aim, before: int | None, bounds: Bounds, found: int | None
) -> Move:
    if aim is None:
        return Move(where, before, bounds.end if before is None else before, bounds)
    match aim.kind:
        case PositionKind.START:
            return Move(where, before, bounds.start, bounds)
        case PositionKind.END:
            return Move(where, before, bounds.end, bounds)
        case PositionKind.TIME:
            if found is None:
                return Move(where, before, bounds.end, bounds, Limit.NO_LATER)
            wanted = found
        case PositionKind.OFFSET:
            wanted = aim.value
        case PositionKind.SHIFT:
            if before is None:
                raise NothingCommitted(where)
            wanted = before + aim.value
    if wanted > bounds.end:
        return Move(where, before, bounds.end, bounds, Limit.END, wanted)
    if wanted < bounds.start:
        return Move(where, before, bounds.start, bounds, Limit.START, wanted)
    return Move(where, before, wanted, bounds)
