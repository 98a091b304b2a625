"""The load of a producer's partitions: how much waits for each, and whose broker takes nothing.

Invariant: a partition counts as one that may be chosen while it has a leader and that leader has
taken a batch within the time it is given, counted while batches wait for it.
"""

from collections.abc import Mapping

from ottla.client.network.cluster_view import ClusterView, TopicView
from ottla.client.partitioners import Partitioner
from ottla.client.produce.partition_queue import PartitionQueue
from ottla.ids import BrokerId, PartitionIndex, TopicPartition


class PartitionLoad:
    """Watches the queues, and tells the partitioner if it listens."""

    def __init__(self, partitioner: Partitioner, availability_timeout_s: float) -> None:
        """With a time of 0 every broker may be as slow as it likes."""
        self._partitioner = partitioner
        self._timeout_s = availability_timeout_s
        self._took_s: dict[BrokerId, float] = {}
        self._asked_s: dict[BrokerId, float] = {}
        self._told: set[str] = set()  # topics of which something was waiting
        self._led: dict[str, tuple[TopicView, list[tuple[TopicPartition, BrokerId]]]] = {}

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
            if known is None or len(known.partitions) < 2 or not self._partitioner.listens(topic):
                continue
            batches: dict[int, int] = {}
            for place, leader in self._with_leaders(known):
                if not self._timeout_s or not self.is_slow(leader):
                    queue = queues.get(place)
                    batches[place.partition] = 0 if queue is None else len(queue.waiting)
            self._partitioner.waiting(topic, batches, len(known.partitions))
        self._told = loaded

    def _with_leaders(self, topic: TopicView) -> list[tuple[TopicPartition, BrokerId]]:
        """Put together once for each answer of the cluster."""
        known = self._led.get(topic.name)
        if known is None or known[0] is not topic:
            led = [
                (TopicPartition(topic.name, PartitionIndex(index)), one.leader)
                for index, one in sorted(topic.partitions.items())
                if one.leader >= 0
            ]
            known = self._led[topic.name] = (topic, led)
        return known[1]
