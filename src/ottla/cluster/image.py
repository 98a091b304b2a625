"""The cluster as it is known at one moment: brokers, topics and partitions.

Invariant: an image never changes; what changes makes the next one, with a higher version. A name
and an id of a topic stand for each other, and partitions are numbered from 0 without a gap.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Self

from ottla.ids import NO_BROKER, BrokerEpoch, BrokerId, LeaderEpoch, PartitionIndex, Uuid

INTERNAL_TOPICS: Final = frozenset(("__consumer_offsets", "__transaction_state"))


@dataclass(frozen=True, slots=True)
class Address:
    """Where a broker is reached through one of its listeners."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that is alive."""

    id: BrokerId
    epoch: BrokerEpoch
    addresses: Mapping[str, Address]  # by the name of the listener
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Who has a partition, and who leads it."""

    replicas: tuple[BrokerId, ...]
    leader: BrokerId = NO_BROKER
    leader_epoch: LeaderEpoch = LeaderEpoch(-1)  # noqa: RUF009 - a number
    in_sync: tuple[BrokerId, ...] = ()
    version: int = -1  # of the state where it is stored, the partition epoch; -1: it is not

    def led_by(self, leader: BrokerId, in_sync: tuple[BrokerId, ...]) -> "PartitionState":
        """The next state, in which a broker leads in a new epoch."""
        return replace(
            self,
            leader=leader,
            leader_epoch=LeaderEpoch(self.leader_epoch + 1),
            in_sync=in_sync,
            version=self.version + 1,
        )


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and its partitions."""

    name: str
    id: Uuid
    partitions: tuple[PartitionState, ...]

    @property
    def internal(self) -> bool:
        """Whether the brokers keep it for themselves."""
        return self.name in INTERNAL_TOPICS

    def partition(self, index: int) -> PartitionState | None:
        """The state of a partition, if there is one of that number."""
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """All of it."""

    cluster_id: str
    controller: BrokerId = NO_BROKER
    brokers: Mapping[BrokerId, Broker] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, Topic] = field(default_factory=lambda: MappingProxyType({}))
    names: Mapping[Uuid, str] = field(default_factory=lambda: MappingProxyType({}))
    version: int = 0

    def topic_of_id(self, topic_id: Uuid) -> Topic | None:
        """The topic that has an id."""
        name = self.names.get(topic_id)
        return None if name is None else self.topics[name]

    def state(self, topic: str, index: int) -> PartitionState | None:
        """The state of a partition."""
        found = self.topics.get(topic)
        return None if found is None else found.partition(index)

    def with_topics(self, topics: Iterable[Topic]) -> Self:
        """The next image, in which topics are new or changed."""
        changed = {topic.name: topic for topic in topics}
        return self._with({**self.topics, **changed})

    def without_topics(self, names: Iterable[str]) -> Self:
        """The next image, from which topics are gone."""
        gone = set(names)
        return self._with({name: one for name, one in self.topics.items() if name not in gone})

    def with_brokers(self, brokers: Iterable[Broker], controller: BrokerId) -> Self:
        """The next image, with these brokers alive."""
        alive = MappingProxyType({broker.id: broker for broker in brokers})
        return replace(self, brokers=alive, controller=controller, version=self.version + 1)

    def _with(self, topics: dict[str, Topic]) -> Self:
        names = {topic.id: name for name, topic in topics.items()}
        assert len(names) == len(topics), "two topics with one id"
        return replace(
            self,
            topics=MappingProxyType(topics),
            names=MappingProxyType(names),
            version=self.version + 1,
        )


def indexes(topic: Topic) -> Iterable[PartitionIndex]:
    """The numbers of a topic's partitions."""
    return (PartitionIndex(index) for index in range(len(topic.partitions)))
