"""Lag of a group per partition, and since when.

Invariant: an assigned partition without a committed offset has no lag. Lag counts offsets. `since`
is the timestamp of the first unread record; None if nothing is unread or it is unknown.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.client.admin.group_descriptions import MemberDescription
from ottla.client.admin.group_offsets import CommittedOffset
from ottla.client.partitions import Partition


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """A partition that a group reads or has read."""

    partition: Partition
    committed: CommittedOffset | None
    start: int | None
    """The first offset; None if unknown."""

    end: int | None
    member: MemberDescription | None
    """The member it is assigned to; None if unassigned."""

    since_ms: int | None = None

    @property
    def lag(self) -> int | None:
        """The number of unread offsets."""
        if self.committed is None or self.end is None:
            return None
        return self.end - self.committed.offset


def partition_lags(
    members: Iterable[MemberDescription],
    committed: Mapping[Partition, CommittedOffset | None],
    starts: Mapping[Partition, int | None],
    ends: Mapping[Partition, int | None],
) -> list[PartitionLag]:
    """Return the partitions of members, then the unassigned ones."""

    def reading(where: Partition, member: MemberDescription | None) -> PartitionLag:
        told = committed.get(where)
        return PartitionLag(where, told, starts.get(where), ends.get(where), member)

    busy = sorted(members, key=lambda one: -len(one.assignment))
    assigned = {where for one in busy for where in one.assignment}
    rest = sorted({where for where, told in committed.items() if told is not None} - assigned)
    return [
        *(reading(where, one) for one in busy for where in sorted(one.assignment)),
        *(reading(where, None) for where in rest),
    ]


def first_unread(given: Iterable[PartitionLag]) -> dict[Partition, int]:
    """Return the offset of the first unread record per partition."""
    found: dict[Partition, int] = {}
    for one in given:
        if one.committed is not None and one.lag is not None and one.lag > 0:
            # Records deleted unread cannot be looked up.
            found[one.partition] = max(one.committed.offset, one.start or 0)
    return found


def total(given: Sequence[PartitionLag]) -> int | None:
    """Return the total lag; None if no lag is known."""
    known = [one.lag for one in given if one.lag is not None]
    return sum(known) if known else None


def earliest(given: Iterable[PartitionLag]) -> int | None:
    """Return the earliest `since`."""
    return min((one.since_ms for one in given if one.since_ms is not None), default=None)
