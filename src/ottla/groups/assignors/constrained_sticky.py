"""A sticky assignment where all members subscribe to the same topics: everybody has a quota.

Invariant: a member gets the partitions divided by the members, rounded down, or one more; exactly
as many get one more as it takes. What a member held it keeps, up to its quota and as far as racks
allow. A partition that somebody else held before, or that was disputed, is noted as transferred.
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
    """One assignment in the making."""

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
        self._below: list[str] = []  # Members with less than the quota.
        self._at_quota: list[str] = []  # Members that may get the one more.
        self._turn = 0  # Whose turn it is of those below the quota, where racks count.

    def fill(self) -> None:
        """Keep what was held, then deal out the rest: near to its reader first, then anyhow."""
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
        """Let a member keep what it held, up to its quota."""
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
        """Hand a partition to a member that did not keep it; returns how many it has then."""
        self.assigned[member_id].append(partition)
        before = self._given_up.get(partition, member_id)
        if before != member_id or partition in self._previous_owners.disputed:
            self.transferred[partition] = member_id
        return len(self.assigned[member_id])

    # Near to the reader: who is below the quota takes turns, then the first who may have one more.

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

    # Anyhow.

    def _deal(self, left: Iterable[TopicPartition]) -> None:
        """Deal to who is below the quota in rounds, then one more to each who may have it."""
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
