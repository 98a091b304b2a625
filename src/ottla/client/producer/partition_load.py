"""The load of partitions: waiting batches, and brokers that are too slow.

Invariant: a partition is eligible while it has a leader, and the leader has accepted a batch within
the timeout, which counts while batches wait for it.
"""

from collections.abc import Mapping

from ottla.client.network.cluster_view import ClusterView, TopicView
from ottla.client.partitioners import Partitioner
from ottla.client.producer.partition_queue import PartitionQueue
from ottla.ids import BrokerId, PartitionIndex, TopicPartition


class PartitionLoad:
    """Watches the queues and reports to a partitioner that listens."""

    def __init__(self, partitioner: Partitioner, availability_timeout_s: float) -> None:
        """A timeout of 0 makes every broker eligible."""
        self._partitioner = partitioner
        self._timeout_s = availability_timeout_s
        self._took_s: dict[BrokerId, float] = {}
        self._asked_s: dict[BrokerId, float] = {}
        self._told: set[str] = set()  # topics with waiting batches at the last report
        self._led: dict[str, tuple[TopicView, list[tuple[TopicPartition, BrokerId]]]] = {}

    def asked(self, broker: BrokerId, now_s: float, *, takes: bool) -> None:
        """Note whether a broker accepts batches that are ready for it."""
        self._asked_s[broker] = now_s
        if takes or broker not in self._took_s:
            self._took_s[broker] = now_s

    def is_slow(self, broker: BrokerId) -> bool:
        """Whether a broker has accepted nothing for too long."""
        waited_s = self._asked_s.get(broker, 0.0) - self._took_s.get(broker, 0.0)
        return 0 < self._timeout_s < waited_s

    def look(self, queues: Mapping[TopicPartition, PartitionQueue], view: ClusterView) -> None:
        """Report the topics with waiting batches, and those that have none any more."""
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
        """Prepared once per metadata change."""
        known = self._led.get(topic.name)
        if known is None or known[0] is not topic:
            led = [
                (TopicPartition(topic.name, PartitionIndex(index)), one.leader)
                for index, one in sorted(topic.partitions.items())
                if one.leader >= 0
            ]
            known = self._led[topic.name] = (topic, led)
        return known[1]
