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
from ottla.coordination.embedded import EmbeddedStore
from ottla.errors import OttlaError, StorageFailure
from ottla.ids import BrokerId, Uuid
from ottla.log.cleaner.cleaner_runners import LocalCleaner
from ottla.settings.config_parser import broker_config_of
from ottla.testing.troubled_disk import TroubledDisk
from ottla.testing.troubled_network import TroubledNetwork

HOST: Final = "127.0.0.1"

# Tests are short and have one broker: do not wait for more members, and use one partition of
# __consumer_offsets instead of fifty.
SETTINGS: Final[Mapping[str, object]] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.replication.factor": 1,
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

    def __init__(self, broker_id: int, data: Path, settings: Mapping[str, object]) -> None:
        self.id = broker_id
        self.data = data
        self._settings = settings
        self._reserved = _ReservedPort()
        self.port = self._reserved.number
        self._full = 0  # number of active disk-full faults
        self._running: _Running | None = None

    @property
    def address(self) -> str:
        """host:port for clients."""
        return f"{HOST}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the broker is running."""
        return self._running is not None

    async def start(self) -> None:
        """Start or restart the broker."""
        if self._running is not None:
            raise OttlaError(f"broker {self.id} is already running")
        running = _Running(self._config(), self.id, self.data, lambda: self._full > 0)
        await running.start()
        self._running = running

    async def stop(self) -> None:
        """Shut down cleanly: everything is stored, and the next start needs no recovery."""
        await self._ended().stop()

    async def kill(self) -> None:
        """Kill the broker as SIGKILL does: written data remains, nothing else is done."""
        await self._ended().kill()

    def pause(self) -> Trouble:
        """Stop reading from clients until the fault ends or the broker does."""
        running = self._running
        if running is None:
            raise OttlaError(f"broker {self.id} is not running")
        running.pause()
        return Trouble(running.resume)

    def disk_full(self) -> Trouble:
        """Make the disk full until the fault ends."""
        self._full += 1

        def end() -> None:
            self._full -= 1

        return Trouble(end)

    async def close(self) -> None:
        """Stop the broker if it runs, and release the port."""
        if self._running is not None:
            await self.stop()
        self._reserved.close()

    def _ended(self) -> "_Running":
        running, self._running = self._running, None
        if running is None:
            raise OttlaError(f"broker {self.id} is not running")
        return running

    def _config(self) -> Mapping[str, object]:
        return {
            "node.id": self.id,
            "listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": str(self.data / "logs"),
            **SETTINGS,
            **self._settings,
        }


class _Running:
    """One run of a broker, from its start to its end."""

    def __init__(
        self, settings: Mapping[str, object], broker_id: int, data: Path, full: Callable[[], bool]
    ) -> None:
        self._config = broker_config_of(settings)
        self._id = BrokerId(broker_id)
        self._data = data
        self._disk = TroubledDisk(full)
        self._network = TroubledNetwork()
        self._exit = AsyncExitStack()
        self._pauses = 0

    async def start(self) -> None:
        """Start serving."""
        disk, clock = self._disk, SystemClock()
        async with AsyncExitStack() as stack:
            stack.callback(disk.close)
            path = f"{self._data}/coordination/journal"
            store = await disk.blocking(lambda: EmbeddedStore.open(disk, path, clock))
            stack.push_async_callback(store.close)
            around = Environment(
                clock,
                disk,
                self._network,
                store,
                LocalCleaner(),
                random.SystemRandom().random,  # not the generator that a test may have seeded
                lambda: Uuid(os.urandom(16)),
            )
            await stack.enter_async_context(Node(self._config, self._id, around))
            self._exit = stack.pop_all()

    async def stop(self) -> None:
        """Stop; storage failures are logged, as by a process."""
        self._network.resume()
        with suppress(StorageFailure):
            await self._exit.aclose()

    async def kill(self) -> None:
        """Cut the broker off from disk and network, then release its resources."""
        self._disk.take_away()
        self._network.cut()
        with suppress(StorageFailure):
            await self._exit.aclose()

    def pause(self) -> None:
        """Stop reading from clients."""
        self._pauses += 1
        self._network.pause()

    def resume(self) -> None:
        """Resume reading when no other pause is active."""
        self._pauses -= 1
        if not self._pauses:
            self._network.resume()


class Cluster:
    """Brokers in the current event loop, for the duration of the `async with` block.

    `settings` are broker settings by Kafka's names. `data` is the data directory; without it the
    data is in a temporary directory that is deleted at the end.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        settings: Mapping[str, object] | None = None,
        data: str | os.PathLike[str] | None = None,
    ) -> None:
        if brokers != 1:
            raise ValueError(f"brokers={brokers}: multi-broker clusters are not supported yet")
        if own := OWN & set(settings or {}):
            raise ValueError(f"{', '.join(sorted(own))}: set by the cluster, cannot be overridden")
        self._count = brokers
        self._settings = dict(settings or {})
        self._given = None if data is None else Path(data).absolute()
        self._exit = AsyncExitStack()
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
            for number in range(1, self._count + 1):
                broker = ClusterBroker(number, data / f"broker-{number}", self._settings)
                stack.push_async_callback(broker.close)
                self.brokers.append(broker)
            await asyncio.gather(*(broker.start() for broker in self.brokers))
            self._exit = stack.pop_all()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._exit.aclose()
        self.brokers.clear()


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
