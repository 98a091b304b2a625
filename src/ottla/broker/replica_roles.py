"""Makes this broker leader or follower of partitions, as the controller decided.

Invariant: the replica manager has a partition in `partitions` exactly while this broker leads it,
in an epoch that was stored before. One update is applied at a time, and an update of an earlier
controller or for an earlier registration of this broker changes nothing (rule B4). Between the
partitions of an update other requests are served; its image is visible when it is complete.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import Final

from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.effective_config import EffectiveConfig
from ottla.broker.group_coordinator import OFFSETS_TOPIC, GroupCoordinators
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replica_manager import ReplicaManager
from ottla.clock import Clock
from ottla.cluster.image import ClusterImage, PartitionState
from ottla.controller.control_update import ControlUpdate, Failures, ReplicaState
from ottla.errors import ErrorCode, RequestError, StorageExhausted, StorageFailure
from ottla.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionIndex,
    TopicPartition,
)
from ottla.log.loading import HostedLog
from ottla.log.log_config import LogConfig
from ottla.log.names import DirectoryState
from ottla.metrics import TopicCounts
from ottla.records.validation import ValidationConfig
from ottla.replication.partition import Partition
from ottla.settings import broker

_LOG = logging.getLogger(__name__)

MADE_AT_ONCE: Final = 8  # logs created concurrently; file systems let concurrent syncs share one
REPORT_SECONDS: Final = 5.0  # between two progress lines of a long update


class ReplicaRoles:
    """The partitions that this broker leads and follows."""

    def __init__(
        self,
        *,
        node_id: BrokerId,
        clock: Clock,
        settings: EffectiveConfig,
        metadata_cache: MetadataCache,
        replica_manager: ReplicaManager,
        groups: GroupCoordinators,
        scheduler: CooperativeScheduler,
    ) -> None:
        self._node_id = node_id
        self._clock = clock
        self._settings = settings
        self._metadata_cache = metadata_cache
        self._replica_manager = replica_manager
        self._logs = replica_manager.logs
        self._groups = groups
        self._scheduler = scheduler
        self._turn = asyncio.Lock()  # held by the update that is being applied
        self._controller_epoch = ControllerEpoch(-1)  # the highest that was seen
        self.broker_epoch = BrokerEpoch(-1)  # of this broker's registration
        self.informed = asyncio.Event()  # set when the first image has arrived

    async def apply(self, update: ControlUpdate) -> Failures:
        """Carry out what the controller decided; return the partitions that failed, and why.

        Raises RequestError if the update is out of date.
        """
        async with self._turn:
            self._check_current(update)
            self._set_configs(update)
            failures: dict[TopicPartition, RequestError] = {}
            if update.deleted:
                failures |= await self._delete_topics(update.deleted)
            if update.stopped:
                failures |= await self._drop(
                    [one.partition for one in update.stopped if one.delete]
                )
            failures |= await self._become(update.replicas)
            if update.deleted:  # now that the groups of every partition are loaded
                self._groups.forget_topics(update.deleted)
            if update.image is not None:
                self._metadata_cache.image = update.image
                self._apply_configs(update, update.image)
                self.informed.set()
            return failures

    def _check_current(self, update: ControlUpdate) -> None:
        if update.controller_epoch < self._controller_epoch:
            raise RequestError(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"the controller epoch is {self._controller_epoch}, not {update.controller_epoch}",
            )
        # An update may come before this broker has learned the epoch of its own registration.
        if update.broker_epoch < self.broker_epoch:
            raise RequestError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"the broker epoch is {self.broker_epoch}, not {update.broker_epoch}",
            )
        self._controller_epoch = update.controller_epoch

    # Configs.

    def _set_configs(self, update: ControlUpdate) -> None:
        settings = self._settings
        settings.know(update.topic_configs.items())
        for name in update.deleted:
            settings.forget(name)
        for whose, values in update.broker_configs.items():
            if whose is None or whose == self._node_id:
                own = whose is not None
                before = settings.broker_values(own=own)
                settings.set_broker(values, own=own)
                settings.warn_of_broker(before, own=own)

    def _apply_configs(self, update: ControlUpdate, image: ClusterImage) -> None:
        """Apply changed configs to the partitions; a new partition has them from its start."""
        names: Iterable[str] = update.topic_configs
        if any(whose in (None, self._node_id) for whose in update.broker_configs):
            names = image.topics
        settings = self._settings
        for name in names:
            found = image.topics.get(name)
            for index in range(len(found.partitions) if found else 0):
                key = TopicPartition(name, PartitionIndex(index))
                partition = self._replica_manager.partitions.get(key)
                if partition is not None:
                    partition.log.config = settings.log_config(name)
                    partition.rules = settings.topic_rules(name)
                    partition.set_in_sync_min(settings.in_sync_min(name))

    # Becoming leader or follower.

    async def _become(self, replicas: Sequence[ReplicaState]) -> dict[TopicPartition, RequestError]:
        failures: dict[TopicPartition, RequestError] = {}
        reported_s, done = self._clock.elapsed_s(), 0
        for name, group in groupby(replicas, attrgetter("topic")):
            states = [*group]
            if self._clock.elapsed_s() - reported_s >= REPORT_SECONDS:
                reported_s = self._clock.elapsed_s()
                about = {"partitions": done, "of": len(replicas)}
                _LOG.info("partitions being led", about)
            outcomes = await self._host_all(name, states)
            for one, failure in zip(states, outcomes, strict=True):
                if failure is None:
                    continue
                if isinstance(failure, StorageFailure):
                    failure = RequestError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
                if not isinstance(failure, RequestError):
                    raise failure
                failures[one.partition] = failure
            done += len(states)
        return failures

    async def _host_all(
        self, name: str, replicas: Sequence[ReplicaState]
    ) -> list[BaseException | None]:
        """Lead partitions of a topic; return the failure of each, or None.

        A partition whose log is open needs no disk, and so no task.
        """
        settings = self._settings
        config, rules = settings.log_config(name), settings.topic_rules(name)
        in_sync_min = settings.in_sync_min(name)
        places = asyncio.Semaphore(MADE_AT_ONCE)
        outcomes: list[BaseException | None] = [None] * len(replicas)
        left: list[int] = []

        async def host(number: int) -> None:
            one = replicas[number]
            async with places:
                hosted = await self._host(one, config)
                partition = self._begin(one, hosted, rules, in_sync_min)
                if name == OFFSETS_TOPIC:
                    await self._coordinate(partition)
                self._replica_manager.partitions[hosted.partition] = partition

        for number, one in enumerate(replicas):
            hosted = self._logs.get(one.partition)
            if hosted is None or hosted.topic_id != one.topic_id or name == OFFSETS_TOPIC:
                left.append(number)
                continue
            try:
                partition = self._begin(one, hosted, rules, in_sync_min)
                self._replica_manager.partitions[hosted.partition] = partition
            except (StorageFailure, RequestError) as failure:
                outcomes[number] = failure
        ended = await asyncio.gather(*map(host, left), return_exceptions=True)
        for number, failure in zip(left, ended, strict=True):
            outcomes[number] = failure
        return outcomes

    async def _host(self, one: ReplicaState, config: LogConfig) -> HostedLog:
        """Return the log of a partition; create it if it does not exist."""
        key, logs = one.partition, self._logs
        hosted: HostedLog | None = logs.get(key)
        if hosted is not None and hosted.topic_id != one.topic_id:
            # A log without a topic id belongs to this topic if the topic existed before, also
            # adopted.
            if hosted.topic_id is not None or one.is_new:
                # It belongs to a deleted topic of this name, whose deletion was stored and not
                # finished.
                _LOG.warning(
                    "directory of a deleted topic renamed", {"directory": hosted.log.directory}
                )
                await logs.delete([key], DirectoryState.STRAY)
                hosted = None
            else:
                with suppress(StorageExhausted):  # it belongs to this topic all the same
                    await logs.identify(hosted, one.topic_id)
        if hosted is None:
            if self._is_out_of_reach(key, one.state):
                raise StorageFailure(
                    f"{key} may be in an offline data directory: {', '.join(logs.missing)}"
                )
            hosted = await logs.create(key, one.topic_id, config, avoid=self.cordoned())
            if had_log(one.state):
                folder = {"partition": str(key), "folder": hosted.log.directory}
                _LOG.warning("partition directory missing, created empty", folder)
        return hosted

    def _is_out_of_reach(self, key: TopicPartition, state: PartitionState) -> bool:
        """Whether a partition is in an offline directory; one that had a leader before may be.

        It must not be created again in another directory.
        """
        if (hosted := self._logs.get(key)) is not None:
            return hosted.directory.failure is not None
        return had_log(state) and bool(self._logs.missing)

    def can_lead(self, key: TopicPartition, state: PartitionState) -> bool:
        """Whether this broker could lead a partition that it does not lead."""
        led = self._replica_manager.partitions
        return key not in led and not self._is_out_of_reach(key, state)

    def latest_epoch(self, key: TopicPartition) -> LeaderEpoch:
        """Return the newest leader epoch in a partition's own log, or -1.

        It may have begun while there was no disk space to store the leader.
        """
        hosted = self._logs.get(key)
        latest = None if hosted is None else hosted.log.epochs.latest
        return LeaderEpoch(-1) if latest is None else LeaderEpoch(latest.epoch)

    def _begin(
        self,
        one: ReplicaState,
        hosted: HostedLog,
        rules: ValidationConfig,
        in_sync_min: int,
    ) -> Partition:
        """Lead the log of a partition in a new epoch."""
        led = one.state
        hosted.log.begin_epoch(led.leader_epoch)
        return Partition(
            self._logs,
            hosted,
            one.topic_id,
            led.leader_epoch,
            rules,
            min(in_sync_min, len(led.replicas)),
            self._replica_manager.traffic.setdefault(one.topic, TopicCounts()),
        )

    async def _coordinate(self, partition: Partition) -> None:
        """Load the groups of a partition of the offsets topic."""
        try:
            await self._groups.lead(partition)
        except StorageFailure as failure:
            raise partition.storage_error(failure) from failure

    def cordoned(self) -> Collection[str]:
        """The data directories that get no new partitions."""
        paths = self._settings.broker[broker.CORDONED_LOG_DIRS]
        return [one.path for one in self._logs.online] if "*" in paths else paths

    # Giving up partitions.

    async def _delete_topics(self, names: Sequence[str]) -> Mapping[TopicPartition, RequestError]:
        """Delete topics with all their records; clients see at once that they are gone."""
        cache, gone = self._metadata_cache, set(names)
        had = [
            TopicPartition(name, PartitionIndex(index))
            for name in names
            if (found := cache.image.topics.get(name)) is not None
            for index in range(len(found.partitions))  # also those whose logs are offline
        ]
        cache.image = cache.image.without_topics(names)
        for name in names:
            self._replica_manager.traffic.pop(name, None)
        logs = [one.partition for one in self._logs if one.partition.topic in gone]
        return await self._drop([*dict.fromkeys([*had, *logs])])

    async def _drop(self, keys: Sequence[TopicPartition]) -> dict[TopicPartition, RequestError]:
        """Drop partitions with all their records."""
        # All at once: no append to one partition of a topic while another is already gone.
        dropped = [self._replica_manager.partitions.pop(key, None) for key in keys]
        for key in keys:
            if key.topic == OFFSETS_TOPIC:
                self._groups.resign(PartitionIndex(key.partition))
        async for partition in self._scheduler.new_loop().over(dropped):
            if partition is not None:
                partition.wake_all()
        present = [key for key in keys if self._logs.get(key)]
        try:
            await self._logs.delete(present)
        except StorageFailure as failure:
            refused = RequestError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
            return dict.fromkeys(present, refused)
        return {}


def had_log(state: PartitionState) -> bool:
    """Whether a partition had a leader, and so a log, before the state that is applied."""
    return state.leader_epoch > 0
