"""Racks of members and partitions, and whether they matter for an assignment.

Invariant: racks matter only if a member is on the rack of a replica and not all partitions have
replicas on the same racks. Otherwise no member mismatches any partition.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ottla.groups.assignors.subscription import AssignmentInput
from ottla.ids import TopicPartition


def racks_count(member_racks: Collection[str], partition_racks: Collection[frozenset[str]]) -> bool:
    """Whether an assignment should consider racks."""
    everywhere = frozenset[str]().union(*partition_racks)
    if everywhere.isdisjoint(member_racks):
        return False
    return any(racks != everywhere for racks in partition_racks)


@dataclass(frozen=True, slots=True)
class Racks:
    """The racks of members and partitions; empty if racks do not matter."""

    of_member: Mapping[str, str]
    of_partition: Mapping[TopicPartition, frozenset[str]]
    members_near: Mapping[TopicPartition, int]
    """Number of members on a rack of the partition."""

    def mismatch(self, member_id: str, partition: TopicPartition) -> bool:
        """Whether a member has a rack on which the partition has no replica."""
        rack = self.of_member.get(member_id)
        return rack is not None and rack not in self.of_partition.get(partition, ())

    def near(self, member_id: str, partition: TopicPartition) -> bool:
        """Whether a member has a rack on which the partition has a replica."""
        rack = self.of_member.get(member_id)
        return rack is not None and rack in self.of_partition.get(partition, ())

    def next_near(
        self, partition: TopicPartition, member_ids: Sequence[str], first: int
    ) -> int | None:
        """Return the index of the next member on a rack of a partition, from `first` and around."""
        for index in (*range(first, len(member_ids)), *range(first)):
            if self.near(member_ids[index], partition):
                return index
        return None


def racks_of(question: AssignmentInput) -> Racks:
    """Return the racks of the members and topics of an assignment."""
    of_member = {key: each.rack for key, each in question.members.items() if each.rack}
    if not of_member:
        return Racks({}, {}, {})
    of_partition = {
        partition: layout.racks_of(partition.partition)
        for topic, layout in question.topics.items()
        for partition in question.partitions_of(topic)
    }
    if not racks_count(of_member.values(), of_partition.values()):
        return Racks({}, {}, {})
    members_on = Counter(of_member.values())
    members_near = {
        partition: sum(members_on[rack] for rack in racks)
        for partition, racks in of_partition.items()
    }
    return Racks(of_member, of_partition, members_near)
