"""The topics that exist already, as the checks of new topics look them up.

A request can ask for thousands of topics, and a cluster can have thousands. So no check of a new
topic loops over the existing ones: the first check that needs it makes a count or an index.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain, product
from typing import Final

from ottla.cluster.image import Topic
from ottla.ids import BrokerId

LOOKED_UP_PARTS_MAX: Final = 5
"""Parts between `.` and `_` of a name whose 16 variants are looked up, without an index."""


class ExistingTopics:
    """The topics of an image, and those that a request is about to create."""

    __slots__ = ("_added", "_by_metric_name", "_replicas", "_topics", "partition_count")

    def __init__(self, topics: Mapping[str, Topic], partition_count: int) -> None:
        """The topics of an image, which have so many partitions."""
        self._topics = topics
        self._added: dict[str, Topic] = {}
        self._replicas: Counter[BrokerId] | None = None
        self._by_metric_name: dict[str, str] | None = None
        self.partition_count = partition_count

    def __contains__(self, name: object) -> bool:
        return name in self._topics or name in self._added

    def is_of(self, topics: Mapping[str, Topic]) -> bool:
        """Whether these are the topics of this mapping, and nothing was added."""
        return self._topics is topics and not self._added

    def add(self, topic: Topic) -> None:
        """Add a topic that is about to be created."""
        self._added[topic.name] = topic
        self.partition_count += len(topic.partitions)
        if self._replicas is not None:
            self._replicas.update(_replicas([topic]))
        if self._by_metric_name is not None:
            self._by_metric_name.setdefault(_metric_name(topic.name), topic.name)

    def replicas_on(self, broker: BrokerId) -> int:
        """Return how many partitions of these topics a broker has."""
        if self._replicas is None:
            topics = chain(self._topics.values(), self._added.values())
            self._replicas = Counter(_replicas(topics))
        return self._replicas[broker]

    def colliding(self, name: str) -> str | None:
        """Return a topic whose name differs from this new one only in `.` and `_`."""
        metric_name = _metric_name(name)
        parts = metric_name.split("_")
        if len(parts) <= LOOKED_UP_PARTS_MAX:
            for marks in product("._", repeat=len(parts) - 1):
                other = parts[0] + "".join(map(str.__add__, marks, parts[1:]))
                if other != name and other in self:
                    return other
            return None
        if self._by_metric_name is None:
            names = chain(self._topics, self._added)
            self._by_metric_name = {_metric_name(one): one for one in names}
        return self._by_metric_name.get(metric_name)


def _replicas(topics: Iterable[Topic]) -> Iterable[BrokerId]:
    return chain.from_iterable(one.replicas for topic in topics for one in topic.partitions)


def _metric_name(name: str) -> str:
    """Return the name in Kafka's metrics; topics with the same one collide."""
    return name.replace(".", "_")
