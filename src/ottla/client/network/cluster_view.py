"""What a client knows about a cluster: brokers and partition leaders.

Invariant: a view is immutable; new knowledge makes a new view. Of a partition the leader with the
newest epoch is kept, whichever broker reported it and in whatever order. A broker that lags behind
does not take a client back to an old leader. A recreated topic has another id and starts with its
own epochs.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.errors import ErrorCode
from ottla.ids import NO_BROKER, ZERO_UUID, BrokerId, LeaderEpoch, PartitionIndex, Uuid
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


class BrokerView(NamedTuple):
    """A broker and its address."""

    id: BrokerId
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"broker {self.id} at {host}:{self.port}"


class PartitionView(NamedTuple):
    """A partition with its leader and replicas."""

    index: PartitionIndex  # pyright: ignore[reportIncompatibleMethodOverride]
    leader: BrokerId
    """NO_BROKER if it has none."""

    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...] = ()
    in_sync: tuple[BrokerId, ...] = ()
    offline: tuple[BrokerId, ...] = ()
    error: ErrorCode = ErrorCode.NONE


class TopicView(NamedTuple):
    """A topic, or the error that a broker returned for it."""

    name: str
    id: Uuid
    partitions: Mapping[int, PartitionView]
    is_internal: bool = False
    error: ErrorCode = ErrorCode.NONE


class ClusterView(NamedTuple):
    """The brokers and topics that are known."""

    cluster_id: str | None = None
    controller: BrokerId = NO_BROKER
    brokers: Mapping[BrokerId, BrokerView] = MappingProxyType({})
    topics: Mapping[str, TopicView] = MappingProxyType({})
    names: Mapping[Uuid, str] = MappingProxyType({})

    def leader(self, topic: str, partition: int) -> PartitionView | None:
        """Return a partition if it and its leader are known."""
        known = self.topics.get(topic)
        one = None if known is None else known.partitions.get(partition)
        return one if one is not None and one.leader in self.brokers else None

    def told(self, answer: MetadataResponse, *, all_topics: bool = False) -> "ClusterView":
        """Return the view updated with a Metadata response; `all_topics` if all were requested."""
        brokers = {
            BrokerId(one.node_id): BrokerView(BrokerId(one.node_id), one.host, one.port, one.rack)
            for one in answer.brokers
        }
        topics: dict[str, TopicView] = {} if all_topics else dict(self.topics)
        for topic in answer.topics:
            name = topic.name or self.names.get(topic.topic_id)
            if name is not None:
                topics[name] = _topic(name, topic, self.topics.get(name))
        return ClusterView(
            answer.cluster_id, BrokerId(answer.controller_id), brokers, topics, _names(topics)
        )

    def led_by(
        self,
        topic: str,
        partition: int,
        leader: int,
        epoch: int,
        brokers: Iterable[BrokerView] = (),
    ) -> "ClusterView":
        """Return the view updated with a leader from a response (KIP-951), if it is newer."""
        known = self.topics.get(topic)
        one = None if known is None else known.partitions.get(partition)
        if known is None or one is None or epoch <= one.leader_epoch:
            return self
        moved = one._replace(leader=BrokerId(leader), leader_epoch=LeaderEpoch(epoch))
        changed = known._replace(partitions={**known.partitions, partition: moved})
        return self._replace(
            brokers={**self.brokers, **{broker.id: broker for broker in brokers}},
            topics={**self.topics, topic: changed},
        )

    def without(self, topics: Iterable[str]) -> "ClusterView":
        """Return the view without some topics."""
        gone = {*topics}
        kept = {name: topic for name, topic in self.topics.items() if name not in gone}
        return self._replace(topics=kept, names=_names(kept))


NOTHING_KNOWN: Final = ClusterView()


def _names(topics: Mapping[str, TopicView]) -> dict[Uuid, str]:
    return {topic.id: name for name, topic in topics.items() if topic.id != ZERO_UUID}


def _topic(name: str, told: MetadataResponseTopic, known: TopicView | None) -> TopicView:
    error = ErrorCode.of(told.error_code)
    same = known is not None and known.id == told.topic_id
    if error.retriable and known is not None and (same or told.topic_id == ZERO_UUID):
        return known._replace(error=error)  # a temporary error does not discard what is known
    partitions = {
        one.partition_index: _partition(
            one, known.partitions.get(one.partition_index) if known is not None and same else None
        )
        for one in told.partitions
    }
    return TopicView(name, told.topic_id, partitions, told.is_internal, error)


def _partition(told: MetadataResponsePartition, known: PartitionView | None) -> PartitionView:
    if known is not None and told.leader_epoch < known.leader_epoch and told.leader_epoch >= 0:
        return known
    return PartitionView(
        PartitionIndex(told.partition_index),
        BrokerId(told.leader_id),
        LeaderEpoch(told.leader_epoch),
        _ids(told.replica_nodes),
        _ids(told.isr_nodes),
        _ids(told.offline_replicas),
        ErrorCode.of(told.error_code),
    )


def _ids(nodes: Iterable[int]) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(node) for node in nodes)
