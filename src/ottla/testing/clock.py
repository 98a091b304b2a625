"""An event loop in which waiting takes no time, and the clock that belongs to it.

Invariant: time goes on only while every task waits for it, straight to the moment that the next
one waits for. So a run depends on nothing but its program, and an hour takes a millisecond. A run
in which everybody waits for something that cannot come is an error, not a wait without end.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

START_MS = 1_700_000_000_000


class Stuck(Exception):
    """All tasks wait, and none of them for a moment in time."""


class _NoWaiting(selectors.SelectSelector):
    """Turns the waiting of the loop into the passing of its time."""

    def __init__(self) -> None:
        super().__init__()
        self.elapsed_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:  # Any: as the base class has it
        if timeout is None:
            raise Stuck("all tasks wait, and none of them for a moment in time")
        self.elapsed_s += max(timeout, 0.0)
        return []


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, selector: _NoWaiting) -> None:
        super().__init__(selector)
        self._time = selector

    def time(self) -> float:
        return self._time.elapsed_s


class SimulatedClock:
    """The time of a simulated loop; `jump_ms` sets the time of day as a person would."""

    def __init__(self, selector: _NoWaiting) -> None:
        self._selector = selector
        self.jump_ms = 0

    def now_ms(self) -> int:
        """The time of day."""
        return START_MS + self.jump_ms + round(self._selector.elapsed_s * 1000)

    def elapsed_s(self) -> float:
        """Seconds since the run began."""
        return self._selector.elapsed_s

    async def sleep(self, seconds: float) -> None:
        """Return when so many simulated seconds have gone by."""
        await asyncio.sleep(seconds)


def simulated(program: Callable[[SimulatedClock], Coroutine[Any, Any, T]]) -> T:
    """Run a program in a loop of its own, in simulated time."""
    selector = _NoWaiting()
    with asyncio.Runner(loop_factory=lambda: _Loop(selector)) as runner:
        return runner.run(program(SimulatedClock(selector)))
