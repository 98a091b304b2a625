"""An event loop with simulated time, and its clock.

Invariant: time advances only while every task waits, straight to the next timer. So a run depends
only on its program, and an hour takes a millisecond. If all tasks wait and no timer is set, the run
raises Stuck instead of hanging.

Callbacks can be held back by their context, as those of a process that the operating system has
stopped. They run when nothing holds them back any more, in their order. A check can run after each
step; it gets the contexts of the callbacks that have run.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextvars import Context
from heapq import heappop, heappush
from itertools import count
from operator import attrgetter, methodcaller
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

START_MS = 1_700_000_000_000

# Code that waits until a nanosecond has passed would wait forever if the time stood still: after so
# many steps at one moment, a nanosecond passes.
STEPS_AT_ONE_MOMENT_MAX = 10_000
STEP_SECONDS = 1e-9


class Stuck(Exception):
    """All tasks wait, and no timer is set."""


Check = Callable[[Sequence[Context]], None]
"""Checks what may have changed in some contexts."""

# What asyncio keeps to itself.
_context_of: Callable[[asyncio.Handle], Context] = attrgetter("_context")
_run_handle: Callable[[asyncio.Handle], None] = methodcaller("_run")
_is_stopping: Callable[[asyncio.AbstractEventLoop], bool] = attrgetter("_stopping")

_Timer: TypeAlias = tuple[float, int, asyncio.TimerHandle]
"""The moment, a number that orders the timers of one moment, and the callback."""


class _Ready(deque[asyncio.Handle]):
    """The callbacks that the event loop runs next, while some are held back."""

    def __init__(self, holds: Callable[[Context], bool], ready: Iterable[asyncio.Handle]) -> None:
        super().__init__()
        self.held: list[asyncio.Handle] = []
        self._holds = holds
        for handle in ready:
            self.append(handle)

    def append(self, handle: asyncio.Handle, /) -> None:
        if self._holds(_context_of(handle)):
            self.held.append(handle)
        else:
            super().append(handle)


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that advances the simulated time instead of waiting.

    A step takes a few microseconds, because it asks no selector and compares numbers, not handles.
    """

    def __init__(self) -> None:
        super().__init__()
        self.elapsed_s = 0.0
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[_Timer] = []
        self._numbers = count()
        self._steps = 0  # at this moment
        self._check: Check | None = None

    def time(self) -> float:
        return self.elapsed_s

    def call_soon(
        self,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def _run_once(self) -> None:
        """Run the callbacks that are ready, or those of the next timer; asyncio calls this."""
        ready, timers = self._ready, self._timers
        while timers and timers[0][2].cancelled():
            heappop(timers)
        if not ready and not _is_stopping(self):
            if not timers:
                raise Stuck("all tasks wait and no timer is set")
            if timers[0][0] > self.elapsed_s:
                self._steps = 0
                self.elapsed_s = timers[0][0]
        self._steps += 1
        if self._steps > STEPS_AT_ONE_MOMENT_MAX:
            self._steps = 0
            self.elapsed_s += STEP_SECONDS
        while timers and timers[0][0] <= self.elapsed_s:
            ready.append(heappop(timers)[2])
        contexts: list[Context] = []
        for _ in range(len(ready)):
            if not (ready := self._ready):  # `hold_back` replaces it, and may leave nothing
                break
            handle = ready.popleft()
            if not handle.cancelled():
                contexts.append(_context_of(handle))
                _run_handle(handle)
        if self._check is not None:
            self._check(contexts)

    def hold_back(self, holds: Callable[[Context], bool] | None) -> None:
        """Hold back the callbacks of some contexts from now on; None holds back nothing."""
        ready = self._ready
        waiting = [*ready.held, *ready] if isinstance(ready, _Ready) else [*ready]
        self._ready = deque(waiting) if holds is None else _Ready(holds, waiting)

    def check_each_step(self, check: Check | None) -> None:
        """Call a function after each step, with the contexts of the callbacks that have run."""
        self._check = check


class SimulatedClock:
    """The clock of a simulated loop; `jump_ms` shifts its wall clock."""

    def __init__(self, loop: _Loop) -> None:
        self._loop = loop
        self.jump_ms = 0

    def check_each_step(self, check: Check | None) -> None:
        """Call a function after each step of the event loop."""
        self._loop.check_each_step(check)

    def hold_back(self, holds: Callable[[Context], bool] | None) -> None:
        """Hold back the callbacks of some contexts from now on; None holds back nothing."""
        self._loop.hold_back(holds)

    def now_ms(self) -> int:
        """Return the wall clock time."""
        return START_MS + self.jump_ms + round(self._loop.elapsed_s * 1000)

    def elapsed_s(self) -> float:
        """Return the seconds since the run began."""
        return self._loop.elapsed_s

    async def sleep(self, seconds: float) -> None:
        """Wait for this many simulated seconds."""
        await asyncio.sleep(seconds)


def simulated(program: Callable[[SimulatedClock], Coroutine[Any, Any, T]]) -> T:
    """Run a program in a new event loop with simulated time."""
    loop = _Loop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(program(SimulatedClock(loop)))
