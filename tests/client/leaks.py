"""What a client may leave behind in a loop and in a process: tasks, timers, sockets, threads.

`Leaks` is made before the client is, and asked after it has ended.
"""

import asyncio
import gc
import os
import threading
from contextlib import suppress
from typing import Any

_OURS = ("ottla/client/", "ottla/transport/channel.py", "ottla/transport/tls.py")
_OUR_MODULES = ("ottla.client", "ottla.transport.channel", "ottla.transport.tls")


def client_tasks() -> list[str]:
    """The tasks of this loop whose code is the client's."""
    mine = asyncio.current_task()
    return [
        repr(task)
        for task in asyncio.all_tasks()
        if task is not mine and any(place in repr(task) for place in _OURS)
    ]


def client_timers() -> list[str]:
    """What this loop will call of the client at some time; what is due now ends by itself."""
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
    """How many sockets this process has open."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return found


def client_threads() -> set[threading.Thread]:
    """The threads of sync clients."""
    return {one for one in threading.enumerate() if one.name.startswith("ottla ")}


class Leaks:
    """What was there before, and what nobody heard of since."""

    def __init__(self) -> None:
        self.unheard: list[str] = []
        self._sockets = sockets()
        asyncio.get_running_loop().set_exception_handler(self._hear)

    async def check(self) -> None:
        """Nothing is left of a client that has ended."""
        left = [*client_tasks(), *client_timers()]
        assert not left, left
        async with asyncio.timeout(20):  # a broker needs a moment to see that its client is gone
            while sockets() > self._sockets:
                await asyncio.sleep(0.001)

    def check_unheard(self) -> None:
        """Nothing failed without anybody to hear of it."""
        gc.collect()  # what was never awaited or retrieved says so when it goes
        assert not self.unheard, self.unheard

    def _hear(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.unheard.append(f"{context.get('message')}: {context.get('exception')!r}")
