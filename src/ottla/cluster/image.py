"""The cluster metadata at one moment: brokers, topics and partitions.

Invariant: an image is immutable; a change makes a new image with a higher version. Topic names and
topic ids map one to one, and partitions are numbered from 0 without gaps.
"""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final, Self

from msgspec import Struct, field
from msgspec.structs import replace

from ottla.ids import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionIndex,
    TopicPartition,
    Uuid,
)

INTERNAL_TOPICS: Final = frozenset(("__consumer_offsets", "__transaction_state"))


class Address(Struct, frozen=True):
    """Host and port of a broker's listener."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Broker(Struct, frozen=True):
    """A live broker."""

    id: BrokerId
    epoch: BrokerEpoch
    addresses: Mapping[str, Address]  # by listener name
    rack: str | None = None
    host: str | None = None  # ottla.broker.host: brokers of one machine have the same


class PartitionState(Struct, frozen=True):
    """Replicas, leader and ISR of a partition."""

    replicas: tuple[BrokerId, ...]  # during a reassignment with `adding` and `removing`
    leader: BrokerId = NO_BROKER
    leader_epoch: LeaderEpoch = LeaderEpoch(-1)
    in_sync: tuple[BrokerId, ...] = ()
    version: int = -1  # the partition epoch: version of its node; -1: not stored
    elr: tuple[BrokerId, ...] = ()  # outside the ISR, with every acknowledged record (rule A14)
    last_known_elr: tuple[BrokerId, ...] = ()  # the last leader, while ISR and ELR are empty
    adding: tuple[BrokerId, ...] = ()  # replicas that a reassignment adds
    removing: tuple[BrokerId, ...] = ()  # replicas that a reassignment removes

    def led_by(self, leader: BrokerId, in_sync: tuple[BrokerId, ...]) -> "PartitionState":
        """Return the next state, with a new leader in a new leader epoch."""
        return replace(
            self,
            leader=leader,
            leader_epoch=LeaderEpoch(self.leader_epoch + 1),
            in_sync=in_sync,
            version=self.version + 1,
        )


class PartitionChange(Struct, frozen=True):
    """A decision of the controller: the next state of a partition.

    It is stored only if the partition still has the version of `before` (rule B5).
    """

    topic: str
    index: int
    before: PartitionState
    after: PartitionState


class Topic(Struct, frozen=True):
    """A topic and its partitions."""

    name: str
    id: Uuid
    partitions: tuple[PartitionState, ...]

    @property
    def internal(self) -> bool:
        """Whether it is an internal topic."""
        return self.name in INTERNAL_TOPICS

    def partition(self, index: int) -> PartitionState | None:
        """Return the state of a partition, or None if the topic does not have it."""
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


class ClusterImage(Struct, frozen=True):
    """The cluster metadata of one version."""

    cluster_id: str
    controller: BrokerId = NO_BROKER
    brokers: Mapping[BrokerId, Broker] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, Topic] = field(default_factory=lambda: MappingProxyType({}))
    names: Mapping[Uuid, str] = field(default_factory=lambda: MappingProxyType({}))
    version: int = 0
    controller_epoch: ControllerEpoch = ControllerEpoch(-1)
    failed: Mapping[TopicPartition, frozenset[BrokerId]] = field(
        default_factory=lambda: MappingProxyType({})
    )  # live brokers that have the replica in a failed data directory
    partition_count: int = 0  # of all topics

    def topic_of_id(self, topic_id: Uuid) -> Topic | None:
        """Return the topic with an id, if there is one."""
        name = self.names.get(topic_id)
        return None if name is None else self.topics[name]

    def state(self, topic: str, index: int) -> PartitionState | None:
        """Return the state of a partition, if there is one."""
        found = self.topics.get(topic)
        return None if found is None else found.partition(index)

    def offline_replicas(self, topic: str, index: int, state: PartitionState) -> list[BrokerId]:
        """Return the replicas whose broker is dead, or which are in a failed data directory."""
        alive, failed = self.brokers, frozenset[BrokerId]()
        if self.failed:  # almost never
            failed = self.failed.get(TopicPartition(topic, index), failed)
        return [one for one in state.replicas if one not in alive or one in failed]

    def with_topics(self, topics: Iterable[Topic]) -> Self:
        """Return the next image, with these topics added or changed."""
        # Copying a dict of all topics takes microseconds, and a loop over it milliseconds.
        changed = {topic.name: topic for topic in topics}
        replaced = [before for name in changed if (before := self.topics.get(name)) is not None]
        return self._with({**self.topics, **changed}, replaced, changed.values())

    def without_topics(self, names: Iterable[str]) -> Self:
        """Return the next image, without these topics."""
        topics = {**self.topics}
        gone = {name: one for name in names if (one := topics.pop(name, None)) is not None}
        failed = {key: one for key, one in self.failed.items() if key.topic not in gone}
        image = self._with(topics, gone.values(), ())
        return replace(image, failed=MappingProxyType(failed)) if self.failed else image

    def with_brokers(self, brokers: Iterable[Broker], controller: BrokerId) -> Self:
        """Return the next image, with these live brokers and this controller."""
        alive = MappingProxyType({broker.id: broker for broker in brokers})
        return replace(self, brokers=alive, controller=controller, version=self.version + 1)

    def with_failed(self, failed: Mapping[TopicPartition, frozenset[BrokerId]]) -> Self:
        """Return the next image, with these replicas in failed data directories."""
        return replace(self, failed=MappingProxyType({**failed}), version=self.version + 1)

    def _with(
        self, topics: dict[str, Topic], removed: Collection[Topic], added: Collection[Topic]
    ) -> Self:
        names = self.names
        before, after = ({topic.id: topic.name for topic in some} for some in (removed, added))
        if before != after:
            changed = {**names}
            for topic_id in before:
                del changed[topic_id]
            changed |= after
            assert len(changed) == len(topics), "two topics have the same id"
            names = MappingProxyType(changed)
        count = self.partition_count
        count += sum(len(topic.partitions) for topic in added)
        count -= sum(len(topic.partitions) for topic in removed)
        return replace(
            self,
            topics=MappingProxyType(topics),
            names=names,
            partition_count=count,
            version=self.version + 1,
        )


def indexes(topic: Topic) -> Iterable[PartitionIndex]:
    """Return the partition indexes of a topic."""
    return (PartitionIndex(index) for index in range(len(topic.partitions)))
