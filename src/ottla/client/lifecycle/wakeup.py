"""Runs a callback soon after a wake-up.

Invariant: however often it is woken in one iteration of the event loop, the callback runs once. It
has no task of its own. Longer work is started under a name, one at a time, and its end wakes it
again. After `close` the callback does not run.
"""

import asyncio
from collections.abc import Callable, Coroutine
from math import inf
from typing import Any

from ottla.clock import Clock


class Wakeup:
    """Calls `look`, which returns when to run again without a wake-up; inf for never."""

    def __init__(self, look: Callable[[], float], clock: Clock) -> None:
        self._look = look
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[object, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next_s = inf  # the time returned by `look`
        self._is_poked = False
        self.is_closed = False

    def poke(self) -> None:
        """Run the callback after this iteration of the event loop."""
        if not self._is_poked and not self.is_closed:
            self._is_poked = True
            self._loop.call_soon(self._look_once)

    def start(self, what: object, doing: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a coroutine under a name, unless one runs under it."""
        if what in self._tasks or self.is_closed:
            return
        task = self._tasks[what] = self._loop.create_task(doing())
        task.add_done_callback(lambda _: self._ended(what))

    def runs(self, what: object) -> bool:
        """Whether a coroutine runs under this name."""
        return what in self._tasks

    async def close(self) -> None:
        """Cancel what runs and stop calling back."""
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, what: object) -> None:
        task = self._tasks.pop(what)
        if not task.cancelled() and (error := task.exception()) is not None:
            context = {"message": f"{what} failed", "exception": error, "task": task}
            self._loop.call_exception_handler(context)
        self.poke()

    def _look_once(self) -> None:
        self._is_poked = False
        if self.is_closed:
            return
        when_s = self._look()
        if when_s >= self._next_s:
            return  # it runs earlier anyway and can return the time again
        if self._timer is not None:
            self._timer.cancel()
        # The loop's clock and ours may have different origins but the same rate.
        pause_s = max(0.0, when_s - self._clock.elapsed_s())
        self._timer, self._next_s = self._loop.call_later(pause_s, self._time), when_s

    def _time(self) -> None:
        self._timer, self._next_s = None, inf
        self.poke()
