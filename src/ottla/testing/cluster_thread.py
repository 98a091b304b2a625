"""A cluster beside a test: for clients that block, and for tests without an event loop.

Invariant: the cluster lives in an event loop of its own, in a thread of its own. What is asked of
it from outside is done there, and has been done when the call returns. When the `with` is left the
thread has ended.
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
    """One broker of such a cluster."""

    def __init__(self, broker: ClusterBroker, loop: "_LoopThread") -> None:
        self._broker = broker
        self._loop = loop

    @property
    def id(self) -> int:
        """Its node.id."""
        return self._broker.id

    @property
    def port(self) -> int:
        """Where it listens on this machine."""
        return self._broker.port

    @property
    def address(self) -> str:
        """Where clients find it."""
        return self._broker.address

    @property
    def data(self) -> Path:
        """Where its data are."""
        return self._broker.data

    @property
    def running(self) -> bool:
        """Whether it serves."""
        return self._broker.running

    def start(self) -> None:
        """Start again after a stop or a kill."""
        self._loop.finish(self._broker.start())

    def stop(self) -> None:
        """Stop as when asked to: everything is stored, and the next start trusts it."""
        self._loop.finish(self._broker.stop())

    def kill(self) -> None:
        """End at once, as by SIGKILL: what was written stays, and nothing else is done."""
        self._loop.finish(self._broker.kill())

    def pause(self) -> Trouble:
        """Read nothing that clients send, until the trouble ends or the broker does."""
        return self._begin(self._broker.pause)

    def disk_full(self) -> Trouble:
        """Let the disk take nothing more, until the trouble ends."""
        return self._begin(self._broker.disk_full)

    def _begin(self, begin: Callable[[], Trouble]) -> Trouble:
        trouble = self._loop.do(begin)
        return Trouble(lambda: self._loop.do(trouble.end))


class ClusterThread:
    """A cluster that lives as long as the `with`; it takes what Cluster takes."""

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
        """What a client is given to find the cluster."""
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
    """An event loop that runs in a thread while the `with` lasts."""

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
        """The result of a coroutine that runs there."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def do(self, call: Callable[[], T]) -> T:
        """The result of a call that is made there."""

        async def there() -> T:
            return call()

        return self.finish(there())
