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
        """Stop reading from clients until the fault ends or the broker does."""
        return self._begin(self._broker.pause)

    def disk_full(self) -> Trouble:
        """Make the disk full until the fault ends."""
        return self._begin(self._broker.disk_full)

    def _begin(self, begin: Callable[[], Trouble]) -> Trouble:
        trouble = self._loop.do(begin)
        return Trouble(lambda: self._loop.do(trouble.end))


class ClusterThread:
    """A cluster for the duration of the `with` block; takes the arguments of Cluster."""

    def __init__(
        self,
        brokers: int = 1,
        *,
        settings: Mapping[str, object] | None = None,
        data: str | os.PathLike[str] | None = None,
    ) -> None:
        self._cluster = Cluster(brokers, settings=settings, data=data)
        self._exit = ExitStack()
        self.brokers: list[ThreadBroker] = []

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap.servers for clients."""
        return self._cluster.bootstrap_servers

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            loop = stack.enter_context(_LoopThread())
            loop.finish(self._cluster.__aenter__())
            stack.callback(lambda: loop.finish(self._cluster.__aexit__()))
            self.brokers = [ThreadBroker(one, loop) for one in self._cluster.brokers]
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._exit.close()
        self.brokers = []


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

    def do(self, call: Callable[[], T]) -> T:
        """Make a call in the loop and return its result."""

        async def there() -> T:
            return call()

        return self.finish(there())
