"""A cluster inside the test process: the whole broker, with real sockets and files.

Invariant: a restarted broker has its old address and data. After the cluster is closed nothing
runs, and a temporary data directory is deleted. A killed broker acknowledges and stores nothing
more, and leaves no clean-shutdown mark, as a killed process would.
"""

import asyncio
import os
import random
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Final, Self

from ottla.broker.node import Environment, Node
from ottla.clock import SystemClock
from ottla.cluster.image import ClusterImage
from ottla.cluster.reassignment import is_reassigning
from ottla.coordination.embedded import EmbeddedSession, EmbeddedStore
from ottla.coordination.session import Listener, SessionState
from ottla.errors import OttlaError, StorageFailure
from ottla.ids import BrokerId, Uuid
from ottla.log.cleaner.cleaner_runners import LocalCleaner
from ottla.log.files import OsDisk
from ottla.settings.config_parser import broker_config_of
from ottla.testing.troubled_disk import TroubledDisk
from ottla.testing.troubled_network import BrokerLinks, TroubledNetwork

HOST: Final = "127.0.0.1"

SESSION_TIMEOUT_MS: Final = 500  # of the brokers in coordination: a killed one is dead after that
POLL_SECONDS: Final = 0.01  # between two looks at the cluster
REPLICAS_MAX: Final = 3


def default_settings(brokers: int) -> dict[str, object]:
    """Return the settings that differ from Kafka's defaults.

    Tests are short: do not wait for more members, and use one partition of __consumer_offsets
    instead of fifty. Topics have as many replicas as there are brokers, up to three.
    """
    replicas = min(REPLICAS_MAX, brokers)
    return {
        "default.replication.factor": replicas,
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.min.isr": 1 if replicas == 1 else 2,
        "transaction.state.log.replication.factor": replicas,
    }


OWN: Final = frozenset({"node.id", "broker.id", "listeners", "log.dirs", "log.dir"})


class Trouble:
    """An injected fault that lasts until `end` is called or the `with` block ends."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end: Callable[[], None] | None = end

    def end(self) -> None:
        """End the fault; a second call does nothing."""
        end, self._end = self._end, None
        if end is not None:
            end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()


class ClusterBroker:
    """One broker of a cluster; the cluster starts it."""

    def __init__(
        self,
        broker_id: int,
        data: Path,
        settings: Mapping[str, object],
        coordination: EmbeddedStore,
        links: BrokerLinks,
        directories: int = 1,
    ) -> None:
        self.id = broker_id
        self.data = data
        self.directories = [
            data / ("logs" if number == 1 else f"logs-{number}")
            for number in range(1, directories + 1)
        ]
        self._settings = settings
        self._coordination = coordination
        self._links = links
        self._reserved = _ReservedPort()
        self.port = self._reserved.number
        self._full = 0  # number of active disk-full faults
        self._failed: list[str] = []  # failed data directories
        self._exiting: asyncio.Task[None] | None = None
        self._running: _Running | None = None

    @property
    def address(self) -> str:
        """host:port for clients."""
        return f"{HOST}:{self.port}"

    @property
    def metrics_address(self) -> str | None:
        """host:port of the metrics page, if the setting ottla.metrics.listener opens one."""
        return None if self._running is None else self._running.metrics_address

    @property
    def running(self) -> bool:
        """Whether the broker is running."""
        return self._running is not None

    async def start(self) -> None:
        """Start or restart the broker."""
        if self._running is not None:
            raise OttlaError(f"broker {self.id} is already running")
        running = _Running(
            self._config(),
            self.id,
            self._coordination,
            TroubledDisk(lambda: self._full > 0, lambda: self._failed),
            TroubledNetwork(self._links, self.port),
            self._exit,
        )
        await running.start()
        self._running, self._exiting = running, None

    def _exit(self) -> None:
        """Stop because all data directories have failed."""
        if self._exiting is None and self._running is not None:
            self._exiting = asyncio.get_running_loop().create_task(self.stop())

    async def stop(self) -> None:
        """Shut down cleanly: everything is stored, and the next start needs no recovery."""
        await self._ended().stop()

    async def kill(self) -> None:
        """Kill the broker as SIGKILL does: written data remains, nothing else is done."""
        await self._ended().kill()

    def pause(self) -> Trouble:
        """Neither read nor send anything until the fault ends or the broker does.

        Coordination does not hear from it either: other brokers take over after a session timeout.
        """
        running = self._running
        if running is None:
            raise OttlaError(f"broker {self.id} is not running")
        running.pause()
        return Trouble(running.resume)

    async def expire_session(self) -> None:
        """Let the broker's session in coordination expire, as when it could not reach it."""
        if self._running is None:
            raise OttlaError(f"broker {self.id} is not running")
        await self._running.expire_session()

    def disk_full(self) -> Trouble:
        """Make the disk full until the fault ends."""
        self._full += 1

        def end() -> None:
            self._full -= 1

        return Trouble(end)

    def directory_failed(self, directory: int = 0) -> Trouble:
        """Let a data directory fail at its next change; the broker uses it after a restart again.

        As a process does, the broker exits when its last directory has failed.
        """
        path = str(self.directories[directory])
        self._failed.append(path)
        return Trouble(lambda: self._failed.remove(path))

    async def close(self) -> None:
        """Stop the broker if it runs, and release the port; no other broker takes over."""
        if (exiting := self._exiting) is not None:
            await exiting
        if self._running is not None:
            await self._ended().stop(hands_over=False)
        self._reserved.close()

    @property
    def image(self) -> ClusterImage | None:
        """The cluster as the broker knows it, while it runs."""
        return None if self._running is None else self._running.image

    def _ended(self) -> "_Running":
        running, self._running = self._running, None
        if running is None:
            raise OttlaError(f"broker {self.id} is not running")
        return running

    def _config(self) -> Mapping[str, object]:
        return {
            "node.id": self.id,
            "listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": ",".join(map(str, self.directories)),
            **self._settings,
        }


class _Running:
    """One run of a broker, from its start to its end."""

    def __init__(
        self,
        settings: Mapping[str, object],
        broker_id: int,
        coordination: EmbeddedStore,
        disk: TroubledDisk,
        network: TroubledNetwork,
        give_up: Callable[[], None],
    ) -> None:
        self._config = broker_config_of(settings)
        self._id = BrokerId(broker_id)
        self._coordination = coordination
        self._session: EmbeddedSession | None = None
        self._disk = disk
        self._network = network
        self._give_up = give_up
        self._node: Node | None = None
        self._exit = AsyncExitStack()
        self._pauses = 0
        self._is_free = asyncio.Event()  # set while no pause is active
        self._is_free.set()
        self._unheard: list[Callable[[], None]] = []  # session states, while paused

    @property
    def image(self) -> ClusterImage | None:
        """The cluster as the broker knows it."""
        return None if self._node is None else self._node.image

    @property
    def metrics_address(self) -> str | None:
        """host:port of the metrics page, if there is one."""
        address = None if self._node is None else self._node.metrics
        return None if address is None else str(address)

    async def start(self) -> None:
        """Start serving."""
        async with AsyncExitStack() as stack:
            stack.callback(self._disk.close)
            around = Environment(
                SystemClock(),
                self._disk,
                self._network,
                self,
                LocalCleaner(),
                random.SystemRandom().random,  # not the generator that a test may have seeded
                lambda: Uuid(os.urandom(16)),
                os.urandom,
            )
            node = self._node = Node(self._config, self._id, around, self._give_up)
            await stack.enter_async_context(node)
            self._exit = stack.pop_all()

    async def connect(self, listener: Listener) -> EmbeddedSession:
        """Open the session of the broker; a paused broker cannot reach coordination."""
        await self._is_free.wait()

        def hear(state: SessionState) -> None:
            if self._pauses:
                self._unheard.append(lambda: listener(state))
            else:
                listener(state)

        self._session = await self._coordination.connect(hear)
        return self._session

    async def stop(self, *, hands_over: bool = True) -> None:
        """Stop; storage failures are logged, as by a process."""
        while self._pauses:
            self.resume()
        if self._node is not None:
            self._node.hands_over = hands_over
        with suppress(StorageFailure):
            await self._exit.aclose()

    async def kill(self) -> None:
        """Cut the broker off from everything, then release its resources."""
        self._disk.take_away()
        self._network.cut()
        if self._session is not None:
            self._coordination.abandon(self._session.id)
        self._pauses = 0
        self._is_free.set()
        if self._node is not None:
            self._node.hands_over = False
        with suppress(StorageFailure):
            await self._exit.aclose()

    async def expire_session(self) -> None:
        """Expire the current session."""
        if self._session is not None:
            await self._coordination.expire(self._session.id)

    def pause(self) -> None:
        """Stop reading and sending, and suspend the session."""
        self._pauses += 1
        self._is_free.clear()
        self._network.pause()
        if self._session is not None:
            self._coordination.suspend(self._session.id)

    def resume(self) -> None:
        """Go on when no other pause is active; a session that has expired stays so."""
        if not self._pauses:
            return  # the broker has stopped meanwhile
        self._pauses -= 1
        if not self._pauses:
            self._network.resume()
            unheard, self._unheard = self._unheard, []
            for report in unheard:  # before the session is connected again
                report()
            if self._session is not None:
                self._coordination.resume(self._session.id)
            self._is_free.set()


class Cluster:
    """Brokers in the current event loop, for the duration of the `async with` block.

    `settings` are broker settings by Kafka's names. `data` is the data directory; without it the
    data is in a temporary directory that is deleted at the end. Each broker has as many data
    directories (log.dirs) as `directories` says.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        settings: Mapping[str, object] | None = None,
        data: str | os.PathLike[str] | None = None,
        directories: int = 1,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"brokers={brokers}: a cluster has at least one broker")
        if own := OWN & set(settings or {}):
            raise ValueError(f"{', '.join(sorted(own))}: set by the cluster, cannot be overridden")
        self._count = brokers
        self._directories = directories
        self._settings = default_settings(brokers) | dict(settings or {})
        self._given = None if data is None else Path(data).absolute()
        self._exit = AsyncExitStack()
        self._links = BrokerLinks()
        self.brokers: list[ClusterBroker] = []

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap.servers for clients."""
        return ",".join(broker.address for broker in self.brokers)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            data = self._given
            if data is None:
                data = Path(tempfile.mkdtemp(prefix="ottla-"))
                stack.callback(shutil.rmtree, data, ignore_errors=True)
            broker_config_of(self._settings)  # a refused setting leaves nothing behind
            store = await self._coordination(data, stack)
            stack.push_async_callback(self._close_brokers)
            for number in range(1, self._count + 1):
                directory = data / f"broker-{number}"
                self.brokers.append(
                    ClusterBroker(
                        number, directory, self._settings, store, self._links, self._directories
                    )
                )
            await asyncio.gather(*(broker.start() for broker in self.brokers))
            self._exit = stack.pop_all()
        return self

    async def _coordination(self, data: Path, stack: AsyncExitStack) -> EmbeddedStore:
        """Open the coordination of the cluster: it belongs to no broker, and is never killed."""
        disk = OsDisk()
        stack.callback(disk.close)
        store = await disk.blocking(
            lambda: EmbeddedStore.open(
                disk,
                f"{data}/coordination/journal",
                SystemClock(),
                session_timeout_ms=SESSION_TIMEOUT_MS,
            )
        )
        stack.push_async_callback(store.close)
        expiring = asyncio.get_running_loop().create_task(store.keep_time())

        async def end() -> None:
            expiring.cancel()
            with suppress(asyncio.CancelledError):
                await expiring

        stack.push_async_callback(end)
        return store

    async def _close_brokers(self) -> None:
        await asyncio.gather(*(broker.close() for broker in self.brokers))

    async def __aexit__(self, *exception: object) -> None:
        await self._exit.aclose()
        self.brokers.clear()

    # Faults between brokers.

    def partition(self, one: ClusterBroker, other: ClusterBroker) -> Trouble:
        """Let no byte pass between two brokers until the fault ends.

        Clients, the other brokers and coordination still reach both.
        """
        return Trouble(self._links.partition(one.port, other.port))

    def slow(self, broker: ClusterBroker, ms: float) -> Trouble:
        """Delay everything that a broker sends, to clients and brokers, until the fault ends."""
        return Trouble(self._links.slow(broker.port, ms / 1000))

    # The state of the cluster, for tests.

    def broker(self, broker_id: int) -> ClusterBroker:
        """Return a broker by its id."""
        for one in self.brokers:
            if one.id == broker_id:
                return one
        raise OttlaError(f"the cluster has no broker {broker_id}")

    @property
    def controller(self) -> ClusterBroker | None:
        """The broker that is the controller, or None while there is none."""
        image = self._image()
        return None if image is None else self._running(image.controller)

    def leader(self, topic: str, partition: int) -> ClusterBroker | None:
        """Return the leader of a partition, or None while it has none."""
        image = self._image()
        state = None if image is None else image.state(topic, partition)
        return None if state is None else self._running(state.leader)

    def _running(self, broker_id: int) -> ClusterBroker | None:
        found = [one for one in self.brokers if one.id == broker_id and one.running]
        return found[0] if found else None

    def _image(self) -> ClusterImage | None:
        """Return what the controller knows, which is the newest of the controller epoch."""
        images = [image for one in self.brokers if (image := one.image) is not None]
        if not images:
            return None
        newest = max(images, key=lambda image: image.controller_epoch)
        controller = self._running(newest.controller)
        known = None if controller is None else controller.image
        return newest if known is None else known

    async def settled(self, timeout: float = 30) -> None:
        """Wait until every partition has a leader and all its running replicas in the ISR.

        Reassignments are complete then. Raises TimeoutError with what is missing.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout
        while missing := self._missing():
            if loop.time() >= deadline_s:
                raise TimeoutError(f"after {timeout} s: {'; '.join(missing)}")
            await asyncio.sleep(POLL_SECONDS)

    def _missing(self) -> list[str]:
        image = self._image()
        if image is None or self._running(image.controller) is None:
            return ["there is no controller"]
        running = {one.id for one in self.brokers if one.running}
        missing = [
            f"broker {broker_id} is not registered"
            for broker_id in sorted(running - {*image.brokers})
        ]
        for topic in image.topics.values():
            for index, state in enumerate(topic.partitions):
                name = f"{topic.name}-{index}"
                if state.leader not in running:
                    missing.append(f"{name} has no leader")
                if is_reassigning(state):
                    missing.append(f"{name} is being reassigned")
                missing += [
                    f"broker {replica} is not in the ISR of {name}"
                    for replica in sorted(running & {*state.replicas} - {*state.in_sync})
                ]
        for one in self.brokers:
            known = one.image
            if known is not None and (
                known.topics != image.topics or known.controller != image.controller
            ):
                missing.append(f"broker {one.id} has old metadata")
        return missing


class _ReservedPort:
    """A port that stays reserved while its broker is down."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((HOST, 0))
        self.number = int(self._socket.getsockname()[1])
        if sys.platform != "linux":
            self.close()  # other systems do not allow listening on a bound address

    def close(self) -> None:
        """Release the port."""
        self._socket.close()
