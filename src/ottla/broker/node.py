"""A broker from its start to its end.

Invariant: nothing is served before every log is open and every partition is led, and nothing is
appended after the listeners are closed. A stop that was asked for leaves everything on the device
and says so; one that was not is found out at the next start.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any, Self

from ottla.broker.dispatch import dispatcher, served
from ottla.broker.effective_config import EffectiveConfig
from ottla.broker.fetch_sessions import FetchSessions
from ottla.broker.group_coordinator import GroupCoordinators
from ottla.broker.metrics_page import pages
from ottla.broker.state import BrokerState
from ottla.broker.topics import Topics
from ottla.clock import Clock
from ottla.cluster.image import Address, Broker, ClusterImage
from ottla.cluster.znodes import CLUSTER_ID, PERSISTENT_PATHS, format_cluster_id, parse_cluster_id
from ottla.controller.lease import ControllerLease, elect, ensure, register
from ottla.controller.producer_ids import ProducerIds
from ottla.controller.store import ClusterStore
from ottla.coordination.errors import NodeExists
from ottla.coordination.session import Coordination, Session, SessionState
from ottla.errors import OttlaError
from ottla.groups.config import GroupConfig
from ottla.ids import BrokerEpoch, BrokerId, Offset, TopicPartition, Uuid
from ottla.log.cleaner import Cleaner
from ottla.log.compactor import Compactor, CompactorConfig
from ottla.log.disk import Disk
from ottla.log.log_manager import LogManager
from ottla.log.maintenance import Maintenance, MaintenanceConfig
from ottla.protocol.conversation import Request, Response
from ottla.settings import broker
from ottla.settings.config import Config
from ottla.settings.derived import log_dirs
from ottla.settings.endpoints import (
    advertised_listeners,
    inter_broker_listener,
    listeners,
    protocols,
)
from ottla.settings.problems import InvalidSettings
from ottla.transport.admission import Admission, AdmissionConfig
from ottla.transport.connection import Connection, ConnectionConfig, DeferredResponse, Dispatch
from ottla.transport.connection_eviction import ConnectionEviction
from ottla.transport.http_pages import PageServer
from ottla.transport.listener import Listener
from ottla.transport.memory import MemoryPools
from ottla.transport.network import Network
from ottla.transport.port_owner import port_owner

_LOG = logging.getLogger(__name__)


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


class Node:
    """One broker; `async with` starts and stops it."""

    def __init__(
        self,
        config: Config,
        node_id: BrokerId,
        around: Environment,
        give_up: Callable[[], None] = lambda: None,
    ) -> None:
        """A broker that calls `give_up` when it cannot go on, for whoever runs it to stop it."""
        self.id = node_id
        self._give_up = give_up
        self._config = config
        self._around = around
        self._effective_config: EffectiveConfig | None = None
        self._dispatch: Dispatch | None = None
        self._served = served()
        self._exit = AsyncExitStack()
        self._listeners: list[Listener] = []
        self._memory = MemoryPools(
            config[broker.QUEUED_MAX_REQUEST_BYTES], config[broker.OTTLA_QUEUED_MAX_RESPONSE_BYTES]
        )
        self.addresses: dict[str, Address] = {}  # as clients are told, by listener
        self.metrics: Address | None = None  # where the page of metrics is
        self.no_metrics: str | None = None  # why there is none, where there should be one
        self.given_up = False  # no data directory is left
        self.unclean: dict[str, BaseException] = {}  # directories that a stop did not mark, and why

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._exit.aclose()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._exit.aclose()

    # Starting. What is started is stopped in the opposite order.

    async def _start(self) -> None:
        around, config = self._around, self._config
        began_s = around.clock.elapsed_s()
        session = await around.coordination.connect(self._session_changed)
        self._exit.push_async_callback(session.close)
        await ensure(session, PERSISTENT_PATHS)
        cluster_id = await _cluster_id(session, around.new_id)
        await self._hold_addresses()
        with session.provisional():
            office, epoch = await self._join(session)
            store = ClusterStore(office)
            stored = await store.load_topics()
        settings = self._effective_config = await self._settings(store)
        settings.know((one.topic.name, one.config) for one in stored)
        logs = await LogManager.open(
            around.disk,
            log_dirs(config),
            settings.log_config,
            cluster_id=cluster_id,
            node_id=self.id,
            clock=around.clock,
            random=around.random,
            new_id=around.new_id,
            parallel=config[broker.NUM_RECOVERY_THREADS_PER_DATA_DIR],
            offline=lambda directory, partitions: self._directory_failed(logs),
        )
        self._exit.push_async_callback(self._close_logs, logs, epoch)
        me = Broker(self.id, epoch, self.addresses, config[broker.BROKER_RACK])
        image = ClusterImage(cluster_id).with_topics([one.topic for one in stored])
        state = BrokerState(
            id=self.id,
            clock=around.clock,
            settings=settings,
            image=image.with_brokers([me], self.id),
            logs=logs,
            sessions=self._sessions(settings),
            producer_ids=ProducerIds(session, self.id),
            groups=GroupCoordinators(lambda: GroupConfig.of(settings.broker), around.clock),
            new_id=around.new_id,
            served=self._served,
            memory=self._memory,
        )
        topics = Topics(state, store, new_id=around.new_id, random=around.random)
        state.topics = topics
        self._exit.push_async_callback(topics.turn.acquire)  # nothing changes beyond this
        with session.provisional():
            await topics.lead_all()
        await self._serve(state)
        self._run(topics.keep_leading())
        _LOG.info(
            "broker started",
            {
                "node": self.id,
                "cluster": cluster_id,
                "topics": len(stored),
                "partitions": len(state.partitions),
                "seconds": round(around.clock.elapsed_s() - began_s, 3),
            },
        )

    async def _join(self, session: Session) -> tuple[ControllerLease, BrokerEpoch]:
        config, now_ms = self._config, self._around.clock.now_ms()
        me = Broker(self.id, BrokerEpoch(-1), self.addresses, config[broker.BROKER_RACK])
        epoch = await register(session, me, dict(protocols(config)), now_ms)
        office = await elect(session, self.id, now_ms)
        if office is None:
            raise OttlaError("another broker is the controller: there can be one broker as yet")
        return office, epoch

    async def _settings(self, store: ClusterStore) -> EffectiveConfig:
        dynamic = await store.load_broker_configs()
        try:
            return EffectiveConfig(
                self._config, cluster=dynamic.get(None), own=dynamic.get(self.id)
            )
        except InvalidSettings as error:
            raise OttlaError(
                f"what was set while the broker ran does not go with its file: {error}"
            ) from error

    def _sessions(self, settings: EffectiveConfig) -> FetchSessions:
        return FetchSessions(
            lambda: settings.broker[broker.MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS],
            lambda: 1 + int(self._around.random() * (2**31 - 2)),
        )

    async def _hold_addresses(self) -> None:
        """Take the addresses, so that what is registered is true; nobody is let in yet."""
        around, config = self._around, self._config
        admission = Admission(lambda: AdmissionConfig.of(self._current))
        crowd = ConnectionEviction(admission)
        between = inter_broker_listener(config)
        _refuse_unprotected(config)
        told = {one.name: one for one in advertised_listeners(config)}
        endpoints = listeners(config)
        for endpoint in endpoints:
            exempt = endpoint == between and len(endpoints) > 1
            listener = Listener(
                endpoint.name,
                self._answer,
                network=around.network,
                clock=around.clock,
                admission=self._admission(endpoint.name, admission, exempt=exempt),
                config=self._connection_config,
                memory=self._memory,
                evict_excess=crowd.evict_excess,
            )
            if not exempt:
                crowd.listeners.append(listener)
            backlog = config[broker.SOCKET_LISTEN_BACKLOG_SIZE]
            port = await listener.hold(endpoint.host or None, endpoint.port, backlog)
            self._exit.push_async_callback(listener.close)
            self._listeners.append(listener)
            advertised = told.get(endpoint.name, endpoint)
            self.addresses[endpoint.name] = Address(
                advertised.host or "localhost", advertised.port or port
            )

    def _admission(self, listener: str, above: Admission, *, exempt: bool) -> Admission:
        return Admission(
            lambda: AdmissionConfig.of_listener(self._current, listener), above, exempt=exempt
        )

    @property
    def _current(self) -> Config:
        """The settings that count now; those of the file until the others are known."""
        return self._config if self._effective_config is None else self._effective_config.broker

    def _connection_config(self) -> ConnectionConfig:
        return ConnectionConfig(
            self._served,
            self._config[broker.SOCKET_REQUEST_MAX_BYTES],
            self._config[broker.CONNECTIONS_MAX_IDLE_MS],
            self._config[broker.SOCKET_SEND_BUFFER_BYTES],
            self._config[broker.SOCKET_RECEIVE_BUFFER_BYTES],
        )

    def _answer(
        self, request: Request, connection: Connection
    ) -> Response | DeferredResponse | None:
        assert self._dispatch is not None, "nobody is let in before"
        return self._dispatch(request, connection)

    async def _serve(self, state: BrokerState) -> None:
        def high_watermark(partition: TopicPartition) -> Offset:
            led = state.partitions.get(partition)
            return led.high_watermark if led else state.logs[partition].high_watermark

        settings = state.settings
        upkeep = Maintenance(
            state.logs, lambda: MaintenanceConfig.of(settings.broker), high_watermark
        )
        self._run(upkeep.run())
        compactor = Compactor(
            state.logs,
            self._around.cleaner,
            lambda: CompactorConfig.of(settings.broker),
            high_watermark,
            self._around.new_id(),
        )
        self._run(compactor.run())
        self._dispatch = dispatcher(state)
        for listener in self._listeners:
            self._run(listener.run())
            await listener.start()
            address = self.addresses[listener.name]
            where = {one.name: one.host for one in listeners(self._config)}[listener.name]
            _LOG.info(
                "listening",
                {
                    "listener": listener.name,
                    "on": where or "all addresses",
                    "host": address.host,
                    "port": address.port,
                },
            )
            # Listeners are closed before anything else ends.
            self._exit.push_async_callback(listener.close)
        self._exit.callback(_let_go_of_waiting, state)
        await self._show(state)

    async def _show(self, state: BrokerState) -> None:
        """Open the page of metrics; a broker serves without it too."""
        host, _, port = self._config[broker.OTTLA_METRICS_LISTENER].rpartition(":")
        if not port:
            return
        server = PageServer(pages(state, self._listeners))
        host = host.strip("[]")
        try:
            opened = await server.open(self._around.network, host or None, int(port))
        except (OSError, OverflowError) as error:
            who, where = port_owner(int(port)), str(Address(host, int(port)))
            self.no_metrics = f"{who} has {where}" if who else f"{where}: {error}"
            _LOG.warning(
                "metrics are not shown",
                {"listener": where, "reason": str(error)} | ({"who": who} if who else {}),
            )
            return
        self._exit.callback(server.close)
        self.metrics = Address(host or "localhost", opened)
        _LOG.info("metrics shown", {"url": f"http://{self.metrics}/metrics"})

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something go on beside the others until the broker stops."""
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(_complain)

        async def end() -> None:
            task.cancel()
            # One that has ended by itself was complained about; the others are ended all the same.
            with suppress(asyncio.CancelledError, Exception):
                await task

        self._exit.push_async_callback(end)

    def _directory_failed(self, logs: LogManager) -> None:
        if not logs.online:
            self.given_up = True
            self._give_up()

    async def _close_logs(self, logs: LogManager, epoch: BrokerEpoch) -> None:
        self.unclean = await logs.close(epoch)

    def _session_changed(self, now: SessionState) -> None:
        if now is not SessionState.CONNECTED:
            _LOG.error("coordination session changed", {"state": now.value})


def _refuse_unprotected(config: Config) -> None:
    """Whoever asks for protection that is not there yet must not go without it unawares."""
    for endpoint in listeners(config):
        if endpoint.tls or endpoint.sasl:
            raise OttlaError(
                f"{endpoint}: {endpoint.protocol} is not served yet, only PLAINTEXT is"
            )
    if config[broker.AUTHORIZER_CLASS_NAME]:
        name = broker.AUTHORIZER_CLASS_NAME.name
        raise OttlaError(f"{name}: ACLs are not checked yet; leave it out on a trusted network")


def _let_go_of_waiting(state: BrokerState) -> None:
    """Answer those who wait for a group or for records, so that nobody holds up the stop."""
    state.stopping = True
    state.groups.close()
    state.memory.responses.wake_all()
    state.memory.unproven_responses.wake_all()
    for partition in state.partitions.values():
        partition.wake_all()


def _complain(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _LOG.error("a duty of the broker ended", exc_info=error)


async def _cluster_id(session: Session, new_id: Callable[[], Uuid]) -> str:
    """The id of the cluster, made by whoever comes first."""
    if await session.exists(CLUSTER_ID) is None:
        with suppress(NodeExists):
            await session.create(CLUSTER_ID, format_cluster_id(str(new_id())))
    return parse_cluster_id((await session.get(CLUSTER_ID)).data)
