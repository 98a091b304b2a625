"""Whether racks count in an assignment, and who is near to which partition.

Invariant: racks count only if a member is on the rack of a replica and not all partitions have
replicas on the same racks. Where they do not count, no member is far from any partition.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ottla.groups.assignors.subscription import AssignmentInput
from ottla.ids import TopicPartition


def racks_count(member_racks: Collection[str], partition_racks: Collection[frozenset[str]]) -> bool:
    """Tell whether an assignment gains by looking at racks."""
    everywhere = frozenset[str]().union(*partition_racks)
    if everywhere.isdisjoint(member_racks):
        return False
    return any(racks != everywhere for racks in partition_racks)


@dataclass(frozen=True, slots=True)
class Racks:
    """The racks of members and partitions; all is empty where racks do not count."""

    of_member: Mapping[str, str]
    of_partition: Mapping[TopicPartition, frozenset[str]]
    members_near: Mapping[TopicPartition, int]
    """How many members are on a rack of the partition."""

    def mismatch(self, member_id: str, partition: TopicPartition) -> bool:
        """Tell whether a member has a rack and the partition no replica on it."""
        rack = self.of_member.get(member_id)
        return rack is not None and rack not in self.of_partition.get(partition, ())

    def near(self, member_id: str, partition: TopicPartition) -> bool:
        """Tell whether a member has a rack and the partition a replica on it."""
        rack = self.of_member.get(member_id)
        return rack is not None and rack in self.of_partition.get(partition, ())

    def next_near(
        self, partition: TopicPartition, member_ids: Sequence[str], first: int
    ) -> int | None:
        """The place of the next member near a partition, from the first place on and around."""
        for index in (*range(first, len(member_ids)), *range(first)):
            if self.near(member_ids[index], partition):
                return index
        return None


def racks_of(question: AssignmentInput) -> Racks:
    """What the members and the topics of a question tell about racks."""
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
