"""Lag: how far a group is behind the end of what it reads, and since when.

Invariant: a partition that a member has and in which nothing was committed has no lag: nobody
knows where its reading begins. Lag counts offsets. Since when is the time of the first record that
was not read, as that record tells it; None when nothing is left to be read or nobody knows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.client.admin.group_descriptions import MemberDescription
from ottla.client.admin.group_offsets import CommittedOffset
from ottla.client.partitions import Partition


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """A partition that a group reads, or has read."""

    partition: Partition
    committed: CommittedOffset | None
    start: int | None
    """The first offset that there is; None when the partition does not tell."""

    end: int | None
    member: MemberDescription | None
    """Who has it; None when nobody has."""

    since_ms: int | None = None

    @property
    def lag(self) -> int | None:
        """How many offsets are left to be read."""
        if self.committed is None or self.end is None:
            return None
        return self.end - self.committed.offset


def partition_lags(
    members: Iterable[MemberDescription],
    committed: Mapping[Partition, CommittedOffset | None],
    starts: Mapping[Partition, int | None],
    ends: Mapping[Partition, int | None],
) -> list[PartitionLag]:
    """What members have, the busiest first, and then what nobody has."""

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
    """The offset of the first record that was not read, where there is one."""
    found: dict[Partition, int] = {}
    for one in given:
        if one.committed is not None and one.lag is not None and one.lag > 0:
            # What was deleted unread cannot be looked at.
            found[one.partition] = max(one.committed.offset, one.start or 0)
    return found


def total(given: Sequence[PartitionLag]) -> int | None:
    """The lag of all; None when it is known of none."""
    known = [one.lag for one in given if one.lag is not None]
    return sum(known) if known else None


def earliest(given: Iterable[PartitionLag]) -> int | None:
    """Since when the first of them waits."""
    return min((one.since_ms for one in given if one.since_ms is not None), default=None)
