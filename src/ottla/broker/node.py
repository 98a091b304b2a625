"""A broker node: start, serve, stop.

Invariant: no request is served before every log is open and the controller has told this broker
which partitions it leads. Nothing is appended after the listeners are closed. A clean stop flushes
everything and writes the clean shutdown files; an unclean one is detected at the next start.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence, Sized
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Final, Self, TypeVar

from ottla.broker.broker_only import BROKER_ONLY
from ottla.broker.configs import ConfigAdminManager
from ottla.broker.consumer_fetch_path import ConsumerFetchPath
from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.damage_repair import DamageRepair
from ottla.broker.directory_reporter import DirectoryReporter
from ottla.broker.dispatch import BrokerParts, dispatcher, served_to_brokers
from ottla.broker.effective_config import EffectiveConfig, without_read_only
from ottla.broker.fetch_sessions import FetchSessions
from ottla.broker.group_coordinator import GroupCoordinators
from ottla.broker.handlers import (
    alter_partition,
    assign_replicas_to_dirs,
    controlled_shutdown,
    describe_log_dirs,
)
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.metrics_page import MetricsPage
from ottla.broker.process_limits import UNLIMITED, ProcessLimits
from ottla.broker.produce_fast_path import ProduceFastPath
from ottla.broker.replica_fetch_path import ReplicaFetchPath
from ottla.broker.replica_manager import ReplicaManager
from ottla.broker.replica_roles import ReplicaRoles
from ottla.broker.request_metrics import RequestMetrics
from ottla.broker.self_balancer import SelfBalancer
from ottla.broker.shutdown import Shutdown
from ottla.broker.topics import Topics
from ottla.broker.traffic_window import TrafficWindow
from ottla.clock import Clock
from ottla.cluster.image import Address, Broker, ClusterImage
from ottla.cluster.partition_limit import partition_limit
from ottla.cluster.registration import NO_BROKER_EPOCH, Registration
from ottla.cluster.znodes import (
    CLUSTER_ID,
    PERSISTENT_PATHS,
    broker_path,
    format_cluster_id,
    parse_cluster_id,
)
from ottla.controller.controller import Apply, Controller, ControllerConfig
from ottla.controller.credential import ClusterCredential, cluster_credential
from ottla.controller.elector import ControllerElector
from ottla.controller.failure_detector import FailureDetector
from ottla.controller.lease import ControllerLease, RegistrationRefused, ensure, register
from ottla.controller.loading import load_broker_configs, load_topic_configs, load_topic_id
from ottla.controller.producer_ids import ProducerIds
from ottla.controller.remote_broker import RemoteBroker
from ottla.controller.store import ClusterStore
from ottla.coordination.errors import (
    ConnectionLoss,
    CoordinationError,
    NodeExists,
    SessionExpired,
)
from ottla.coordination.renewed_session import RenewedSession
from ottla.coordination.session import Coordination, Session, SessionState, WatchEvent
from ottla.errors import (
    RAISE_OPEN_FILES,
    ErrorCode,
    OttlaError,
    RequestError,
    StorageFailure,
)
from ottla.groups.config import GroupConfig
from ottla.ids import BrokerEpoch, BrokerId, TopicPartition, Uuid
from ottla.log.cleaner.cleaner_runners import Cleaner
from ottla.log.directory import DataDirectory
from ottla.log.disk import Disk
from ottla.log.log_cleaner import LogCleaner, LogCleanerConfig
from ottla.log.log_manager import LogManager
from ottla.log.maintenance import Maintenance, MaintenanceConfig
from ottla.protocol.apis import API_VERSIONS, FETCH, PRODUCE, SASL_AUTHENTICATE, SASL_HANDSHAKE
from ottla.protocol.conversation import Request, Response
from ottla.protocol.message import Message
from ottla.protocol.messages.alter_partition import AlterPartitionRequest
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from ottla.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from ottla.release import RELEASE
from ottla.replication.alter_partition import AlterPartitionManager
from ottla.replication.fetcher import FetcherConfig, ReplicaFetchers
from ottla.replication.quota import ReplicationQuota
from ottla.settings import broker, topic
from ottla.settings.config import Config
from ottla.settings.config_def import Setting
from ottla.settings.config_types import LONG_MAX
from ottla.settings.derived import log_dirs
from ottla.settings.endpoints import (
    advertised_listeners,
    inter_broker_listener,
    listeners,
    protocols,
)
from ottla.settings.invalid_settings import InvalidSettings
from ottla.transport.admission import Admission, AdmissionConfig
from ottla.transport.backoff import Backoff
from ottla.transport.broker_channels import BrokerChannels, ChannelsConfig, ControllerChannel
from ottla.transport.channel import Channel, open_channel
from ottla.transport.connection import (
    Connection,
    ConnectionConfig,
    DeferredResponse,
    Dispatch,
    Served,
    Turns,
)
from ottla.transport.connection_eviction import ConnectionEviction
from ottla.transport.descriptors import Descriptors
from ottla.transport.http_pages import PageServer
from ottla.transport.listener import Listener
from ottla.transport.login import BrokerLogin
from ottla.transport.memory_pool import MemoryPools
from ottla.transport.network import Network
from ottla.transport.pending_acks import PendingAck
from ottla.transport.port_owner import port_owner

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

FEW_CONNECTIONS: Final = 100  # fewer are worth a warning
FOLLOWER_RESPONSES: Final = 4  # responses of the largest size that the memory is enough for
FORWARD_LANES: Final = 5  # connections to the controller for the requests of clients
LOGIN_SECONDS: Final = 10.0  # for each step of a login at another broker
REGISTRATION_PAUSE_S: Final = 0.5  # after coordination has refused a registration
PROBE_SECONDS: Final = 2.0  # for a broker to show that its process lives
HAND_OVER_ATTEMPTS: Final = 3
HAND_OVER_PAUSE_S: Final = 0.5
HAND_OVER_SECONDS: Final = 5.0  # for each attempt
HAND_OVER_DISCONNECTED_SECONDS: Final = 1.5  # without coordination: probably it is down for all


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything that a broker takes from outside."""

    clock: Clock
    disk: Disk
    network: Network
    coordination: Coordination
    cleaner: Cleaner
    random: Callable[[], float]
    new_id: Callable[[], Uuid]
    random_bytes: Callable[[int], bytes]
    limits: ProcessLimits = UNLIMITED
    host_name: str | None = None  # of the machine that the broker runs on
    cluster_id: str | None = None  # of the data directories; coordination must have this cluster


class StartStopped(OttlaError):
    """The broker was stopped while its start waited for ZooKeeper or for the controller."""

    def __str__(self) -> str:
        return "stopped before the start was complete"


class StartStop:
    """Ends the waits of a start for other processes, which may be unreachable."""

    def __init__(self) -> None:
        self._is_requested = False
        self._is_over = False
        self._waiting: set[asyncio.Timeout] = set()

    def request(self) -> None:
        """End the current waits and the later ones."""
        self._is_requested = True
        for wait in self._waiting:
            wait.reschedule(asyncio.get_running_loop().time())

    def complete(self) -> None:
        """Note that the start is complete: what waits from now on is not ended."""
        self._is_over = True

    async def wait(self, work: Awaitable[T]) -> T:
        """Wait for the result of something that may be cancelled; raises StartStopped."""
        if self._is_over:
            return await work
        wait = asyncio.timeout(0 if self._is_requested else None)
        self._waiting.add(wait)
        try:
            async with wait:
                return await work
        except TimeoutError:
            if not wait.expired():
                raise
            raise StartStopped from None
        finally:
            self._waiting.remove(wait)


class Node:
    """One broker; `async with` starts and stops it."""

    def __init__(
        self,
        config: Config,
        node_id: BrokerId,
        environment: Environment,
        give_up: Callable[[], None] = lambda: None,
        start_stop: StartStop | None = None,
    ) -> None:
        """A broker that calls `give_up` when it cannot continue; the caller then stops it."""
        self.id = node_id
        self._give_up = give_up
        self._config = config
        self._environment = environment
        self._effective_config: EffectiveConfig | None = None
        self._dispatch: Dispatch | None = None
        self._epoch = NO_BROKER_EPOCH  # of the registration
        self._incarnation = environment.new_id()
        self._served = served_to_brokers()
        self._exit = AsyncExitStack()
        self._listeners: list[Listener] = []
        self._memory = MemoryPools(
            config[broker.QUEUED_MAX_REQUEST_BYTES],
            config[broker.OTTLA_QUEUED_MAX_RESPONSE_BYTES],
            FOLLOWER_RESPONSES * config[broker.REPLICA_FETCH_RESPONSE_MAX_BYTES],
        )
        self._logs: Sized = ()  # until they are open
        self._partition_limit = partition_limit(
            config[broker.OTTLA_PARTITIONS_MAX],
            environment.limits.open_files_max(),
            environment.limits.memory_bytes,
        )
        self._descriptors = Descriptors(
            environment.limits.open_files_max,
            environment.limits.open_files,
            lambda: len(self._logs),
            lambda: sum(len(one.connections) + len(one.waiting) for one in self._listeners),
        )
        self.addresses: dict[str, Address] = {}  # advertised addresses, by listener
        self.metrics: Address | None = None  # the address of the metrics page
        self.no_metrics: str | None = None  # why the configured metrics page is missing
        self._metadata_cache: MetadataCache | None = None
        self.replica_manager: ReplicaManager | None = None  # once the logs are open
        self._topics: Topics | None = None
        self._reporter: DirectoryReporter | None = None
        self._roles: ReplicaRoles | None = None
        self._unregistered = asyncio.Event()  # the session or the registration may have ended
        self._disconnected_s = -inf  # when the session was last without a connection
        self._connected = asyncio.Event()  # whether the session has a connection
        self._released = asyncio.Event()  # requests wait until the start is complete, or fails
        self.given_up = False  # all data directories have failed
        self.hands_over = True  # whether other brokers take over before it stops
        self._handing_over: asyncio.Timeout | None = None
        self._start_stop = start_stop or StartStop()
        self.unclean: dict[
            str, BaseException
        ] = {}  # directories without a clean shutdown file, and why

    @property
    def image(self) -> ClusterImage | None:
        """The cluster as this broker knows it; None before the start."""
        return None if self._metadata_cache is None else self._metadata_cache.image

    async def bind(self) -> None:
        """Bind the addresses before the start, which otherwise binds them itself.

        A first start does this before it writes anything, so that it leaves nothing behind if an
        address is taken.
        """
        try:
            await self._bind_listeners()
        except BaseException:
            await self._exit.aclose()
            raise

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._exit.aclose()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._exit.aclose()

    # Starting. Parts are stopped in reverse order.

    async def _start(self) -> None:
        environment, config = self._environment, self._config
        began_s = environment.clock.elapsed_s()
        coordination = environment.coordination
        session = RenewedSession(
            coordination,
            await self._start_stop.wait(coordination.connect(self._session_changed)),
            self._session_changed,
        )
        self._connected.set()
        self._exit.push_async_callback(_close, session)

        async def find_cluster() -> str:
            if environment.cluster_id is not None:
                await _check_cluster(session, environment.cluster_id)
            await ensure(session, PERSISTENT_PATHS)
            return await _cluster_id(session, environment.new_id)

        async def find_credential() -> ClusterCredential:
            with session.provisional():
                return await cluster_credential(session, environment.random_bytes)

        cluster_id = await self._repeat(session, find_cluster)
        if not self._listeners:
            await self._bind_listeners()
        credential = await self._repeat(session, find_credential)
        settings = await self._repeat(session, partial(self._settings, session))
        self._effective_config = settings
        settings.know(await self._repeat(session, partial(load_topic_configs, session)))

        def directory_failed(
            directory: DataDirectory, partitions: Sequence[TopicPartition]
        ) -> None:
            self._directory_failed(logs)

        async def current_id(topic: str) -> Uuid | None:
            return await self._repeat(session, partial(load_topic_id, session, topic))

        logs = await LogManager.open(
            environment.disk,
            log_dirs(config),
            settings.log_config,
            cluster_id=cluster_id,
            node_id=self.id,
            clock=environment.clock,
            random=environment.random,
            new_id=environment.new_id,
            parallel=config[broker.NUM_RECOVERY_THREADS_PER_DATA_DIR],
            offline=directory_failed,
            full=self._directory_full,
            current_id=current_id,
        )
        self._logs = logs
        self._exit.push_async_callback(self._close_logs, logs)
        metadata_cache = self._metadata_cache = MetadataCache(ClusterImage(cluster_id))
        replica_manager = self.replica_manager = ReplicaManager(
            logs,
            metadata_cache,
            self._quota(
                settings,
                broker.LEADER_REPLICATION_THROTTLED_RATE,
                topic.LEADER_REPLICATION_THROTTLED_REPLICAS,
                self._sends_to_new,
            ),
        )
        groups = GroupCoordinators(
            lambda: GroupConfig.of(settings.broker), environment.clock, metadata_cache
        )
        shutdown = Shutdown()
        scheduler = CooperativeScheduler(environment.clock, shutdown)
        channels, fetch_channels = (
            self._channels(metadata_cache, credential, purpose) for purpose in ("", "fetcher-")
        )
        forward_channels = self._channels(metadata_cache, credential, "forwarder-", FORWARD_LANES)
        controller_channel, forward_channel = (
            ControllerChannel(
                one,
                lambda: metadata_cache.image.controller,
                clock=environment.clock,
                backoff=self._backoff,
            )
            for one in (channels, forward_channels)
        )
        fetchers = ReplicaFetchers(
            self.id,
            channels=fetch_channels,
            logs=logs,
            config=FetcherConfig.of(settings.broker),
            broker_epoch=lambda: self._epoch,
            clock=environment.clock,
            random=environment.random,
            counts=replica_manager.replication,
            quota=self._quota(
                settings,
                broker.FOLLOWER_REPLICATION_THROTTLED_RATE,
                topic.FOLLOWER_REPLICATION_THROTTLED_REPLICAS,
                self._is_new,
            ),
        )
        self._exit.push_async_callback(fetch_channels.close)
        self._exit.push_async_callback(forward_channels.close)
        self._exit.push_async_callback(channels.close)
        self._exit.push_async_callback(fetchers.close)
        alter_partition_manager = AlterPartitionManager(
            controller_channel,
            self.id,
            lambda: self._epoch,
            clock=environment.clock,
            backoff=self._backoff,
            counts=replica_manager.replication,
        )
        self._run(alter_partition_manager.run())
        roles = ReplicaRoles(
            node_id=self.id,
            clock=environment.clock,
            settings=settings,
            metadata_cache=metadata_cache,
            replica_manager=replica_manager,
            groups=groups,
            scheduler=scheduler,
            fetchers=fetchers,
            propose=alter_partition_manager.propose,
        )
        self._roles = roles
        self._reporter = DirectoryReporter(
            self.id,
            clock=environment.clock,
            logs=logs,
            metadata_cache=metadata_cache,
            roles=roles,
            channel=controller_channel,
            backoff=self._backoff,
        )
        topics = Topics(
            node_id=self.id,
            clock=environment.clock,
            settings=settings,
            metadata_cache=metadata_cache,
            replica_manager=replica_manager,
            roles=roles,
            partition_limit=self._partition_limit,
            new_id=environment.new_id,
            random=environment.random,
            shutdown=shutdown,
            forward_channel=forward_channel,
        )
        self._topics = topics
        traffic = TrafficWindow(
            replica_manager.traffic,
            environment.clock,
            lambda: settings.broker[broker.OTTLA_BALANCE_WINDOW_MS] / 1000,
        )
        self._run(traffic.run())
        self_balancer = SelfBalancer(
            node_id=self.id,
            clock=environment.clock,
            settings=settings,
            topics=topics,
            channels=channels,
            scheduler=scheduler,
            traffic=traffic,
            own_directories=partial(describe_log_dirs.describe, None, settings, replica_manager),
        )
        request_metrics = RequestMetrics(self._served)
        fetch_sessions = self._fetch_sessions(settings)
        failure_detector = self._failure_detector(credential, topics, lambda: elector)
        parts = BrokerParts(
            node_id=self.id,
            clock=environment.clock,
            new_id=environment.new_id,
            settings=settings,
            metadata_cache=metadata_cache,
            replica_manager=replica_manager,
            groups=groups,
            topics=topics,
            roles=roles,
            channels=channels,
            forward_channel=forward_channel,
            config_admin=ConfigAdminManager(
                node_id=self.id, metadata_cache=metadata_cache, topics=topics
            ),
            fetch_sessions=fetch_sessions,
            cluster_credential=credential,
            producer_ids=ProducerIds(session, self.id),
            produce_fast_path=ProduceFastPath(
                partitions=replica_manager.partitions,
                metadata_cache=metadata_cache,
                clock=environment.clock,
                counts=request_metrics.of(PRODUCE),
            ),
            consumer_fetch_path=ConsumerFetchPath(
                clock=environment.clock,
                settings=settings,
                metadata_cache=metadata_cache,
                replica_manager=replica_manager,
                fetch_sessions=fetch_sessions,
                shutdown=shutdown,
                counts=request_metrics.of(FETCH),
            ),
            replica_fetch_path=ReplicaFetchPath(
                clock=environment.clock,
                settings=settings,
                replica_manager=replica_manager,
                fetch_sessions=fetch_sessions,
                shutdown=shutdown,
                counts=request_metrics.of(FETCH),
            ),
            traffic=traffic,
            self_balancer=self_balancer,
            request_metrics=request_metrics,
            scheduler=scheduler,
            shutdown=shutdown,
            failure_detector=failure_detector,
        )
        elector = ControllerElector(
            session,
            self.id,
            environment.clock,
            partial(
                self._take_over,
                cluster_id,
                topics,
                roles,
                metadata_cache,
                channels,
                failure_detector,
            ),
            topics.resign,
            dead=lambda: failure_detector.dead,
            session_timeout_s=self._session_timeout_s,
        )
        self._exit.push_async_callback(topics.resign)  # no topic changes after this
        dispatch = dispatcher(parts)
        self._dispatch = partial(_dispatch_when, self._released, roles.informed, dispatch)
        await self._serve(parts)

        async def join_cluster() -> None:
            with session.provisional():
                self._epoch = await self._register(session, logs)
                roles.set_broker_epoch(self._epoch)
                await elector.elect()

        await self._repeat(session, join_cluster)
        self._run(elector.run())
        self._unregistered.set()  # watch the registration
        self._run(self._keep_registered(session, logs, roles, elector))
        self._run(failure_detector.run(roles.brokers_changed, lambda: metadata_cache.image.brokers))
        self._run(self._check_isrs(replica_manager))
        await self._start_stop.wait(roles.informed.wait())
        self._start_stop.complete()
        self._released.set()
        self._dispatch = dispatch
        self._run(self._reporter.run())
        damage_repair = DamageRepair(
            self.id,
            clock=environment.clock,
            logs=logs,
            metadata_cache=metadata_cache,
            channels=channels,
            scheduler=scheduler,
        )
        self._run(damage_repair.run())
        self._run(roles.keep_following())
        self._run(topics.keep_leading())
        self._run(topics.keep_balanced())
        self._run(self_balancer.run())
        self._exit.push_async_callback(self._hand_over, session, metadata_cache, controller_channel)
        self._log_limits(topics)
        _LOG.info(
            "broker started",
            {
                "node": self.id,
                "cluster": cluster_id,
                "topics": len(metadata_cache.image.topics),
                "partitions": len(replica_manager.partitions),
                "seconds": round(environment.clock.elapsed_s() - began_s, 3),
            },
        )

    def _log_limits(self, topics: Topics) -> None:
        limit = self._environment.limits.open_files_max()
        connections = self._descriptors.connections_max
        if limit is None or connections is None:
            return
        about = {
            "open_files": limit,
            "connections": connections,
            "partitions": topics.partition_limit.partitions,
        }
        if connections < FEW_CONNECTIONS:
            _LOG.warning("limits set", {**about, "remedy": RAISE_OPEN_FILES})
        else:
            _LOG.info("limits set", about)
        asked = self._config[broker.OTTLA_PARTITIONS_MAX]
        if asked is not None and asked > topics.partition_limit.partitions:
            lowered = {"limit": str(topics.partition_limit), "remedy": RAISE_OPEN_FILES}
            _LOG.warning("partition limit lowered", lowered)

    async def _register(
        self, session: Session, logs: LogManager, *, was_taken_for_dead: bool = False
    ) -> BrokerEpoch:
        registration = Registration(
            self._me,
            self._incarnation,
            dict(protocols(self._config)),
            tuple(one.id for one in logs.directories if one.id is not None),
            logs.last_clean_epoch,
            self._environment.clock.now_ms(),
            was_taken_for_dead,
            self._partition_limit.partitions,
        )
        return await register(session, registration, self._answers)

    async def _answers(self, other: Registration) -> bool:
        """Whether the process of a registration listens at its address for brokers."""
        between = inter_broker_listener(self._config)
        assert between is not None, "broker_config checks it"
        address = other.broker.addresses.get(between.name)
        if address is None or address in self.addresses.values():
            return False  # this broker has bound it
        connected: list[asyncio.BaseTransport] = []
        with suppress(OSError):  # also a timeout
            async with asyncio.timeout(PROBE_SECONDS):
                await self._environment.network.connect(
                    lambda: _Probe(connected), address.host, address.port
                )
        for transport in connected:
            transport.close()
        return bool(connected)

    async def _keep_registered(
        self,
        session: RenewedSession,
        logs: LogManager,
        roles: ReplicaRoles,
        elector: ControllerElector,
    ) -> None:
        """Register again after the session has expired, until cancelled (rules B8 and B10).

        The controller deletes the registration of a broker that refuses connections. If the session
        lives, this broker does, and registers again (rule B13). Meanwhile the broker serves with
        the committed ISRs.
        """
        clock = self._environment.clock
        while True:
            await self._unregistered.wait()
            self._unregistered.clear()
            try:
                with suppress(SessionExpired):
                    await session.connected()
                is_expired = session.state is SessionState.LOST
                if is_expired:
                    await elector.lose()
                    await self._renew(session)
                elif await session.exists(broker_path(self.id), self._watch_registration):
                    continue
                self._epoch = await self._register(session, logs, was_taken_for_dead=not is_expired)
                roles.registered(self._epoch)
            except (CoordinationError, RegistrationRefused, StorageFailure) as error:
                _LOG.warning("broker not registered again", {"reason": str(error)})
                await clock.sleep(REGISTRATION_PAUSE_S)
                self._unregistered.set()
                continue
            _LOG.info("broker registered again", {"node": self.id, "epoch": self._epoch})
            self._unregistered.set()  # watch the new registration
            elector.stand()

    async def _renew(self, session: RenewedSession) -> None:
        await session.renew()
        self._disconnected_s = self._environment.clock.elapsed_s()
        self._connected.set()

    async def _repeat(self, session: RenewedSession, work: Callable[[], Awaitable[T]]) -> T:
        """Work with the session during the start; repeat it if the session is lost meanwhile.

        Recovery of the logs can take longer than the session timeout.
        """
        while True:
            try:
                return await work()
            except ConnectionLoss:
                with suppress(SessionExpired):
                    await self._start_stop.wait(session.connected())
            except SessionExpired:
                _LOG.warning("session expired during the start", {"node": self.id})
                await self._start_stop.wait(self._renew(session))

    def _watch_registration(self, event: WatchEvent) -> None:
        self._unregistered.set()

    @property
    def _me(self) -> Broker:
        config = self._config
        host = config[broker.OTTLA_BROKER_HOST] or self._environment.host_name
        return Broker(self.id, self._epoch, self.addresses, config[broker.BROKER_RACK], host)

    async def _take_over(
        self,
        cluster_id: str,
        topics: Topics,
        roles: ReplicaRoles,
        metadata_cache: MetadataCache,
        channels: BrokerChannels,
        failure_detector: FailureDetector,
        lease: ControllerLease,
        resign: Callable[[], None],
    ) -> None:
        """Become the controller."""
        settings, clock = self._effective_config, self._environment.clock
        session_timeout_s = self._session_timeout_s
        assert settings is not None

        def connect(other: Broker) -> Apply:
            if other.id == self.id:
                return roles.apply
            return RemoteBroker(other.id, channels, lambda: controller.image).apply

        controller = Controller(
            node_id=self.id,
            clock=clock,
            store=ClusterStore(lease),
            epoch=lease.epoch,
            cluster_id=cluster_id,
            config=ControllerConfig(
                min_isr=settings.in_sync_min,
                unclean=settings.unclean,
                session_timeout_s=session_timeout_s,
            ),
            connect=connect,
            latest_epoch=roles.latest_epoch,
            create_logs=roles.create_logs,
            refusal=topics.shutdown.refusal_if_begun,
            on_resigned=resign,
            counts=topics.controller_counts,
            acts=self._connected,
        )
        found = await controller.load()
        found = await controller.without_dead(found, failure_detector.dead)
        answering: dict[BrokerId, Broker] = {}
        if clock.elapsed_s() - self._disconnected_s < session_timeout_s:
            known = metadata_cache.image.brokers.items()
            others = [one for number, one in known if number not in found.registrations]
            answering = await _answering(others, channels)
        await topics.take_over(
            controller, found, is_first=not roles.informed.is_set(), answering=answering
        )

    def _failure_detector(
        self,
        credential: ClusterCredential,
        topics: Topics,
        elector: Callable[[], ControllerElector],
    ) -> FailureDetector:
        """Return the failure detector of the other brokers (rule B13)."""
        environment, between = self._environment, inter_broker_listener(self._config)
        assert between is not None, "broker_config checks it"
        login = BrokerLogin(credential.login(), ("ottla", RELEASE), LOGIN_SECONDS)

        async def connect(address: Address, ended: Callable[[], None]) -> Channel:
            channel = await open_channel(
                environment.network,
                address.host,
                address.port,
                client_id=f"broker-watch-{self.id}",
                software=("ottla", RELEASE),
                setup_timeout_s=LOGIN_SECONDS,
                request_timeout_s=LOGIN_SECONDS,
                ended=ended,
            )
            try:
                await login(channel)
            except BaseException:
                channel.close()
                raise
            return channel

        async def died(one: Broker) -> None:
            if topics.is_controller:
                await topics.controller.remove_dead(one.id, one.epoch)
            else:
                elector().stand()

        return FailureDetector(
            self.id,
            between.name,
            clock=environment.clock,
            connect=connect,
            refuses=environment.network.refuses,
            is_enabled=lambda: self._current[broker.OTTLA_FAST_FAILOVER_ENABLE],
            on_dead=died,
        )

    @property
    def _session_timeout_s(self) -> float:
        return self._config[broker.ZOOKEEPER_SESSION_TIMEOUT_MS] / 1000

    def _channels(
        self,
        metadata_cache: MetadataCache,
        credential: ClusterCredential,
        purpose: str,
        lanes: int = 1,
    ) -> BrokerChannels:
        """Return connections to the other brokers."""
        environment, between = self._environment, inter_broker_listener(self._config)
        assert between is not None, "broker_config checks it"

        def find(broker_id: BrokerId) -> Broker | None:
            # The controller knows new brokers before the metadata cache.
            topics = self._topics
            if topics is not None and topics.is_controller:
                return topics.controller.image.brokers.get(broker_id)
            return metadata_cache.image.brokers.get(broker_id)

        return BrokerChannels(
            self.id,
            ChannelsConfig(
                client_id=f"broker-{purpose}{self.id}",
                listener=between.name,
                backoff=self._backoff,
                lanes=lanes,
            ),
            network=environment.network,
            clock=environment.clock,
            broker=find,
            serve=self._serve_own,
            login=BrokerLogin(credential.login(), ("ottla", RELEASE), LOGIN_SECONDS),
        )

    @property
    def _backoff(self) -> Backoff:
        return Backoff(0.05, 1.0, self._environment.random)

    async def _serve_own(self, message: Message) -> Message:
        """Serve a request of this broker to itself."""
        assert self._topics is not None
        if isinstance(message, ControlledShutdownRequest):
            return await controlled_shutdown.answer(message, self._topics)
        if isinstance(message, AssignReplicasToDirsRequest):
            return await assign_replicas_to_dirs.answer(message, self._topics)
        if isinstance(message, AlterPartitionRequest):
            return await alter_partition.answer(message, self._topics)
        # A request of a client that this broker, as controller, would not have forwarded.
        raise RequestError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller any more")

    def hurry(self) -> None:
        """Stop without waiting until other brokers have taken over."""
        self.hands_over = False
        self._limit_hand_over(0)

    def _limit_hand_over(self, seconds: float) -> None:
        if self._handing_over is not None and not self._handing_over.expired():
            self._handing_over.reschedule(asyncio.get_running_loop().time() + seconds)

    async def _hand_over(
        self, session: Session, metadata_cache: MetadataCache, channel: ControllerChannel
    ) -> None:
        """Let other brokers take over before this one stops (rule B11)."""
        if not (self.hands_over and self._current[broker.CONTROLLED_SHUTDOWN_ENABLE]):
            return
        try:
            async with asyncio.timeout(None) as self._handing_over:
                if session.state is not SessionState.CONNECTED:
                    self._limit_hand_over(HAND_OVER_DISCONNECTED_SECONDS)
                await self._shut_down_controlled(metadata_cache, channel)
        except TimeoutError:
            _LOG.warning("leaderships not handed over", {"node": self.id})
        finally:
            self._handing_over = None

    async def _shut_down_controlled(
        self, metadata_cache: MetadataCache, channel: ControllerChannel
    ) -> None:
        clock = self._environment.clock
        for attempt in range(HAND_OVER_ATTEMPTS):
            if not metadata_cache.image.brokers.keys() - {self.id}:
                return  # there is nobody to take over
            if attempt:
                await clock.sleep(HAND_OVER_PAUSE_S)
            request = ControlledShutdownRequest(broker_id=self.id, broker_epoch=self._epoch)
            try:
                answer = await channel.ask(
                    request, ControlledShutdownResponse, timeout_s=HAND_OVER_SECONDS
                )
            except RequestError as error:
                _LOG.warning("controlled shutdown failed", {"reason": str(error)})
                continue
            if answer.error_code == ErrorCode.NONE and not answer.remaining_partitions:
                _LOG.info("leaderships handed over", {"node": self.id})
                return
            left = len(answer.remaining_partitions)
            about = {"error": ErrorCode(answer.error_code).name, "remaining": left}
            _LOG.warning("controlled shutdown incomplete", about)

    async def _check_isrs(self, replica_manager: ReplicaManager) -> None:
        """Let slow followers leave the ISR (rule A9), until cancelled."""
        clock = self._environment.clock
        while True:
            await clock.sleep(self._current[broker.REPLICA_LAG_TIME_MAX_MS] / 2000)
            now_s = clock.elapsed_s()
            for partition in [*replica_manager.partitions.values()]:
                if partition.in_sync is not None:
                    partition.check_isr(now_s)

    async def _settings(self, session: Session) -> EffectiveConfig:
        dynamic = await load_broker_configs(session)
        try:
            settings = EffectiveConfig(
                self._config,
                cluster=without_read_only(dynamic.get(None)),
                own=without_read_only(dynamic.get(self.id)),
            )
        except InvalidSettings as error:
            raise OttlaError(
                f"dynamic settings conflict with the properties file: {error}"
            ) from error
        for own in (False, True):
            settings.warn_of_broker({}, own=own)
        return settings

    def _quota(
        self,
        settings: EffectiveConfig,
        rate: Setting[int],
        replicas: Setting[tuple[str, ...]],
        is_copied: Callable[[TopicPartition], bool],
    ) -> ReplicationQuota:
        def copied_max() -> int:
            config = settings.broker
            if not config[broker.OTTLA_BALANCE_ENABLE]:
                return LONG_MAX
            return config[broker.OTTLA_BALANCE_THROTTLE_BYTES_PER_SECOND]

        return ReplicationQuota(
            self.id,
            self._environment.clock,
            bytes_max=lambda: settings.broker[rate],
            throttled=lambda name: settings.topic_values(name).get(replicas.name, ""),
            copied_max=copied_max,
            is_copied=is_copied,
            windows=self._config[broker.REPLICATION_QUOTA_WINDOW_NUM],
            window_s=self._config[broker.REPLICATION_QUOTA_WINDOW_SIZE_SECONDS],
        )

    def _sends_to_new(self, name: TopicPartition) -> bool:
        """Whether a reassignment adds replicas of a partition that this broker leads."""
        assert self.replica_manager is not None
        led = self.replica_manager.partitions.get(name)
        return led is not None and led.in_sync is not None and bool(led.in_sync.state.adding)

    def _is_new(self, name: TopicPartition) -> bool:
        """Whether a reassignment adds the replica of this broker."""
        assert self.replica_manager is not None
        followed = self.replica_manager.followers.get(name)
        return followed is not None and self.id in followed.state.adding

    def _fetch_sessions(self, settings: EffectiveConfig) -> FetchSessions:
        return FetchSessions(
            lambda: settings.broker[broker.MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS],
            lambda: 1 + int(self._environment.random() * (2**31 - 2)),
        )

    async def _bind_listeners(self) -> None:
        """Bind the addresses, so that they can be registered; connections are accepted later."""
        environment, config = self._environment, self._config
        admission = Admission(lambda: AdmissionConfig.of(self._current))
        eviction = ConnectionEviction(admission, self._descriptors)
        between = inter_broker_listener(config)
        advertised_by_name = {one.name: one for one in advertised_listeners(config)}
        endpoints, turns = listeners(config), Turns()
        # broker_config refuses these: without TLS and SASL, the listener would be open to everyone.
        assert not any(endpoint.tls or endpoint.sasl for endpoint in endpoints)
        assert not config[broker.AUTHORIZER_CLASS_NAME]
        for endpoint in endpoints:
            exempt = endpoint == between and len(endpoints) > 1
            listener = Listener(
                endpoint.name,
                self._dispatch_request,
                network=environment.network,
                clock=environment.clock,
                admission=self._admission(endpoint.name, admission, exempt=exempt),
                config=self._connection_config,
                memory=self._memory,
                turns=turns,
                descriptors=self._descriptors,
                evict_excess=eviction.evict_excess,
            )
            if not exempt:
                eviction.listeners.append(listener)
            backlog = config[broker.SOCKET_LISTEN_BACKLOG_SIZE]
            port = await listener.hold(endpoint.host or None, endpoint.port, backlog)
            self._exit.push_async_callback(listener.close)
            self._listeners.append(listener)
            advertised = advertised_by_name.get(endpoint.name, endpoint)
            self.addresses[endpoint.name] = Address(
                advertised.host or "localhost", advertised.port or port
            )

    def _admission(self, listener: str, parent: Admission, *, exempt: bool) -> Admission:
        return Admission(
            lambda: AdmissionConfig.of_listener(self._current, listener), parent, exempt=exempt
        )

    @property
    def _current(self) -> Config:
        """The effective config; the properties file until the dynamic configs are loaded."""
        return self._config if self._effective_config is None else self._effective_config.broker

    def _connection_config(self) -> ConnectionConfig:
        return ConnectionConfig(
            self._served,
            self._config[broker.SOCKET_REQUEST_MAX_BYTES],
            self._config[broker.CONNECTIONS_MAX_IDLE_MS],
            self._config[broker.SOCKET_SEND_BUFFER_BYTES],
            self._config[broker.SOCKET_RECEIVE_BUFFER_BYTES],
            self._config[broker.CONNECTION_FAILED_AUTHENTICATION_DELAY_MS],
        )

    def _dispatch_request(self, request: Request, connection: Connection) -> Served:
        assert self._dispatch is not None, "listeners start after the dispatcher exists"
        return self._dispatch(request, connection)

    async def _serve(self, parts: BrokerParts) -> None:
        settings, replica_manager = parts.settings, parts.replica_manager
        maintenance = Maintenance(
            replica_manager.logs,
            lambda: MaintenanceConfig.of(settings.broker),
            replica_manager.high_watermark,
        )
        self._run(maintenance.run())
        log_cleaner = LogCleaner(
            replica_manager.logs,
            self._environment.cleaner,
            lambda: LogCleanerConfig.of(settings.broker),
            replica_manager.high_watermark,
            self._environment.new_id(),
        )
        self._run(log_cleaner.run())
        for listener in self._listeners:
            self._run(listener.run())
            await listener.start(
                parts.produce_fast_path.serve,
                parts.consumer_fetch_path.serve,
                parts.replica_fetch_path.serve,
            )
            address = self.addresses[listener.name]
            where = {one.name: one.host for one in listeners(self._config)}[listener.name]
            _LOG.info(
                "listener started",
                {
                    "listener": listener.name,
                    "on": where or "all addresses",
                    "host": address.host,
                    "port": address.port,
                },
            )
            # Listeners are closed before anything else.
            self._exit.push_async_callback(listener.close)
        self._exit.callback(self._wake_waiting_requests, parts)
        await self._open_metrics_page(parts, log_cleaner)

    async def _open_metrics_page(self, parts: BrokerParts, log_cleaner: LogCleaner) -> None:
        """Open the metrics page; a failure is only logged."""
        host, _, port = self._config[broker.OTTLA_METRICS_LISTENER].rpartition(":")
        if not port:
            return
        page = MetricsPage(
            node_id=self.id,
            started_ms=parts.clock.now_ms(),
            listeners=self._listeners,
            memory=self._memory,
            metadata_cache=parts.metadata_cache,
            replica_manager=parts.replica_manager,
            roles=parts.roles,
            topics=parts.topics,
            self_balancer=parts.self_balancer,
            log_cleaner=log_cleaner,
            groups=parts.groups,
            fetch_sessions=parts.fetch_sessions,
            request_metrics=parts.request_metrics,
        )
        server = PageServer(page.pages())
        host = host.strip("[]")
        try:
            opened = await server.open(self._environment.network, host or None, int(port))
        except (OSError, OverflowError) as error:
            who, where = port_owner(int(port)), str(Address(host, int(port)))
            self.no_metrics = f"{where} is in use by {who}" if who else f"{where}: {error}"
            _LOG.warning(
                "metrics page not started",
                {"listener": where, "reason": str(error)} | ({"owner": who} if who else {}),
            )
            return
        self._exit.callback(server.close)
        self.metrics = Address(host or "localhost", opened)
        _LOG.info("metrics page started", {"url": f"http://{self.metrics}/metrics"})

    def _wake_waiting_requests(self, parts: BrokerParts) -> None:
        """Answer requests that wait for a group or for records: they must not delay the stop."""
        parts.shutdown.begun = True
        self._released.set()
        parts.groups.close()
        self._memory.wake_all()
        parts.replica_manager.wake_all()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task until the broker stops."""
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(_log_failed_task)

        async def end() -> None:
            task.cancel()
            # A task that ended by itself was logged; the others have to be stopped all the same.
            with suppress(asyncio.CancelledError, Exception):
                await task

        self._exit.push_async_callback(end)

    def _directory_full(self, directory: DataDirectory) -> None:
        if self._reporter is not None:
            self._reporter.note_full(directory)

    def _directory_failed(self, logs: LogManager) -> None:
        if self._roles is not None:
            self._roles.directories_changed.set()
        if not logs.online:
            self.given_up = True
            self._give_up()

    async def _close_logs(self, logs: LogManager) -> None:
        self.unclean = await logs.close(self._epoch)

    def _session_changed(self, now: SessionState) -> None:
        self._disconnected_s = self._environment.clock.elapsed_s()  # until now, or from now on
        if now is SessionState.LOST:
            self._unregistered.set()
        if now is SessionState.CONNECTED:
            self._connected.set()
        else:
            self._connected.clear()
            self._limit_hand_over(HAND_OVER_DISCONNECTED_SECONDS)
            _LOG.error("coordination session changed", {"state": now.value})


async def _answering(brokers: Sequence[Broker], channels: BrokerChannels) -> dict[BrokerId, Broker]:
    """Return the brokers that respond to a request."""
    request = ApiVersionsRequest(client_software_name="ottla", client_software_version=RELEASE)

    async def answers(one: Broker) -> bool:
        with suppress(RequestError):
            await channels.ask(one.id, request, ApiVersionsResponse, timeout_s=PROBE_SECONDS)
            return True
        return False

    answered = await asyncio.gather(*map(answers, brokers))
    return {one.id: one for one, did in zip(brokers, answered, strict=True) if did}


class _Probe(asyncio.Protocol):
    """A connection that sends nothing."""

    def __init__(self, connected: list[asyncio.BaseTransport]) -> None:
        self._connected = connected

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connected.append(transport)


_AT_ONCE: Final = BROKER_ONLY | {API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE}


def _dispatch_when(
    released: asyncio.Event,
    informed: asyncio.Event,
    dispatch: Dispatch,
    request: Request,
    connection: Connection,
) -> Served:
    """Dispatch a request once the controller has told this broker what it leads.

    Logins and requests between brokers do not wait: the controller uses them to tell it.
    """
    if informed.is_set() or request.api in _AT_ONCE:
        return dispatch(request, connection)

    async def later() -> Response | None:
        await released.wait()
        if not informed.is_set():  # the broker stops before it has started
            connection.close()
            return None
        served = dispatch(request, connection)
        if isinstance(served, DeferredResponse):
            response = await served.response
            if served.ack is None:
                if served.on_response is not None:
                    served.on_response(response)
                return response
            served.ack.on_response = served.on_response
            served = served.ack
        if not isinstance(served, PendingAck):
            return served
        return await served.completed()

    return DeferredResponse(later())


async def _close(session: Session) -> None:
    """End a session; if its store fails now, its next start ends it."""
    try:
        await session.close()
    except StorageFailure as failure:
        _LOG.warning("coordination session not closed", {"reason": str(failure)})


def _log_failed_task(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _LOG.error("background task failed", exc_info=error)


async def _check_cluster(session: Session, cluster_id: str) -> None:
    """Refuse to create a cluster for data directories that belong to another one."""
    if await session.exists(CLUSTER_ID) is None:
        raise OttlaError(
            f"there is no cluster in ZooKeeper, and the data directories belong to cluster "
            f"{cluster_id}: correct zookeeper.connect, or set log.dirs to other directories"
        )


async def _cluster_id(session: Session, new_id: Callable[[], Uuid]) -> str:
    """Return the cluster id; the first broker creates it."""
    if await session.exists(CLUSTER_ID) is None:
        with suppress(NodeExists):
            await session.create(CLUSTER_ID, format_cluster_id(str(new_id())))
    return parse_cluster_id((await session.get(CLUSTER_ID)).data)
