"""What an assignor is asked: the topics, and what each member of the group tells of itself.

Invariant: a question has topics with partitions alone, and both its topics and its members stand
in the order in which Java's client iterates over them. The results of Java's assignors depend on
that order, so ours start from the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.groups.assignors.hash_order import HashOrder, text_hash
from ottla.ids import PartitionIndex, TopicPartition

NO_GENERATION: Final = -1

Assignment = dict[str, tuple[TopicPartition, ...]]
"""What each member gets, by its id."""


@dataclass(frozen=True, slots=True)
class TopicLayout:
    """How many partitions a topic has and, if known, on which racks each has replicas."""

    partitions: int
    racks: tuple[frozenset[str], ...] = ()

    def racks_of(self, partition: int) -> frozenset[str]:
        """Where a partition has replicas; empty if that is not known."""
        return self.racks[partition] if partition < len(self.racks) else frozenset()


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one member tells the leader of its group."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    user_data: bytes | None = None
    group_instance_id: str | None = None
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class AssignmentInput:
    """Topics that somebody subscribed to and that exist, and all members."""

    topics: Mapping[str, TopicLayout]
    members: Mapping[str, Subscription]

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic, in their order."""
        count = self.topics[topic].partitions
        return [TopicPartition(topic, PartitionIndex(index)) for index in range(count)]

    def has(self, partition: TopicPartition) -> bool:
        """Tell whether a partition exists."""
        layout = self.topics.get(partition.topic)
        return layout is not None and 0 <= partition.partition < layout.partitions


def ask(topics: Mapping[str, TopicLayout], members: Mapping[str, Subscription]) -> AssignmentInput:
    """Put topics and members into Java's order; members come in that of JoinGroup's answer."""
    ordered = {member_id: members[member_id] for member_id in HashOrder(text_hash, members)}
    subscribed = HashOrder(text_hash, (t for each in ordered.values() for t in each.topics))
    existing = (name for name in subscribed if name in topics and topics[name].partitions > 0)
    return AssignmentInput({name: topics[name] for name in HashOrder(text_hash, existing)}, ordered)
