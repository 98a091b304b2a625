"""Sticky assignment for equal subscriptions: every member has a quota.

Invariant: a member gets the number of partitions divided by the number of members, rounded down, or
one more; the remainder decides how many get one more. A member keeps its partitions up to the quota
and as far as racks allow. A partition that had another owner, or was disputed, is recorded as
transferred.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from ottla.groups.assignors.hash_order import text_order
from ottla.groups.assignors.previous_owners import PreviousOwners
from ottla.groups.assignors.racks import Racks
from ottla.groups.assignors.subscription import AssignmentInput
from ottla.ids import TopicPartition


class ConstrainedAssignment:
    """Computes one assignment."""

    def __init__(self, question: AssignmentInput, holdings: PreviousOwners, racks: Racks) -> None:
        self.assigned: Final[dict[str, list[TopicPartition]]] = {m: [] for m in question.members}
        self.transferred: Final[dict[TopicPartition, str]] = {}
        self._question = question
        self._previous_owners = holdings
        self._racks = racks
        self._given_up: dict[TopicPartition, str] = {}
        total = sum(layout.partitions for layout in question.topics.values())
        self._quota, self._extras = divmod(total, len(question.members))
        self._with_extra = 0
        self._below: list[str] = []  # members below the quota
        self._at_quota: list[str] = []  # members that may get one more
        self._turn = 0  # index of the next member below the quota, for rack-aware assignment

    def fill(self) -> None:
        """Keep owned partitions, then assign the rest: first rack-aware, then without racks."""
        for member_id, held in self._previous_owners.of_member.items():
            self._keep(member_id, held)
        self._below.sort(key=text_order)
        self._at_quota.sort(key=text_order)
        left = self._unassigned()
        if self._racks.of_member:
            left.sort(key=lambda partition: self._racks.members_near[partition])
            left = [partition for partition in left if not self._give_near(partition)]
        self._deal(left)

    @property
    def _extras_left(self) -> bool:
        return self._with_extra < self._extras

    def _keep(self, member_id: str, held: Iterable[TopicPartition]) -> None:
        """Let a member keep its partitions up to its quota."""
        kept: list[TopicPartition] = []
        for partition in held:
            if self._racks.mismatch(member_id, partition):
                self._given_up[partition] = member_id
            elif partition not in self._previous_owners.disputed:
                kept.append(partition)
        kept.sort(key=lambda partition: (partition.partition, text_order(partition.topic)))
        size = self._quota
        if len(kept) < size:
            self._below.append(member_id)
        elif len(kept) > size and self._extras_left:
            size += 1
            self._count_extra()
        elif self._extras_left:
            self._at_quota.append(member_id)
        self.assigned[member_id] += kept[:size]
        self._given_up.update(dict.fromkeys(kept[size:], member_id))

    def _count_extra(self) -> None:
        self._with_extra += 1
        if not self._extras_left:
            self._at_quota.clear()

    def _unassigned(self) -> list[TopicPartition]:
        taken = {partition for each in self.assigned.values() for partition in each}
        return [
            partition
            for topic in sorted(self._question.topics, key=text_order)
            for partition in self._question.partitions_of(topic)
            if partition not in taken
        ]

    def _give(self, partition: TopicPartition, member_id: str) -> int:
        """Assign a partition to a member that did not keep it; return the member's new count."""
        self.assigned[member_id].append(partition)
        before = self._given_up.get(partition, member_id)
        if before != member_id or partition in self._previous_owners.disputed:
            self.transferred[partition] = member_id
        return len(self.assigned[member_id])

    # Rack-aware: members below the quota in turn, then the first that may have one more.

    def _give_near(self, partition: TopicPartition) -> bool:
        return self._give_near_below(partition) or self._give_near_extra(partition)

    def _give_near_below(self, partition: TopicPartition) -> bool:
        index = self._racks.next_near(partition, self._below, self._turn)
        if index is None:
            return False
        member_id = self._below[index]
        if self._give(partition, member_id) < self._quota:
            index += 1
        else:
            del self._below[index]
            if self._extras_left:
                self._at_quota.append(member_id)
        self._turn = index % len(self._below) if self._below else 0
        return True

    def _give_near_extra(self, partition: TopicPartition) -> bool:
        index = self._racks.next_near(partition, self._at_quota, 0)
        if index is None:
            return False
        self._give(partition, self._at_quota.pop(index))
        self._count_extra()
        return True

    # Without racks.

    def _deal(self, left: Iterable[TopicPartition]) -> None:
        """Assign round-robin to members below the quota, then one more to each that may have it."""
        below = deque(self._below)
        for partition in left:
            if not below:
                self._give(partition, self._at_quota.pop(0))
                continue
            member_id = below.popleft()
            if self._give(partition, member_id) < self._quota:
                below.append(member_id)
            else:
                self._at_quota.append(member_id)
