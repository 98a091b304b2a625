"""The plan of a seek: where a group is in partitions, and where it is to go on.

Invariant: a plan changes nothing. Where it leads is between the first record of a partition and
behind its last, but for a group that stays where it is. What it tells to be skipped or read again
counts offsets: of a compacted topic that is the most that it can be.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from ottla.cli.offsets.positions import Position, PositionKind
from ottla.client.partitions import Partition, partition
from ottla.errors import OttlaError

Aim: TypeAlias = Position | None
"""Where to go on; None is to stay, or at the end of what has been committed nowhere."""


class NothingCommitted(OttlaError):
    """To go some records on or back, a group has to be somewhere."""

    def __init__(self, where: Partition) -> None:
        super().__init__(f"the group has no committed offset for {partition(*where)}")
        self.partition = where


class Limit(StrEnum):
    """Why a group goes on elsewhere than was said."""

    START = "start"
    """What was said is before the first record."""

    END = "end"
    """What was said is behind the last record."""

    NO_LATER = "no_later"
    """No record is so late."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a partition holds: the first offset, and the one behind the last."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Move:
    """A group in one partition."""

    partition: Partition
    before: int | None
    """Where it is; None when it has committed nothing."""

    after: int
    bounds: Bounds
    limit: Limit | None = None
    wanted: int | None = None
    """The offset that was said, when a limit is why it is another."""

    @property
    def skipped(self) -> int:
        """How many records it will not read that it would have read."""
        if self.before is None:
            return 0
        return max(0, self.after - max(self.before, self.bounds.start))

    @property
    def again(self) -> int:
        """How many records it will read a second time, of those that there are."""
        return 0 if self.before is None else max(0, min(self.before, self.bounds.end) - self.after)


def planned(
    aims: Mapping[Partition, Aim],
    committed: Mapping[Partition, int | None],
    bounds: Mapping[Partition, Bounds],
    found: Mapping[Partition, int | None],
) -> list[Move]:
    """The moves, in order; `found` are the offsets of the times that are aimed at, if any."""
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
