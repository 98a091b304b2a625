"""The controller: carries out decisions for the cluster, one at a time.

A decision is stored in coordination first, then it is in the controller's image, then the brokers
hear of it (rule B9). `controller/plan.py` decides; this module stores, tells and waits.

Invariant: `image` is what coordination holds, apart from partitions whose leader could not take
over: those have no leader in the image until a later attempt. Only the holder of `turn` changes it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from ottla.clock import Clock
from ottla.cluster.image import Broker, ClusterImage, PartitionChange, PartitionState, Topic
from ottla.controller.broker_link import BrokerLink
from ottla.controller.control_update import (
    BrokerConfigs,
    Configs,
    ControlUpdate,
    Failures,
    ReplicaState,
)
from ottla.controller.loading import StoredTopic
from ottla.controller.store import ClusterStore
from ottla.errors import ErrorCode, RequestError, StorageFailure
from ottla.ids import (
    NO_BROKER,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionIndex,
    TopicPartition,
)

_LOG = logging.getLogger(__name__)

STORED_AT_ONCE: Final = 100  # partitions whose state is stored in one write
STORED_AT_START: Final = 2000  # the same at the start, when no request waits
APPLY_SECONDS: Final = 30.0  # how long a change waits for the slowest broker

Apply = Callable[[ControlUpdate], Awaitable[Failures]]


class Controller:
    """The cluster, as its controller knows and changes it."""

    def __init__(
        self,
        *,
        node_id: BrokerId,
        clock: Clock,
        store: ClusterStore,
        epoch: ControllerEpoch,
        cluster_id: str,
        connect: Callable[[Broker], Apply],
        latest_epoch: Callable[[TopicPartition], LeaderEpoch],
        refusal: Callable[[], RequestError | None],
    ) -> None:
        """A controller that has won the election of this epoch.

        `connect` returns how a broker is told; `latest_epoch` the newest epoch in this broker's
        own logs; `refusal` an error once the broker stops.
        """
        self._node_id = node_id
        self._clock = clock
        self.store = store
        self.epoch = epoch
        self._connect = connect
        self._latest_epoch = latest_epoch
        self._refusal = refusal
        self._links: dict[BrokerId, BrokerLink] = {}
        self.image = ClusterImage(cluster_id, controller=node_id, controller_epoch=epoch)
        self.turn = asyncio.Lock()  # held by the change in progress

    # Start and end.

    async def start(
        self, brokers: Iterable[Broker], stored: Sequence[StoredTopic], deleted: Sequence[str]
    ) -> Failures:
        """Take over the cluster: elect leaders, and send every broker everything."""
        alive = list(brokers)
        self.image = self.image.with_topics([one.topic for one in stored])
        self.image = self.image.with_brokers(alive, self._node_id)
        for one in alive:
            self._links[one.id] = BrokerLink(one.id, self._connect(one), self._clock)
        configs = {one.topic.name: one.config for one in stored}
        changes = [
            self._elected(one.topic.name, index, state)
            for one in stored
            for index, state in enumerate(one.topic.partitions)
            if self._node_id in state.replicas
        ]
        return await self.commit(
            changes,
            at_once=STORED_AT_START,
            is_full=True,
            topic_configs=configs,
            deleted=deleted,
        )

    async def close(self) -> None:
        """Stop telling brokers: another controller may have been elected."""
        for link in self._links.values():
            await link.close()
        self._links.clear()

    # Changes; the caller holds `turn`.

    async def add_topic(self, topic: Topic, config: Mapping[str, str]) -> Failures:
        """Elect leaders for a topic that is stored."""
        self.image = self.image.with_topics([topic])
        return await self.lead(
            topic.name,
            range(len(topic.partitions)),
            is_new=True,
            topic_configs={topic.name: config},
        )

    async def grow_topic(self, topic: Topic, first: int) -> Failures:
        """Elect leaders for partitions that were added to a topic."""
        self.image = self.image.with_topics([topic])
        return await self.lead(topic.name, range(first, len(topic.partitions)), is_new=True)

    async def lead(
        self,
        name: str,
        indexes: Iterable[int],
        *,
        is_new: bool = False,
        topic_configs: Configs | None = None,
    ) -> Failures:
        """Elect leaders for partitions of a topic."""
        partitions = self.image.topics[name].partitions
        return await self.commit(
            [self._elected(name, index, partitions[index]) for index in indexes],
            is_new=is_new,
            topic_configs=topic_configs or {},
        )

    async def delete_topic(self, name: str) -> Failures:
        """Delete a topic on all brokers; its deletion is stored."""
        self.image = self.image.without_topics([name])
        return await self._tell(deleted=[name])

    async def set_configs(
        self, topic_configs: Configs | None = None, broker_configs: BrokerConfigs | None = None
    ) -> None:
        """Apply configs that are stored, on all brokers."""
        await self._tell(topic_configs=topic_configs or {}, broker_configs=broker_configs or {})

    # Decide.

    def _elected(self, name: str, index: int, before: PartitionState) -> PartitionChange:
        """Elect this broker, in an epoch that is also new to its log."""
        latest = self._latest_epoch(TopicPartition(name, PartitionIndex(index)))
        known = replace(before, leader_epoch=max(before.leader_epoch, latest))
        return PartitionChange(name, index, before, known.led_by(self._node_id, (self._node_id,)))

    # Store and tell.

    async def commit(
        self,
        changes: Sequence[PartitionChange],
        *,
        at_once: int | None = None,
        is_new: bool = False,
        is_full: bool = False,
        topic_configs: Configs | None = None,
        deleted: Sequence[str] = (),
    ) -> Failures:
        """Store changes in lots and tell the brokers; return what failed on its way.

        Brokers see the new image at the end, also if the end came early because of an error.
        """
        failures: dict[TopicPartition, RequestError] = {}
        configs, left = topic_configs or {}, iter(changes)
        names = dict.fromkeys(one.topic for one in changes)
        stored: list[PartitionChange] = []
        try:
            while lot := [*islice(left, at_once or STORED_AT_ONCE)]:
                error = self._refusal()
                if error is None:
                    try:
                        await self.store.store_elections(lot)
                    except StorageFailure as failure:
                        error = RequestError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
                if error is not None:
                    lost = [*lot, *left]
                    failures |= dict.fromkeys(map(_partition, lost), error)
                    break
                self._note(lot)
                stored += lot
                if not is_full:
                    failures |= await self._tell_replicas(lot, is_new, configs)
                    configs = {}
        finally:
            self._note_leaderless(failures)
            failures |= await self._tell(
                replicas=stored if is_full else (),
                is_full=is_full,
                topic_configs=configs,
                deleted=deleted,
                changed=None if is_full else [*names],
            )
            if is_full and failures:
                self._note_leaderless(failures)
                await self._tell(changed=[*dict.fromkeys(one.topic for one in failures)])
        return failures

    def _note(self, stored: Sequence[PartitionChange]) -> None:
        """Update the image."""
        by_topic: dict[str, list[PartitionState]] = {}
        for one in stored:
            states = by_topic.get(one.topic)
            if states is None:
                states = by_topic[one.topic] = [*self.image.topics[one.topic].partitions]
            states[one.index] = one.after
        self.image = self.image.with_topics(
            replace(self.image.topics[name], partitions=tuple(states))
            for name, states in by_topic.items()
        )

    def _note_leaderless(self, failures: Failures) -> None:
        """Show partitions whose leader could not take over as partitions without a leader."""
        self._note(
            [
                PartitionChange(key.topic, key.partition, before, replace(before, leader=NO_BROKER))
                for key in failures
                if (before := self.image.state(key.topic, key.partition)) is not None
            ]
        )

    async def _tell_replicas(
        self, changes: Sequence[PartitionChange], is_new: bool, configs: Configs
    ) -> Failures:
        """Tell the replicas of changed partitions."""
        by_broker = self._replicas(changes, is_new=is_new)
        return await self._applied(
            {
                broker: self._update(broker, replicas=replicas, topic_configs=configs)
                for broker, replicas in by_broker.items()
            }
        )

    async def _tell(
        self,
        *,
        replicas: Sequence[PartitionChange] = (),
        is_full: bool = False,
        topic_configs: Configs | None = None,
        broker_configs: BrokerConfigs | None = None,
        deleted: Sequence[str] = (),
        changed: Sequence[str] | None = (),
    ) -> Failures:
        """Tell all brokers the new image, and what else has changed."""
        by_broker = self._replicas(replicas)
        return await self._applied(
            {
                broker: self._update(
                    broker,
                    replicas=by_broker.get(broker, ()),
                    is_full=is_full,
                    topic_configs=topic_configs or {},
                    broker_configs=broker_configs or {},
                    deleted=deleted,
                    image=self.image,
                    changed=changed,
                )
                for broker in self._links
            }
        )

    def _replicas(
        self, changes: Sequence[PartitionChange], *, is_new: bool = False
    ) -> dict[BrokerId, list[ReplicaState]]:
        """Return the changed partitions by the brokers that have replicas of them."""
        found: dict[BrokerId, list[ReplicaState]] = {}
        for one in changes:
            topic = self.image.topics[one.topic]
            state = ReplicaState(one.topic, topic.id, PartitionIndex(one.index), one.after, is_new)
            for broker in one.after.replicas:
                if broker in self._links:
                    found.setdefault(broker, []).append(state)
        return found

    def _update(self, broker: BrokerId, **fields: object) -> ControlUpdate:
        return ControlUpdate(
            controller=self._node_id,
            controller_epoch=self.epoch,
            broker_epoch=self.image.brokers[broker].epoch,
            **fields,  # pyright: ignore[reportArgumentType]
        )

    async def _applied(self, updates: Mapping[BrokerId, ControlUpdate]) -> Failures:
        """Send updates; return what failed on the leaders."""
        sent = {broker: self._links[broker].send(one) for broker, one in updates.items()}
        if not sent:
            return {}
        done, late = await asyncio.wait(sent.values(), timeout=APPLY_SECONDS)
        if late:
            brokers = [broker for broker, one in sent.items() if one in late]
            _LOG.warning("change not applied yet", {"brokers": ",".join(map(str, brokers))})
        failures: dict[TopicPartition, RequestError] = {}
        for broker, one in sent.items():
            if one in done:
                failures |= {
                    key: failure
                    for key, failure in one.result().items()
                    if self._leads(broker, key)
                }
        return failures

    def _leads(self, broker: BrokerId, key: TopicPartition) -> bool:
        state = self.image.state(key.topic, key.partition)
        return state is None or state.leader == broker


def _partition(change: PartitionChange) -> TopicPartition:
    return TopicPartition(change.topic, PartitionIndex(change.index))
