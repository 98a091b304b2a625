"""Partition moves between members while an assignment is balanced.

Invariant: a partition has at most one movement, from its first owner to its current one; a
partition that moved back has none. So two partitions of a topic never swap places needlessly.
"""

from ottla.groups.assignors.hash_order import HashOrder, partition_hash
from ottla.ids import TopicPartition


class Movements:
    """The movements so far."""

    def __init__(self) -> None:
        self._ends: dict[TopicPartition, tuple[str, str]] = {}
        self._moved: dict[tuple[str, str, str], HashOrder[TopicPartition]] = {}

    def note(self, partition: TopicPartition, giver: str, taker: str) -> None:
        """Record a move."""
        ends = self._ends.pop(partition, None)
        if ends is not None:
            giver = ends[0]
            key = (partition.topic, *ends)
            self._moved[key].discard(partition)
            if not self._moved[key]:
                del self._moved[key]
            if giver == taker:
                return
        self._ends[partition] = (giver, taker)
        key = (partition.topic, giver, taker)
        if key not in self._moved:
            self._moved[key] = HashOrder(partition_hash)
        self._moved[key].add(partition)

    def better(self, partition: TopicPartition, giver: str, taker: str) -> TopicPartition:
        """Return the partition to move: preferably one that moved the opposite way before."""
        first, _ = self._ends.get(partition, (giver, taker))
        came = self._moved.get((partition.topic, taker, first))
        return partition if came is None else next(iter(came))
