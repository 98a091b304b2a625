"""A cluster in a thread, for blocking clients and for tests without an event loop.

Invariant: the cluster runs in its own event loop in its own thread. Calls from outside run there
and are complete when they return. The thread has ended when the `with` block is left.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypeVar

from ottla.broker.service import loop_factory
from ottla.cluster.image import ClusterImage
from ottla.errors import OttlaError
from ottla.testing.cluster import Cluster, ClusterBroker, Trouble

T = TypeVar("T")


class ThreadBroker:
    """One broker of a cluster in a thread."""

    def __init__(self, broker: ClusterBroker, loop: "_LoopThread") -> None:
        self._broker = broker
        self._loop = loop

    @property
    def id(self) -> int:
        """The node.id."""
        return self._broker.id

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._broker.port

    @property
    def address(self) -> str:
        """host:port for clients."""
        return self._broker.address

    @property
    def metrics_address(self) -> str | None:
        """host:port of the metrics page, if the setting ottla.metrics.listener opens one."""
        return self._loop.do(lambda: self._broker.metrics_address)

    @property
    def data(self) -> Path:
        """The data directory."""
        return self._broker.data

    @property
    def running(self) -> bool:
        """Whether the broker is running."""
        return self._broker.running

    def start(self) -> None:
        """Start again after a stop or a kill."""
        self._loop.finish(self._broker.start())

    def stop(self) -> None:
        """Shut down cleanly: everything is stored, and the next start needs no recovery."""
        self._loop.finish(self._broker.stop())

    def kill(self) -> None:
        """Kill the broker as SIGKILL does: written data remains, nothing else is done."""
        self._loop.finish(self._broker.kill())

    def pause(self) -> Trouble:
        """Neither read nor send anything until the fault ends or the broker does.

        Coordination does not hear from it either: other brokers take over after a session timeout.
        """
        return self._loop.begin(self._broker.pause)

    def expire_session(self) -> None:
        """Let the broker's session in coordination expire, as when it could not reach it."""
        self._loop.finish(self._broker.expire_session())

    def disk_full(self) -> Trouble:
        """Make the disk full until the fault ends."""
        return self._loop.begin(self._broker.disk_full)

    def directory_failed(self, directory: int = 0) -> Trouble:
        """Let a data directory fail at its next change."""
        return self._loop.begin(lambda: self._broker.directory_failed(directory))

    @property
    def image(self) -> ClusterImage | None:
        """The cluster as the broker knows it, while it runs."""
        return self._loop.do(lambda: self._broker.image)


class ClusterThread:
    """A cluster for the duration of the `with` block; takes the arguments of Cluster."""

    def __init__(
        self,
        brokers: int = 1,
        *,
        settings: Mapping[str, object] | None = None,
        data: str | os.PathLike[str] | None = None,
        directories: int = 1,
    ) -> None:
        self._cluster = Cluster(brokers, settings=settings, data=data, directories=directories)
        self._exit = ExitStack()
        self._loop = _LoopThread()
        self.brokers: list[ThreadBroker] = []

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap.servers for clients."""
        return self._cluster.bootstrap_servers

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            loop = stack.enter_context(self._loop)
            loop.finish(self._cluster.__aenter__())
            stack.callback(lambda: loop.finish(self._cluster.__aexit__()))
            self.brokers = [ThreadBroker(one, loop) for one in self._cluster.brokers]
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._exit.close()
        self.brokers = []

    # The state of the cluster, for tests.

    def broker(self, broker_id: int) -> ThreadBroker:
        """Return a broker by its id."""
        for one in self.brokers:
            if one.id == broker_id:
                return one
        raise OttlaError(f"the cluster has no broker {broker_id}")

    @property
    def controller(self) -> ThreadBroker | None:
        """The broker that is the controller, or None while there is none."""
        return self._found(self._loop.do(lambda: self._cluster.controller))

    def leader(self, topic: str, partition: int) -> ThreadBroker | None:
        """Return the leader of a partition, or None while it has none."""
        return self._found(self._loop.do(lambda: self._cluster.leader(topic, partition)))

    def _found(self, broker: ClusterBroker | None) -> ThreadBroker | None:
        return None if broker is None else self.broker(broker.id)

    def settled(self, timeout: float = 30) -> None:
        """Wait until every partition has a leader and all its running replicas in the ISR.

        Raises TimeoutError with what is missing.
        """
        self._loop.finish(self._cluster.settled(timeout))

    # Faults between brokers.

    def partition(self, one: ThreadBroker, other: ThreadBroker) -> Trouble:
        """Let no byte pass between two brokers until the fault ends.

        Clients, the other brokers and coordination still reach both.
        """
        cluster = self._cluster
        return self._loop.begin(
            lambda: cluster.partition(cluster.broker(one.id), cluster.broker(other.id))
        )

    def slow(self, broker: ThreadBroker, ms: float) -> Trouble:
        """Delay everything that a broker sends, to clients and brokers, until the fault ends."""
        cluster = self._cluster
        return self._loop.begin(lambda: cluster.slow(cluster.broker(broker.id), ms))


class _LoopThread:
    """An event loop that runs in a thread for the duration of the `with` block."""

    def __init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="ottla-cluster", daemon=True)
        self._runs = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._runs.wait()
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._loop is not None
        assert self._over is not None
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def _run(self) -> None:
        async def main() -> None:
            self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
            self._runs.set()
            await self._over.wait()

        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(main())

    def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and return its result."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def begin(self, begin: Callable[[], Trouble]) -> Trouble:
        """Begin a fault in the loop; it also ends there."""
        trouble = self.do(begin)
        return Trouble(lambda: self.do(trouble.end))

    def do(self, call: Callable[[], T]) -> T:
        """Make a call in the loop and return its result."""

        async def there() -> T:
            return call()

        return self.finish(there())
