"""Makes this broker leader or follower of partitions, as the controller decided.

Invariant: the replica manager has a partition in `partitions` exactly while this broker leads it,
in an epoch that was stored before. One update is applied at a time, and an update of an earlier
controller or for an earlier registration of this broker changes nothing (rule B4). Between the
partitions of an update other requests are served; its image is visible when it is complete, also
with its configs.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from ottla.broker.cooperative import CooperativeLoop, CooperativeScheduler
from ottla.broker.effective_config import EffectiveConfig, without_read_only
from ottla.broker.group_coordinator import OFFSETS_TOPIC, GroupCoordinators
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replica_manager import ReplicaManager
from ottla.clock import Clock
from ottla.cluster.image import ClusterImage, PartitionState
from ottla.controller.control_update import (
    BrokerConfigs,
    ControlUpdate,
    Failures,
    ReplicaState,
    StoppedReplica,
    is_newer,
    is_same_topic,
    stop_error,
    update_error,
)
from ottla.errors import ErrorCode, RequestError, StorageExhausted, StorageFailure
from ottla.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionIndex,
    TopicPartition,
    Uuid,
)
from ottla.log.loading import HostedLog
from ottla.log.log_config import LogConfig
from ottla.log.log_manager import drained
from ottla.log.names import DirectoryState
from ottla.records.validation import ValidationConfig
from ottla.replication.fetcher import ReplicaFetchers
from ottla.replication.follower import FollowerPartition
from ottla.replication.partition import Partition, Propose
from ottla.settings import broker

_LOG = logging.getLogger(__name__)

MADE_AT_ONCE: Final = 8  # logs created concurrently; file systems let concurrent syncs share one
EMPTY_SHOWN_MAX: Final = 5  # names in an event
RETRY_SECONDS: Final = 5.0  # between two attempts to follow a partition
REPORT_SECONDS: Final = 5.0  # between two progress lines of a long update


class _TopicConfigs(NamedTuple):
    """What the config of a topic means to its partitions."""

    log: LogConfig
    rules: ValidationConfig
    in_sync_min: int


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
        fetchers: ReplicaFetchers,
        propose: Propose,
    ) -> None:
        self._node_id = node_id
        self._clock = clock
        self._settings = settings
        self._metadata_cache = metadata_cache
        self._replica_manager = replica_manager
        self._logs = replica_manager.logs
        self._groups = groups
        self._scheduler = scheduler
        self._fetchers = fetchers
        self._propose = propose
        self._created_empty: list[HostedLog] = []  # of partitions that this broker had before
        self._applied: dict[TopicPartition, tuple[Uuid, PartitionState]] = {}  # the last states
        self._failed: dict[TopicPartition, ReplicaState] = {}  # could not be led or followed
        self._loading: set[asyncio.Task[None]] = set()  # groups of partitions that it leads
        self._turn = asyncio.Lock()  # held by the update that is being applied
        self._controller_epoch = ControllerEpoch(-1)  # the highest that was seen
        self._broker_epoch = BrokerEpoch(-1)  # of this broker's registration
        self._registered = asyncio.Event()
        self._is_image_due = (
            False  # all replicas were told, and the image that belongs to them comes
        )
        self._are_strays_due = False  # the image has come
        self.informed = asyncio.Event()  # set when the first full image has arrived
        self.directories_changed = asyncio.Event()  # set when the controller must hear of them
        self.brokers_changed = asyncio.Event()  # set when the image has other brokers

    @property
    def broker_epoch(self) -> BrokerEpoch:
        """The epoch of this broker's registration; -1 before the first one."""
        return self._broker_epoch

    def set_broker_epoch(self, epoch: BrokerEpoch) -> None:
        """Take over the epoch of this broker's registration; updates wait for the first one."""
        self._broker_epoch = epoch
        self._registered.set()

    async def apply(self, update: ControlUpdate) -> Failures:
        """Carry out what the controller decided; return the partitions that failed, and why.

        Raises RequestError if the update is out of date.
        """
        # An earlier process with this id may be meant: only the epoch can tell.
        await self._registered.wait()
        async with self._turn:
            self._check_current(update)
            deleted = self._same_topics(update.deleted)
            self._set_configs(update, deleted)
            failures: dict[TopicPartition, RequestError] = {}
            if deleted:
                failures |= await self._delete_topics(deleted)
            if update.stopped:
                failures |= await self._stop(update.stopped)
            failures |= await self._become(update.replicas)
            if update.image is not None:
                await self._apply_configs(update, update.image)
            self._is_image_due = self._is_image_due or update.is_full
            if deleted:  # now that the groups of every partition are loaded
                self._groups.forget_topics(deleted)
            if update.image is not None:
                known = self._metadata_cache.image.brokers
                self._metadata_cache.image = update.image
                if update.image.brokers != known:
                    self.brokers_changed.set()
                    self._expand_isrs()
                if update.changed is None:
                    self._are_strays_due = self._are_strays_due or self._is_image_due
                    self._is_image_due = False
                    self.informed.set()
                if self._are_strays_due and len(update.image.brokers) > 1:
                    self._are_strays_due = False
                    await self._set_strays_aside(update.image)
            if update.is_full or self._has_offline(failures):
                self.directories_changed.set()
            return failures

    def _check_current(self, update: ControlUpdate) -> None:
        error = update_error(
            update, controller_epoch=self._controller_epoch, broker_epoch=self._broker_epoch
        )
        if error is not ErrorCode.NONE:
            raise RequestError(
                error,
                f"the controller epoch is {self._controller_epoch} and the broker epoch "
                f"{self._broker_epoch}, not {update.controller_epoch} and {update.broker_epoch}",
            )
        self._controller_epoch = update.controller_epoch

    # Configs.

    def _same_topics(self, deleted: Mapping[str, Uuid]) -> list[str]:
        """Return the topics to delete; not one that was created again since."""
        known: dict[str, Uuid | None] = {
            name: one.topic_id for name in deleted for one in self._logs.of_topic(name)
        }
        topics = self._metadata_cache.image.topics
        known |= {name: topics[name].id for name in deleted if name in topics}
        return [name for name, told in deleted.items() if is_same_topic(known.get(name), told)]

    def _set_configs(self, update: ControlUpdate, deleted: Sequence[str]) -> None:
        self._settings.know(update.topic_configs.items())
        for name in deleted:
            self._settings.forget(name)
        self.set_broker_configs(update.broker_configs)

    def set_broker_configs(self, configs: BrokerConfigs) -> None:
        """Take over the dynamic configs of this broker and the cluster-wide defaults."""
        settings = self._settings
        for whose, values in configs.items():
            if whose is None or whose == self._node_id:
                own = whose is not None
                before = settings.broker_values(own=own)
                after = without_read_only(values, logged=False)  # the start has logged them
                if after == before:
                    continue
                try:
                    settings.set_broker(after, own=own)
                except RequestError as error:  # it conflicts with the properties file
                    _LOG.error("settings not applied", {"reason": str(error)})
                    continue
                settings.warn_of_broker(before, own=own)
                self._fetchers.resize(settings.broker[broker.NUM_REPLICA_FETCHERS])

    async def _apply_configs(self, update: ControlUpdate, image: ClusterImage) -> None:
        """Apply changed configs to the partitions; a new partition has them from its start."""
        names: Iterable[str] = update.topic_configs
        if any(whose in (None, self._node_id) for whose in update.broker_configs):
            names = image.topics
        turns = self._scheduler.new_loop()
        for name in names:
            found = image.topics.get(name)
            if found is None:
                continue
            configs = self._topic_configs(name)
            async for index in turns.over(range(len(found.partitions))):
                key = TopicPartition(name, PartitionIndex(index))
                partition = self._replica_manager.partitions.get(key)
                followed = self._replica_manager.followers.get(key)
                if followed is not None:
                    followed.log.config = configs.log
                if partition is not None:
                    partition.log.config = configs.log
                    partition.rules = configs.rules
                    partition.set_in_sync_min(configs.in_sync_min)

    def _topic_configs(self, name: str) -> _TopicConfigs:
        """Return what a topic's config means to its partitions: once, not per partition."""
        settings = self._settings
        return _TopicConfigs(
            settings.log_config(name), settings.topic_rules(name), settings.in_sync_min(name)
        )

    # Becoming leader or follower.

    async def _become(self, replicas: Sequence[ReplicaState]) -> dict[TopicPartition, RequestError]:
        failures: dict[TopicPartition, RequestError] = {}
        turns = self._scheduler.new_loop()
        newer = [one for one in replicas if self._is_newer(one)]
        await self._stop_following(
            one.partition for one in newer if one.state.leader == self._node_id
        )
        self._stop_leading(one for one in newer if one.state.leader != self._node_id)
        reported_s, done = self._clock.elapsed_s(), 0
        for name, group in groupby(newer, attrgetter("topic")):
            states = [*group]
            if self._clock.elapsed_s() - reported_s >= REPORT_SECONDS:
                reported_s = self._clock.elapsed_s()
                about = {"partitions": done, "of": len(newer)}
                _LOG.info("partitions being led", about)
            outcomes = await self._host_all(name, states, turns)
            for one, failure in zip(states, outcomes, strict=True):
                if failure is None:
                    self._applied[one.partition] = one.topic_id, one.state
                    self._failed.pop(one.partition, None)
                    continue
                self._failed[one.partition] = one
                failures[one.partition] = _refused(failure)
            done += len(states)
        self._report_created_empty()
        return failures

    def _report_created_empty(self) -> None:
        """Log which partitions this broker had before, and did not find in its directories."""
        empty, self._created_empty = self._created_empty, []
        if not empty:
            return
        new = [one.path for one in self._logs.directories if one.is_new]
        first = sorted(one.partition for one in empty)[:EMPTY_SHOWN_MAX]
        names = ", ".join(map(str, first))
        _LOG.error(
            "missing partitions created empty",
            {
                "partitions": len(empty),
                "names": names + (", …" if len(empty) > EMPTY_SHOWN_MAX else ""),
                "missing_directories": ", ".join(new) or "none: only directories of partitions",
                "remedy": "if a disk was not mounted or a directory was moved: stop the broker, "
                "bring the directory back and start the broker again. Otherwise partitions with "
                "several replicas are copied from their leaders, and the records of others are "
                "lost",
            },
        )

    def _is_newer(self, one: ReplicaState) -> bool:
        """Whether a state has to be applied: requests may be repeated or overtaken (rule B4)."""
        topic_id, known = self._applied.get(one.partition, (None, None))
        return topic_id != one.topic_id or is_newer(known, one.state)

    async def _host_all(
        self, name: str, replicas: Sequence[ReplicaState], turns: CooperativeLoop
    ) -> list[BaseException | None]:
        """Lead or follow partitions of a topic; return the failure of each, or None.

        A partition whose log is open needs no disk, and so no task.
        """
        configs = self._topic_configs(name)
        places = asyncio.Semaphore(MADE_AT_ONCE)
        outcomes: list[BaseException | None] = [None] * len(replicas)
        left: list[int] = []

        async def host(number: int) -> None:
            one = replicas[number]
            async with places:
                hosted = await self._host(one, configs.log)
                await self._take_role(one, hosted, configs)

        async for number, one in turns.over(enumerate(replicas)):
            hosted = self._logs.get(one.partition)
            if hosted is None or hosted.topic_id != one.topic_id or name == OFFSETS_TOPIC:
                left.append(number)
                continue
            try:
                hosted.directory.check_online()
                self._lead_or_follow(one, hosted, configs)
            except (StorageFailure, RequestError) as failure:
                outcomes[number] = failure
        ended = await asyncio.gather(*map(host, left), return_exceptions=True)
        for number, failure in zip(left, ended, strict=True):
            outcomes[number] = failure
        return outcomes

    async def create_logs(
        self, epoch: ControllerEpoch, replicas: Sequence[ReplicaState]
    ) -> Failures:
        """Create the logs of new partitions, whose first leaders are not stored yet.

        Nothing is created for an earlier controller, which cannot store them any more.
        """
        await self._registered.wait()
        async with self._turn:
            if epoch < self._controller_epoch:
                return {}
            places = asyncio.Semaphore(MADE_AT_ONCE)

            async def create(one: ReplicaState) -> None:
                async with places:
                    await self._host(one, self._settings.log_config(one.topic))

            ended = await asyncio.gather(*map(create, replicas), return_exceptions=True)
            return {
                one.partition: _refused(failure)
                for one, failure in zip(replicas, ended, strict=True)
                if failure is not None
            }

    async def _take_role(
        self, one: ReplicaState, hosted: HostedLog, configs: _TopicConfigs
    ) -> None:
        if one.topic != OFFSETS_TOPIC or one.state.leader != self._node_id:
            self._lead_or_follow(one, hosted, configs)
            return
        led = self._replica_manager.partitions.get(one.partition)
        if led is not None:
            led.update(one.state)
            return
        partition = self._begin(one, hosted, configs)
        if partition.in_sync is None:
            await self._coordinate(partition)
            self._replica_manager.partitions[one.partition] = partition
        else:  # with several replicas, other partitions must not wait until the groups are loaded
            self._replica_manager.partitions[one.partition] = partition
            loading = asyncio.get_running_loop().create_task(self._load_groups(partition))
            self._loading.add(loading)
            loading.add_done_callback(self._loading.discard)

    async def _load_groups(self, partition: Partition) -> None:
        try:
            await self._coordinate(partition)
        except RequestError as error:
            about = {"partition": str(partition.name), "reason": str(error)}
            _LOG.error("groups not loaded", about)

    def _lead_or_follow(self, one: ReplicaState, hosted: HostedLog, configs: _TopicConfigs) -> None:
        key, manager = one.partition, self._replica_manager
        if one.state.leader == self._node_id:
            led = manager.partitions.get(key)
            if led is not None and led.log is hosted.log:
                led.update(one.state)
            else:
                manager.partitions[key] = self._begin(one, hosted, configs)
            return
        followed = manager.followers.get(key)
        if followed is not None and followed.log is hosted.log:
            followed.update(one.state)
        else:
            followed = FollowerPartition(hosted, one.topic_id, one.state)
            manager.followers[key] = followed
        self._fetchers.set(followed)

    async def _stop_following(self, keys: Iterable[TopicPartition]) -> None:
        """Return when no fetcher changes these logs any more."""
        followers = self._replica_manager.followers
        stopped = [key for key in keys if key in followers]
        if stopped:
            await self._fetchers.remove(stopped)
            for key in stopped:
                followers.pop(key).wake_all()

    def _stop_leading(self, replicas: Iterable[ReplicaState]) -> None:
        """Fail the requests that wait, before anything is truncated."""
        brokers = self._metadata_cache.image.brokers
        for one in replicas:
            led = self._replica_manager.partitions.pop(one.partition, None)
            if led is not None:
                if one.topic == OFFSETS_TOPIC:
                    self._groups.resign(one.index)
                led.resign(one.state, brokers.get(one.state.leader))

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
            if self._had_log(one.state):
                self._created_empty.append(hosted)
        return hosted

    def _is_out_of_reach(self, key: TopicPartition, state: PartitionState) -> bool:
        """Whether a partition is in an offline directory; one that had a leader before may be.

        It must not be created again in another directory.
        """
        if (hosted := self._logs.get(key)) is not None:
            return hosted.directory.failure is not None
        return self._had_log(state) and bool(self._logs.missing)

    def _had_log(self, state: PartitionState) -> bool:
        """Whether this broker had a log of a partition before the state that is applied.

        A replica that a reassignment adds has none, and that of one that it removes may be deleted.
        """
        is_moving = self._node_id in state.adding or self._node_id in state.removing
        is_counted = self._node_id in state.in_sync or self._node_id in state.elr
        return had_log(state) and (is_counted or not is_moving)

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

    def _begin(self, one: ReplicaState, hosted: HostedLog, configs: _TopicConfigs) -> Partition:
        """Lead the log of a partition in a new epoch."""
        led = one.state
        hosted.log.begin_epoch(led.leader_epoch)
        return Partition(
            self._logs,
            hosted,
            one.topic_id,
            led.leader_epoch,
            configs.rules,
            configs.in_sync_min,
            self._replica_manager.traffic_of(one.topic, one.index),
            state=led,
            node_id=self._node_id,
            clock=self._clock,
            propose=self._propose,
            lag_s=self._settings.broker[broker.REPLICA_LAG_TIME_MAX_MS] / 1000,
            is_eligible=self._is_eligible,
            is_alive=lambda one: one in self._metadata_cache.image.brokers,
        )

    def _expand_isrs(self) -> None:
        """Let followers join ISRs that were not known to be registered when they fetched."""
        for partition in self._replica_manager.partitions.values():
            if partition.in_sync is not None:
                partition.expand_isr()

    def _is_eligible(self, broker_id: BrokerId, epoch: BrokerEpoch) -> bool:
        """Whether a follower may join an ISR, as far as this broker knows (rule A10)."""
        known = self._metadata_cache.image.brokers.get(broker_id)
        return known is not None and known.epoch == epoch

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

    def registered(self, epoch: BrokerEpoch) -> None:
        """Use the epoch of a new registration; without it, replicas cannot join ISRs (rule A10)."""
        self.set_broker_epoch(epoch)
        self._fetchers.refetch()

    # Replicas in failed and full directories (rule C6).

    def offline(self) -> list[TopicPartition]:
        """Return the replicas of this broker that are, or may be, in failed directories."""
        found = [one.partition for one in self._logs if one.directory.failure is not None]
        lost = (key for key, one in self._failed.items() if self._is_out_of_reach(key, one.state))
        return [*dict.fromkeys((*found, *lost))]

    def _has_offline(self, failures: Failures) -> bool:
        return bool(failures) and any(
            self._is_out_of_reach(key, one.state)
            for key in failures
            if (one := self._failed.get(key)) is not None
        )

    async def stop_offline(self) -> None:
        """Do not fetch the replicas in failed directories any more."""
        failed = [one.partition for one in self._logs if one.directory.failure is not None]
        if not self._replica_manager.followers.keys().isdisjoint(failed):
            async with self._turn:
                await self._stop_following(failed)

    async def keep_following(self) -> None:
        """Follow partitions that lacked disk space, when there is some, until cancelled.

        Those that this broker was to lead are elected again by the controller.
        """
        while True:
            await self._clock.sleep(RETRY_SECONDS)
            async with self._turn:
                left = [
                    one
                    for key, one in self._failed.items()
                    if one.state.leader != self._node_id
                    and not self._is_out_of_reach(key, one.state)
                ]
                if left:
                    await self._become(left)

    # Giving up partitions.

    async def _stop(
        self, stopped: Sequence[StoppedReplica]
    ) -> Mapping[TopicPartition, RequestError]:
        """Delete replicas, but not one that was added again in a later leader epoch."""
        failures: dict[TopicPartition, RequestError] = {}
        for one in stopped:
            _, known = self._applied.get(one.partition, (None, None))
            error = stop_error(known, one.leader_epoch)
            if error is not ErrorCode.NONE:
                failures[one.partition] = RequestError(error)
        gone = [one.partition for one in stopped if one.delete and one.partition not in failures]
        return failures | await self._drop(gone)

    async def _delete_topics(self, names: Sequence[str]) -> Mapping[TopicPartition, RequestError]:
        """Delete topics with all their records; clients see at once that they are gone."""
        cache = self._metadata_cache
        had = [
            TopicPartition(name, PartitionIndex(index))
            for name in names
            if (found := cache.image.topics.get(name)) is not None
            for index in range(len(found.partitions))  # also those whose logs are offline
        ]
        cache.image = cache.image.without_topics(names)
        for name in names:
            self._replica_manager.traffic.pop(name, None)
        logs = [one.partition for name in names for one in self._logs.of_topic(name)]
        return await self._drop([*dict.fromkeys([*had, *logs])])

    async def _drop(
        self, keys: Sequence[TopicPartition], state: DirectoryState = DirectoryState.DELETED
    ) -> dict[TopicPartition, RequestError]:
        """Drop partitions with all their records."""
        turns = self._scheduler.new_loop()
        # All at once: no append to one partition of a topic while another is already gone.
        led = self._replica_manager.partitions
        dropped = [led.pop(key) for key in keys if key in led]
        for key in keys:
            self._applied.pop(key, None)
            self._failed.pop(key, None)
            if key.topic == OFFSETS_TOPIC:
                self._groups.resign(PartitionIndex(key.partition))
        async for partition in turns.over(drained(dropped)):
            partition.resign()
        await self._stop_following(keys)
        present = [key for key in keys if self._logs.get(key)]
        try:
            await self._logs.delete(present, state)
        except StorageFailure as failure:
            refused = RequestError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
            return dict.fromkeys(present, refused)
        return {}

    async def _set_strays_aside(self, image: ClusterImage) -> None:
        """Rename the logs that this broker should not have; they are removed later (rule B12).

        Their topic was deleted, or their replica was moved, while the broker did not hear of it.
        A broker that is alone keeps its logs: nobody else has a copy. So it does with a log without
        a topic id, and in a directory whose meta.properties did not name the cluster.
        """
        strays = [
            one.partition
            for one in self._logs
            if one.topic_id is not None
            and one.directory.meta_repair is None
            and one.directory.failure is None
            and not self._has_replica(image, one.topic_id, one.partition)
        ]
        for key in strays:
            _LOG.warning("stray partition set aside", {"partition": str(key)})
        for key, error in (await self._drop(strays, DirectoryState.STRAY)).items():
            about = {"partition": str(key), "reason": str(error)}
            _LOG.error("stray partition not set aside", about)
        self._logs.expire_strays()

    def _has_replica(self, image: ClusterImage, topic_id: Uuid, key: TopicPartition) -> bool:
        topic = image.topic_of_id(topic_id)
        state = None if topic is None else topic.partition(key.partition)
        return state is not None and self._node_id in state.replicas


def had_log(state: PartitionState) -> bool:
    """Whether a partition had a leader, and so a log, before the state that is applied."""
    return state.leader_epoch > 0


def _refused(failure: BaseException) -> RequestError:
    """Return the error of a partition that cannot be led or followed; raise what is unexpected."""
    if isinstance(failure, StorageFailure):
        return RequestError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
    if not isinstance(failure, RequestError):
        raise failure
    return failure
