"""The topics and configurations of the cluster in coordination.

Invariant: a topic exists if and only if its node exists. Its other nodes are created before or with
it, or are completed when it is loaded. A deletion is first recorded in a node of its own, so that
it is finished after an interruption. That node remains until nothing of the topic is left.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from ottla.cluster.image import PartitionChange, PartitionState, Topic
from ottla.cluster.znodes import (
    BROKER_CONFIGS,
    DEFAULT_ENTITY,
    TOPIC_CONFIGS,
    TOPICS,
    StateNode,
    TopicNode,
    broker_config_path,
    format_config,
    parse_config,
    parse_state,
    parse_topic,
    partitions_path,
    state_path,
    topic_config_path,
    topic_path,
)
from ottla.controller.lease import ControllerLease, ensure
from ottla.coordination.errors import NodeExists, NoNode
from ottla.coordination.operations import Create, Delete, Operation, SetData
from ottla.coordination.session import Node, Session
from ottla.ids import BrokerId

DELETIONS: Final = "/admin/delete_topics"
DELETED_AT_ONCE: Final = 200  # partitions deleted per step; other requests run in between


class StoredTopic(NamedTuple):
    """A topic and its configuration overrides."""

    topic: Topic
    config: Mapping[str, str]


class ClusterStore:
    """Loads the cluster's topics and configurations, and stores the controller's decisions."""

    def __init__(self, lease: ControllerLease) -> None:
        self._lease = lease

    @property
    def _session(self) -> Session:
        return self._lease.session

    # Loads.

    async def load_topics(self) -> list[StoredTopic]:
        """Return every topic except those that are being deleted."""
        await ensure(self._session, ("/admin", DELETIONS))
        for name in await self.deletions():
            await self.delete_topic(name)
        return [await self._load(name) for name in await self._session.children(TOPICS)]

    async def deletions(self) -> list[str]:
        """Return the topics whose deletion has begun and has not finished."""
        return await self._session.children(DELETIONS)

    async def _load(self, name: str) -> StoredTopic:
        found = await self._session.get(topic_path(name))
        node = parse_topic(found.data, topic_path(name))
        paths = [state_path(name, index) for index in range(len(node.partitions))]
        states = await self._session.get_all(paths)
        parsed: dict[bytes, StateNode] = {}  # most partitions of a topic have the same state
        partitions = [
            _partition(replicas, found, path, parsed)
            for replicas, found, path in zip(node.partitions, states, paths, strict=True)
        ]
        config = await _load_config(self._session, topic_config_path(name))
        return StoredTopic(Topic(name, node.id, tuple(partitions)), config)

    # Stores.

    async def create_topic(self, name: str, node: TopicNode, config: Mapping[str, str]) -> None:
        """Create a topic whose partitions have no leaders yet."""
        operations: list[Operation] = []
        if await self.is_being_deleted(name):
            # The deletion was interrupted; creating the topic again completes it.
            await self.delete_topic(name)
            operations.append(Delete(_mark(name)))
        if config:
            operations.append(Create(topic_config_path(name), format_config(config)))
        operations.append(Create(topic_path(name), node.format()))
        operations.append(Create(partitions_path(name)))
        await self._lease.change(operations)

    async def grow_topic(self, name: str, node: TopicNode) -> None:
        """Store a topic that has got more partitions."""
        await self._lease.change([SetData(topic_path(name), node.format())])

    async def store_elections(self, elected: Iterable[PartitionChange]) -> None:
        """Store new leaders and ISRs of partitions (rule B5)."""
        operations: list[Operation] = []
        formatted: dict[tuple[object, ...], bytes] = {}  # most partitions have the same state
        for one in elected:
            after = one.after
            state = after.leader, after.leader_epoch, after.in_sync, self._lease.epoch
            data = formatted.get(state) or formatted.setdefault(state, StateNode(*state).format())
            path = state_path(one.topic, one.index)
            if one.before.version < 0:
                operations += (Create(path.rpartition("/")[0]), Create(path, data))
            else:
                operations.append(SetData(path, data, one.before.version))
        await self._lease.change_all(operations)

    async def begin_deletion(self, name: str) -> None:
        """Record that a topic is deleted; an interrupted deletion is finished later."""
        with suppress(NodeExists):
            await self._lease.change([Create(_mark(name))])

    async def delete_topic(self, name: str) -> None:
        """Delete every node of a topic except the record of its deletion."""
        indexes: list[str] = []
        with suppress(NoNode):
            indexes = await self._session.children(partitions_path(name))
        for start in range(0, len(indexes), DELETED_AT_ONCE):
            some = indexes[start : start + DELETED_AT_ONCE]
            below = [f"{partitions_path(name)}/{index}" for index in some]
            await self._delete(*(f"{one}/state" for one in below), *below)
        await self._delete(partitions_path(name), topic_path(name), topic_config_path(name))

    async def _delete(self, *paths: str) -> None:
        found = await self._session.get_all(paths)
        present = [path for path, node in zip(paths, found, strict=True) if node is not None]
        await self._lease.change_all([Delete(path) for path in present])

    async def is_being_deleted(self, name: str) -> bool:
        """Whether a topic's deletion has begun and has not finished."""
        return await self._session.exists(_mark(name)) is not None

    async def end_deletion(self, name: str) -> None:
        """Remove the record of a deletion; nothing of the topic is left."""
        await self._delete(_mark(name))

    async def set_topic_config(self, name: str, values: Mapping[str, str]) -> None:
        """Replace a topic's configuration overrides."""
        await self._set_config(topic_config_path(name), values)

    async def set_broker_config(self, broker: BrokerId | None, values: Mapping[str, str]) -> None:
        """Replace the dynamic settings of a broker, or of all brokers (None)."""
        await self._set_config(broker_config_path(broker), values)

    async def _set_config(self, path: str, values: Mapping[str, str]) -> None:
        data = format_config(values)
        exists = await self._session.exists(path) is not None
        await self._lease.change([SetData(path, data) if exists else Create(path, data)])


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
    found: dict[BrokerId | None, dict[str, str]] = {}
    for name in await session.children(BROKER_CONFIGS):
        broker = None if name == DEFAULT_ENTITY else BrokerId(int(name))
        found[broker] = await _load_config(session, f"{BROKER_CONFIGS}/{name}")
    return found


async def _load_config(session: Session, path: str) -> dict[str, str]:
    try:
        return parse_config((await session.get(path)).data, path)
    except NoNode:
        return {}


def _mark(name: str) -> str:
    return f"{DELETIONS}/{name}"


def _partition(
    replicas: tuple[BrokerId, ...], found: Node | None, path: str, parsed: dict[bytes, StateNode]
) -> PartitionState:
    if found is None:
        return PartitionState(replicas)
    state = parsed.get(found.data)
    if state is None:
        state = parsed[found.data] = parse_state(found.data, path)
    return PartitionState(
        replicas, state.leader, state.leader_epoch, state.in_sync, found.stat.version
    )


def led_by(broker: BrokerId, topic: str, index: int, before: PartitionState) -> PartitionChange:
    """Elect a broker as leader and only ISR member of a partition."""
    return PartitionChange(topic, index, before, before.led_by(broker, (broker,)))
