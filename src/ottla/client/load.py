"""The load of a producer's partitions: how much waits for each, and whose broker takes nothing.

Invariant: a partition counts as one that may be chosen while it has a leader and that leader has
taken a batch within the time it is given, counted while batches wait for it.
"""

from collections.abc import Callable, Mapping

from ottla.client.cluster_view import ClusterView, TopicView
from ottla.client.partition_queue import PartitionQueue
from ottla.ids import BrokerId, PartitionIndex, TopicPartition

Tell = Callable[[str, Mapping[int, int], int], None]
"""A topic, how many batches wait for each partition that may be chosen, and how many there are."""


class Load:
    """Watches the queues, and tells the partitioner."""

    def __init__(self, tell: Tell, availability_timeout_s: float) -> None:
        """With a time of 0 every broker may be as slow as it likes."""
        self._tell = tell
        self._timeout_s = availability_timeout_s
        self._took_s: dict[BrokerId, float] = {}
        self._asked_s: dict[BrokerId, float] = {}
        self._told: set[str] = set()  # topics of which something was waiting

    def asked(self, broker: BrokerId, now_s: float, *, takes: bool) -> None:
        """Batches are ready for a broker, and it takes some, or it does not."""
        self._asked_s[broker] = now_s
        if takes or broker not in self._took_s:
            self._took_s[broker] = now_s

    def is_slow(self, broker: BrokerId) -> bool:
        """Whether a broker has taken nothing for too long."""
        waited_s = self._asked_s.get(broker, 0.0) - self._took_s.get(broker, 0.0)
        return 0 < self._timeout_s < waited_s

    def look(self, queues: Mapping[TopicPartition, PartitionQueue], view: ClusterView) -> None:
        """Tell of the topics for which something waits, and of those for which nothing does now."""
        loaded = {queue.partition.topic for queue in queues.values() if queue.waiting}
        for topic in loaded | self._told:
            known = view.topics.get(topic)
            if known is not None and len(known.partitions) > 1:
                self._tell(topic, self._batches(known, queues), len(known.partitions))
        self._told = loaded

    def _batches(
        self, topic: TopicView, queues: Mapping[TopicPartition, PartitionQueue]
    ) -> dict[int, int]:
        batches: dict[int, int] = {}
        for index, partition in sorted(topic.partitions.items()):
            if partition.leader >= 0 and not self.is_slow(partition.leader):
                queue = queues.get(TopicPartition(topic.name, PartitionIndex(index)))
                batches[index] = 0 if queue is None else len(queue.waiting)
        return batches
