"""The input of an assignor: topics, and the subscriptions of the members.

Invariant: the input has only topics with partitions. Its topics and members are in the iteration
order of Java's client, because the results of Java's assignors depend on that order.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.groups.assignors.hash_order import HashOrder, text_hash
from ottla.ids import PartitionIndex, TopicPartition

NO_GENERATION: Final = -1

Assignment = dict[str, tuple[TopicPartition, ...]]
"""Partitions by member id."""


@dataclass(frozen=True, slots=True)
class TopicLayout:
    """Number of partitions of a topic and, if known, the racks of their replicas."""

    partitions: int
    racks: tuple[frozenset[str], ...] = ()

    def racks_of(self, partition: int) -> frozenset[str]:
        """Return the racks of a partition's replicas; empty if unknown."""
        return self.racks[partition] if partition < len(self.racks) else frozenset()


@dataclass(frozen=True, slots=True)
class Subscription:
    """The subscription of one member."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    user_data: bytes | None = None
    group_instance_id: str | None = None
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class AssignmentInput:
    """Topics that exist and have a subscriber, and all members."""

    topics: Mapping[str, TopicLayout]
    members: Mapping[str, Subscription]

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """Return all partitions of a topic, in order."""
        count = self.topics[topic].partitions
        return [TopicPartition(topic, PartitionIndex(index)) for index in range(count)]

    def has(self, partition: TopicPartition) -> bool:
        """Whether a partition exists."""
        layout = self.topics.get(partition.topic)
        return layout is not None and 0 <= partition.partition < layout.partitions


def ask(topics: Mapping[str, TopicLayout], members: Mapping[str, Subscription]) -> AssignmentInput:
    """Put topics and members into Java's order; members are in JoinGroup response order."""
    ordered = {member_id: members[member_id] for member_id in HashOrder(text_hash, members)}
    subscribed = HashOrder(text_hash, (t for each in ordered.values() for t in each.topics))
    existing = (name for name in subscribed if name in topics and topics[name].partitions > 0)
    return AssignmentInput({name: topics[name] for name in HashOrder(text_hash, existing)}, ordered)
