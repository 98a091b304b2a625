"""Reads the cluster from coordination: registrations, topics, configurations, deletions.

Invariant: a read with a watch sets the watch first (rule B7), so that a change after the read is
never missed. Many nodes are read with one call, because a call may be a round trip.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from ottla.cluster.image import PartitionState, Topic
from ottla.cluster.registration import (
    Registered,
    parse_counter,
    parse_handled_restarts,
    parse_registration,
)
from ottla.cluster.znodes import (
    BROKER_CONFIGS,
    BROKER_IDS,
    DEFAULT_ENTITY,
    DELETIONS,
    TOPIC_CONFIGS,
    TOPICS,
    UNCLEAN_RESTARTS,
    BadNode,
    StateNode,
    TopicNode,
    broker_path,
    counter_path,
    parse_config,
    parse_state,
    parse_topic,
    state_path,
    topic_config_path,
    topic_path,
)
from ottla.coordination.errors import NoNode
from ottla.coordination.session import Node, Session, Watch
from ottla.ids import BrokerEpoch, BrokerId, TopicPartition, Uuid

_ATTEMPTS: Final = 10  # to read a registration and its counter together


class StoredTopic(NamedTuple):
    """A topic and its configuration overrides."""

    topic: Topic
    config: Mapping[str, str]


class StoredCluster(NamedTuple):
    """The whole cluster, as a new controller finds it."""

    registrations: Mapping[BrokerId, Registered]
    handled_restarts: Mapping[BrokerId, BrokerEpoch]
    topics: Sequence[StoredTopic]  # with those that are being deleted
    broker_configs: Mapping[BrokerId | None, Mapping[str, str]]
    deletions: Sequence[str]  # topics whose deletion has begun and has not finished
    reassignments: Sequence[TopicPartition]  # partitions whose reassignment has not finished


class NodeMemory:
    """What was last read of nodes that the controller rewrites: versions and unknown fields."""

    def __init__(self) -> None:
        self.topics: dict[str, tuple[TopicNode, int]] = {}  # with the version of the node
        self._other: dict[TopicPartition, Mapping[str, Any]] = {}  # only if there are such fields
        self._parsed: dict[bytes, StateNode] = {}  # most partitions have the same state

    def topic(self, name: str, found: Node) -> TopicNode:
        """Parse and remember a topic's node."""
        node = parse_topic(found.data, topic_path(name))
        self.topics[name] = node, found.stat.version
        return node

    def partition(
        self, name: str, index: int, node: TopicNode, found: Node | None
    ) -> PartitionState:
        """Parse the state of a partition, and remember the fields that are not known."""
        replicas = node.partitions[index]
        adding, removing = node.adding.get(index, ()), node.removing.get(index, ())
        if found is None:
            return PartitionState(replicas, adding=adding, removing=removing)
        state = self._parsed.get(found.data)
        if state is None:
            state = parse_state(found.data, state_path(name, index))
            if len(self._parsed) < 1000:
                self._parsed[found.data] = state
        key = TopicPartition(name, index)
        if state.other:
            self._other[key] = state.other
        elif self._other:
            self._other.pop(key, None)
        return PartitionState(
            replicas,
            state.leader,
            state.leader_epoch,
            state.in_sync,
            found.stat.version,
            state.elr,
            state.last_known_elr,
            adding,
            removing,
        )

    def other(self, name: str, index: int) -> Mapping[str, Any]:
        """Return the unknown fields of a partition's state."""
        return self._other.get(TopicPartition(name, index), {}) if self._other else {}

    def forget(self, name: str) -> None:
        """Forget a topic that is deleted."""
        self.topics.pop(name, None)
        for key in [key for key in self._other if key.topic == name]:
            del self._other[key]


async def load_cluster(
    session: Session, memory: NodeMemory, watch: Watch | None = None
) -> StoredCluster:
    """Read everything; the watch fires when brokers register or die."""
    registrations = await read_registrations(session, watch)
    (restarts,) = await session.get_all((UNCLEAN_RESTARTS,))
    deletions: list[str] = []
    with suppress(NoNode):
        deletions = await session.children(DELETIONS)
    topics = await load_topics(session, memory)
    return StoredCluster(
        registrations,
        {} if restarts is None else parse_handled_restarts(restarts.data),
        topics,
        await load_broker_configs(session),
        deletions,
        [
            TopicPartition(one.topic.name, index)
            for one in topics
            for index, state in enumerate(one.topic.partitions)
            if state.adding or state.removing
        ],
    )


async def read_registrations(
    session: Session, watch: Watch | None = None
) -> dict[BrokerId, Registered]:
    """Return the live brokers; the watch fires when a broker registers or dies."""
    left = [BrokerId(int(name)) for name in await session.children(BROKER_IDS, watch)]
    found: dict[BrokerId, Registered] = {}
    for _ in range(_ATTEMPTS):
        paths = [*map(broker_path, left), *map(counter_path, left)]
        nodes = await session.get_all(paths)
        again: list[BrokerId] = []
        for broker, node, counter in zip(left, nodes[: len(left)], nodes[len(left) :], strict=True):
            if node is None:
                continue  # it died meanwhile; the watch fires
            epoch = BrokerEpoch(node.stat.czxid)
            if counter is None or counter.stat.mzxid != epoch:
                again.append(broker)  # it registered again between the two reads
                continue
            last = parse_counter(counter.data, counter_path(broker), epoch)
            registration = parse_registration(node.data, broker, epoch)
            found[broker] = Registered(registration, counter.stat.version, last.clean_since)
        if not again:
            return dict(sorted(found.items()))
        left = again
    raise BadNode(
        f"{counter_path(left[0])}: it was not written with the registration of broker {left[0]}; "
        "restart that broker"
    )


async def load_topics(session: Session, memory: NodeMemory) -> list[StoredTopic]:
    """Return every topic that has a node, also those that are being deleted."""
    names = await session.children(TOPICS)
    found = zip(names, await session.get_all([topic_path(name) for name in names]), strict=True)
    nodes = {name: memory.topic(name, one) for name, one in found if one is not None}
    configs = _configs(await session.get_all([topic_config_path(name) for name in nodes]), nodes)
    states = iter(
        await session.get_all(
            [
                state_path(name, index)
                for name, node in nodes.items()
                for index in range(len(node.partitions))
            ]
        )
    )
    return [
        StoredTopic(
            Topic(
                name,
                node.id,
                tuple(
                    memory.partition(name, index, node, next(states))
                    for index in range(len(node.partitions))
                ),
            ),
            config,
        )
        for (name, node), config in zip(nodes.items(), configs, strict=True)
    ]


def _configs(found: Sequence[Node | None], names: Mapping[str, object]) -> Iterator[dict[str, str]]:
    for name, one in zip(names, found, strict=True):
        yield {} if one is None else parse_config(one.data, topic_config_path(name))


async def load_topic_id(session: Session, name: str) -> Uuid | None:
    """Return the id of a topic; None if it does not exist."""
    [found] = await session.get_all([topic_path(name)])
    return None if found is None else parse_topic(found.data, topic_path(name)).id


async def load_topic_configs(session: Session) -> list[tuple[str, dict[str, str]]]:
    """Return the configuration overrides of topics that have some."""
    names = await session.children(TOPIC_CONFIGS)
    paths = [topic_config_path(name) for name in names]
    found = await session.get_all(paths)
    return [
        (name, parse_config(node.data, path))
        for name, path, node in zip(names, paths, found, strict=True)
        if node is not None
    ]


async def load_broker_configs(session: Session) -> dict[BrokerId | None, dict[str, str]]:
    """Return the dynamic settings by broker; None is the cluster-wide default."""
    names = await session.children(BROKER_CONFIGS)
    paths = [f"{BROKER_CONFIGS}/{name}" for name in names]
    return {
        None if name == DEFAULT_ENTITY else BrokerId(int(name)): parse_config(one.data, path)
        for name, path, one in zip(names, paths, await session.get_all(paths), strict=True)
        if one is not None
    }
