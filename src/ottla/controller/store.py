"""The topics and configurations of the cluster in coordination.

Invariant: a topic exists if and only if its node exists. Its other nodes are created before or with
it, or are completed when it is loaded. A deletion is first recorded in a node of its own, so that
it is finished after an interruption. That node remains until nothing of the topic is left.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.cluster.image import PartitionChange
from ottla.cluster.registration import Registered, format_handled_restarts
from ottla.cluster.znodes import (
    DELETIONS,
    UNCLEAN_RESTARTS,
    TopicNode,
    broker_config_path,
    broker_path,
    changed_config,
    counter_path,
    deletion_path,
    format_config,
    partitions_path,
    topic_config_path,
    topic_path,
)
from ottla.controller.lease import ControllerLease
from ottla.controller.loading import (
    NodeMemory,
    StoredCluster,
    StoredTopic,
    load_cluster,
    load_topics,
    read_registrations,
)
from ottla.controller.partition_changes import Outcome, store_changes
from ottla.coordination.errors import NodeError, NoNode
from ottla.coordination.operations import Check, Create, Delete, Operation, SetData
from ottla.coordination.session import Session, Watch
from ottla.ids import BrokerEpoch, BrokerId

DELETED_AT_ONCE: Final = 250  # nodes deleted per step, in about 3 ms; other requests run in between


class NewTopic(NamedTuple):
    """A topic whose partitions have no leaders yet."""

    name: str
    node: TopicNode
    config: Mapping[str, str]

    def operations(self) -> list[Operation]:
        """Return the operations that create its nodes."""
        config = [Create(topic_config_path(self.name), format_config(self.config))]
        return [
            *(config if self.config else ()),
            Create(topic_path(self.name), self.node.format()),
            Create(partitions_path(self.name)),
        ]


class ClusterStore:
    """Loads the cluster's topics and configurations, and stores the controller's decisions."""

    def __init__(self, lease: ControllerLease) -> None:
        self._lease = lease
        self._memory = NodeMemory()
        self._registrations: Mapping[BrokerId, Registered] = {}
        self._handled_restarts: Mapping[BrokerId, BrokerEpoch] = {}

    @property
    def _session(self) -> Session:
        return self._lease.session

    # Loads.

    async def load_cluster(self, watch: Watch | None = None) -> StoredCluster:
        """Return the whole cluster; the watch fires when brokers register or die (rule B7)."""
        found = await load_cluster(self._session, self._memory, watch)
        self._registrations = found.registrations
        self._handled_restarts = found.handled_restarts
        return found

    async def read_registrations(self, watch: Watch | None = None) -> Mapping[BrokerId, Registered]:
        """Return the live brokers; a broker that registers later joins no ISR until it is read."""
        self._registrations = await read_registrations(self._session, watch)
        return self._registrations

    async def load_topics(self) -> list[StoredTopic]:
        """Finish the deletion of topics, and return all others."""
        await self.delete_topics(await self.deletions())
        return await load_topics(self._session, self._memory)

    async def deletions(self) -> list[str]:
        """Return the topics whose deletion has begun and has not finished."""
        return await self._session.children(DELETIONS)

    # Stores.

    async def create_topic(self, name: str, node: TopicNode, config: Mapping[str, str]) -> None:
        """Create a topic whose partitions have no leaders yet."""
        await self.create_topics([NewTopic(name, node, config)])

    async def create_topics(self, topics: Sequence[NewTopic]) -> None:
        """Create all of these topics in one transaction, or none of them."""
        operations: list[Operation] = []
        records = [deletion_path(one.name) for one in topics]
        found = zip(topics, await self._session.get_all(records), strict=True)
        if deleted := [one.name for one, record in found if record is not None]:
            # The deletion was interrupted; creating the topic again completes it.
            await self.delete_topics(deleted)
            operations += map(Delete, map(deletion_path, deleted))
        for one in topics:
            operations += one.operations()
        await self._lease.change(operations)
        for name, node, _ in topics:
            self._memory.forget(name)
            self._memory.topics[name] = node, 0

    async def grow_topic(self, name: str, node: TopicNode) -> None:
        """Store a topic that has got more partitions."""
        if name not in self._memory.topics:
            self._memory.topic(name, await self._session.get(topic_path(name)))
        known, version = self._memory.topics.pop(name)  # read again if this fails
        added = node.partitions[len(known.partitions) :]
        grown = known._replace(partitions=(*known.partitions, *added))
        await self._lease.change([SetData(topic_path(name), grown.format(), version)])
        self._memory.topics[name] = grown, version + 1

    async def store_changes(self, changes: Sequence[PartitionChange]) -> list[Outcome]:
        """Store changes of different partitions; one that conflicts does not stop the others."""
        versions = {broker: one.counter_version for broker, one in self._registrations.items()}
        return await store_changes(changes, self._lease, self._memory, versions)

    async def store_handled_restarts(self, restarts: Mapping[BrokerId, BrokerEpoch]) -> None:
        """Store that brokers which restarted uncleanly have left ISR and ELR (rule A14)."""
        handled = {**self._handled_restarts, **restarts}
        data, exists = (
            format_handled_restarts(handled),
            await self._session.exists(UNCLEAN_RESTARTS),
        )
        await self._lease.change(
            [SetData(UNCLEAN_RESTARTS, data) if exists else Create(UNCLEAN_RESTARTS, data)]
        )
        self._handled_restarts = handled

    async def unregister(self, broker: Registered) -> bool:
        """Delete the registration of a dead broker; False if it has registered again."""
        broker_id = broker.registration.broker.id
        try:
            await self._lease.change(
                [
                    Check(counter_path(broker_id), broker.counter_version),
                    Delete(broker_path(broker_id)),
                ]
            )
        except NodeError:
            return False
        return True

    async def begin_deletions(self, names: Sequence[str]) -> None:
        """Record that topics are deleted; an interrupted deletion is finished later."""
        records = [deletion_path(name) for name in names]
        found = zip(records, await self._session.get_all(records), strict=True)
        await self._lease.change([Create(path) for path, record in found if record is None])

    async def delete_topics(self, names: Sequence[str], ended: Collection[str] = ()) -> None:
        """Delete every node of topics; the record of its deletion, too, if that has `ended`."""
        children = await asyncio.gather(*map(self._partitions, names))
        paths: list[str] = []
        for name, indexes in zip(names, children, strict=True):
            self._memory.forget(name)
            below = [f"{partitions_path(name)}/{index}" for index in indexes]
            paths += (f"{one}/state" for one in below)
            paths += (*below, partitions_path(name), topic_path(name), topic_config_path(name))
        paths += map(deletion_path, ended)
        for start in range(0, len(paths), DELETED_AT_ONCE):
            await self._delete(*paths[start : start + DELETED_AT_ONCE])

    async def _partitions(self, name: str) -> list[str]:
        try:
            return await self._session.children(partitions_path(name))
        except NoNode:
            return []

    async def _delete(self, *paths: str) -> None:
        found = await self._session.get_all(paths)
        present = [path for path, node in zip(paths, found, strict=True) if node is not None]
        await self._lease.change_all([Delete(path) for path in present])

    async def end_deletions(self, names: Sequence[str]) -> None:
        """Remove the records of deletions; nothing of the topics is left."""
        await self._delete(*map(deletion_path, names))

    async def set_topic_config(self, name: str, values: Mapping[str, str]) -> None:
        """Replace a topic's configuration overrides."""
        await self._set_config(topic_config_path(name), values)

    async def set_broker_config(self, broker: BrokerId | None, values: Mapping[str, str]) -> None:
        """Replace the dynamic settings of a broker, or of all brokers (None)."""
        await self._set_config(broker_config_path(broker), values)

    async def _set_config(self, path: str, values: Mapping[str, str]) -> None:
        (found,) = await self._session.get_all((path,))
        if found is None:
            await self._lease.change([Create(path, format_config(values))])
        else:
            data = changed_config(found.data, path, values)
            await self._lease.change([SetData(path, data, found.stat.version)])
