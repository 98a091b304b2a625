"""Takes and gives up the leadership of partitions, some at a time.

Invariant: the replica manager has a partition exactly while this broker leads it, in an epoch that
was stored before. Between two lots of partitions other requests are served. The image is updated at
the end, also if the end came early because of an error.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.effective_config import EffectiveConfig
from ottla.broker.group_coordinator import OFFSETS_TOPIC, GroupCoordinators
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replica_manager import ReplicaManager
from ottla.broker.shutdown import Shutdown
from ottla.cluster.image import PartitionChange, PartitionState, Topic
from ottla.controller.store import ClusterStore, led_by
from ottla.errors import ErrorCode, RequestError, StorageExhausted, StorageFailure
from ottla.ids import NO_BROKER, BrokerId, LeaderEpoch, PartitionIndex, TopicPartition
from ottla.log.loading import HostedLog
from ottla.log.log_config import LogConfig
from ottla.log.names import DirectoryState
from ottla.metrics import TopicCounts
from ottla.records.validation import ValidationConfig
from ottla.replication.partition import Partition
from ottla.settings import broker

_LOG = logging.getLogger(__name__)

LED_AT_ONCE: Final = 100  # partitions whose leader is stored in one write
LED_AT_START: Final = 2000  # the same at the start, when no request waits
MADE_AT_ONCE: Final = 8  # logs created concurrently; file systems let concurrent syncs share one


class PartlyLed(RequestError):
    """Some partitions of an existing topic have no leader.

    The error is not retriable: the request was executed, and the remaining partitions get a leader
    when there is disk space.
    """

    def __init__(self, name: str, unled: int, count: int, reason: BaseException) -> None:
        super().__init__(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"topic {name} exists, but {unled} of {count} partitions have no leader yet: {reason}",
        )


class Leadership:
    """The partitions that this broker leads."""

    def __init__(
        self,
        *,
        node_id: BrokerId,
        settings: EffectiveConfig,
        metadata_cache: MetadataCache,
        replica_manager: ReplicaManager,
        groups: GroupCoordinators,
        scheduler: CooperativeScheduler,
        store: ClusterStore,
        shutdown: Shutdown,
    ) -> None:
        self._node_id = node_id
        self._settings = settings
        self._metadata_cache = metadata_cache
        self._replica_manager = replica_manager
        self._logs = replica_manager.logs
        self._groups = groups
        self._scheduler = scheduler
        self._store = store
        self._shutdown = shutdown

    # Becoming leader.

    def unled(self, name: str) -> list[int]:
        """Return the partitions of a topic that this broker could lead and does not."""
        found = self._metadata_cache.image.topics.get(name)
        led = self._replica_manager.partitions
        return [
            index
            for index, one in enumerate(found.partitions if found else ())
            if self._node_id in one.replicas
            and (key := TopicPartition(name, PartitionIndex(index))) not in led
            and not self._is_out_of_reach(key, one)
        ]

    def _is_out_of_reach(self, key: TopicPartition, one: PartitionState) -> bool:
        """Whether a partition is in an offline directory; one that had a leader before may be.

        It must not be created again in another directory.
        """
        if (hosted := self._logs.get(key)) is not None:
            return hosted.directory.failure is not None
        return one.leader_epoch >= 0 and bool(self._logs.missing)

    async def lead(
        self, name: str, indexes: Iterable[int] | None = None, *, at_start: bool = False
    ) -> None:
        """Become leader of partitions of a topic in a new epoch.

        Partitions that cannot be led have no leader; PartlyLed is raised at the end. A broker that
        stops leads no more partitions: its next start does.
        """
        found = self._metadata_cache.image.topics[name]
        partitions = list(found.partitions)
        wanted = range(len(partitions)) if indexes is None else sorted({*indexes})
        mine = [index for index in wanted if self._node_id in partitions[index].replicas]
        failures: list[BaseException] = []
        at_once = LED_AT_START if at_start else LED_AT_ONCE
        try:
            for start in range(0, len(mine), at_once):
                if self._shutdown.begun:
                    failures.append(self._shutdown.refusal())
                    break
                elected = [
                    self._elected(name, index, partitions[index])
                    for index in mine[start : start + at_once]
                ]
                await self._store.store_elections(elected)
                outcomes = await self._host_all(found, elected, at_start=at_start)
                for one, failure in zip(elected, outcomes, strict=True):
                    led = one.after
                    if failure is not None:
                        failures.append(failure)
                        led = replace(led, leader=NO_BROKER)
                    partitions[one.index] = led
        except StorageFailure as failure:
            failures.append(failure)
        finally:
            after = Topic(name, found.id, tuple(partitions))
            self._metadata_cache.image = self._metadata_cache.image.with_topics([after])
        for failure in failures:
            if not isinstance(failure, StorageFailure | RequestError):
                raise failure
        if failures:
            unled = len(self.unled(name)) or len(failures)
            raise PartlyLed(name, unled, len(partitions), failures[0]) from failures[0]

    def _elected(self, name: str, index: int, one: PartitionState) -> PartitionChange:
        """Return the state in which this broker leads, in an epoch that is also new to the log.

        The epoch before may have started while there was no disk space to store the leader.
        """
        hosted = self._logs.get(TopicPartition(name, PartitionIndex(index)))
        latest = None if hosted is None else hosted.log.epochs.latest
        if latest is not None and latest.epoch > one.leader_epoch:
            one = replace(one, leader_epoch=LeaderEpoch(latest.epoch))
        return led_by(self._node_id, name, index, one)

    async def _host_all(
        self, found: Topic, elected: Sequence[PartitionChange], *, at_start: bool
    ) -> list[BaseException | None]:
        """Lead partitions of a topic; return the failure of each, or None.

        A partition whose log is open needs no disk, and so no task.
        """
        settings, name = self._settings, found.name
        config, rules = settings.log_config(name), settings.topic_rules(name)
        in_sync_min = settings.in_sync_min(name)
        places = asyncio.Semaphore(MADE_AT_ONCE)
        outcomes: list[BaseException | None] = [None] * len(elected)
        left: list[int] = []

        async def host(number: int) -> None:
            one = elected[number]
            async with places:
                index = PartitionIndex(one.index)
                hosted = await self._host(found, index, config, at_start=at_start)
                partition = self._begin(found, hosted, one.after, rules, in_sync_min)
                if found.name == OFFSETS_TOPIC:
                    await self._coordinate(partition)
                self._replica_manager.partitions[hosted.partition] = partition

        for number, one in enumerate(elected):
            hosted = self._logs.get(TopicPartition(found.name, PartitionIndex(one.index)))
            if hosted is None or hosted.topic_id != found.id or found.name == OFFSETS_TOPIC:
                left.append(number)
                continue
            try:
                partition = self._begin(found, hosted, one.after, rules, in_sync_min)
                self._replica_manager.partitions[hosted.partition] = partition
            except (StorageFailure, RequestError) as failure:
                outcomes[number] = failure
        ended = await asyncio.gather(*map(host, left), return_exceptions=True)
        for number, failure in zip(left, ended, strict=True):
            outcomes[number] = failure
        return outcomes

    async def _host(
        self, found: Topic, index: PartitionIndex, config: LogConfig, *, at_start: bool
    ) -> HostedLog:
        """Return the log of a partition; create it if it does not exist."""
        key, before = TopicPartition(found.name, index), found.partitions[index]
        logs = self._logs
        hosted: HostedLog | None = logs.get(key)
        if hosted is not None and hosted.topic_id != found.id:
            # A log without a topic id belongs to this topic if the topic existed before, also
            # adopted.
            is_new = before.version < 0 and not at_start
            if hosted.topic_id is not None or is_new:
                # It belongs to a deleted topic of this name, whose deletion was stored and not
                # finished.
                _LOG.warning(
                    "directory of a deleted topic renamed", {"directory": hosted.log.directory}
                )
                await logs.delete([key], DirectoryState.STRAY)
                hosted = None
            else:
                with suppress(StorageExhausted):  # it belongs to this topic all the same
                    await logs.identify(hosted, found.id)
        if hosted is None:
            if self._is_out_of_reach(key, before):
                raise StorageFailure(
                    f"{key} may be in an offline data directory: {', '.join(logs.missing)}"
                )
            hosted = await logs.create(key, found.id, config, avoid=self.cordoned())
            if before.leader_epoch >= 0:
                folder = {"partition": str(key), "folder": hosted.log.directory}
                _LOG.warning("partition directory missing, created empty", folder)
        return hosted

    def _begin(
        self,
        found: Topic,
        hosted: HostedLog,
        led: PartitionState,
        rules: ValidationConfig,
        in_sync_min: int,
    ) -> Partition:
        """Lead the log of a partition in a new epoch."""
        hosted.log.begin_epoch(led.leader_epoch)
        return Partition(
            self._logs,
            hosted,
            found.id,
            led.leader_epoch,
            rules,
            min(in_sync_min, len(led.replicas)),
            self._replica_manager.traffic.setdefault(found.name, TopicCounts()),
        )

    async def _coordinate(self, partition: Partition) -> None:
        """Load the groups of a partition of the offsets topic."""
        try:
            await self._groups.lead(partition)
        except StorageFailure as failure:
            raise partition.storage_error(failure) from failure

    # While leading.

    def cordoned(self) -> Collection[str]:
        """The data directories that get no new partitions."""
        paths = self._settings.broker[broker.CORDONED_LOG_DIRS]
        return [one.path for one in self._logs.online] if "*" in paths else paths

    def in_sync_min(self, name: str, index: int) -> int:
        """Return min.insync.replicas, capped by the number of replicas."""
        replicas = self._metadata_cache.image.topics[name].partitions[index].replicas
        return min(self._settings.in_sync_min(name), len(replicas))

    # Giving up leadership.

    async def drop(self, keys: Sequence[TopicPartition]) -> None:
        """Drop partitions with all their records."""
        # All at once: no append to one partition of a topic while another is already gone.
        dropped = [self._replica_manager.partitions.pop(key, None) for key in keys]
        for key in keys:
            if key.topic == OFFSETS_TOPIC:
                self._groups.resign(PartitionIndex(key.partition))
        async for partition in self._scheduler.new_loop().over(dropped):
            if partition is not None:
                partition.wake_all()
        self._groups.forget(keys)
        await self._logs.delete([key for key in keys if self._logs.get(key)])
