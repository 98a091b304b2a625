"""Leaks of a client in the event loop and the process: tasks, timers, sockets, threads.

Create `Leaks` before the client, and check it after the client has closed.
"""

import asyncio
import gc
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

_OURS = ("ottla/client/", "ottla/transport/channel.py", "ottla/transport/tls.py")
_OUR_MODULES = ("ottla.client", "ottla.transport.channel", "ottla.transport.tls")


def client_tasks() -> list[str]:
    """Return the tasks of this event loop that run client code."""
    mine = asyncio.current_task()
    return [
        repr(task)
        for task in asyncio.all_tasks()
        if task is not mine and any(place in repr(task) for place in _OURS)
    ]


def client_timers() -> list[str]:
    """Return the client's timers in this event loop, except those that are due now."""
    loop: Any = asyncio.get_running_loop()
    found: list[str] = []
    for handle in loop._scheduled:
        if handle.cancelled():
            continue
        called: Any = handle._callback
        owner = getattr(called, "__self__", called)
        module = str(getattr(owner, "__module__", ""))
        if module.startswith(_OUR_MODULES):
            found.append(repr(handle))
    return found


def sockets() -> int:
    """Return the number of open sockets of this process."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return found


@contextmanager
def client_threads() -> Generator[Callable[[], set[threading.Thread]]]:
    """Yield a function that returns the running threads of sync clients which the block started.

    This thread started them, or a thread that it started in the block. Other threads may start
    clients at any time: another test may have left a Spark session in this process.
    """
    ours = {threading.current_thread()}
    usual = threading.Thread.start

    def start(self: threading.Thread) -> None:
        if threading.current_thread() in ours:
            ours.add(self)
        usual(self)

    threading.Thread.start = start
    try:
        yield lambda: {one for one in [*ours] if one.is_alive() and one.name.startswith("ottla ")}
    finally:
        threading.Thread.start = usual


class Leaks:
    """The state before the client was created, and the errors that went unhandled since."""

    def __init__(self) -> None:
        self.unheard: list[str] = []
        self._sockets = sockets()
        asyncio.get_running_loop().set_exception_handler(self._hear)

    async def check(self) -> None:
        """Assert that a closed client left nothing."""
        left = [*client_tasks(), *client_timers()]
        assert not left, left
        async with asyncio.timeout(20):  # a broker needs a moment to notice the disconnect
            while sockets() > self._sockets:
                await asyncio.sleep(0.001)

    def check_unheard(self) -> None:
        """Assert that no error went unhandled."""
        gc.collect()  # a coroutine or future that was never awaited reports it when it is collected
        assert not self.unheard, self.unheard

    def _hear(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.unheard.append(f"{context.get('message')}: {context.get('exception')!r}")
