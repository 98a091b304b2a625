"""An event loop with simulated time, and its clock.

Invariant: time advances only while every task waits, straight to the next timer. So a run depends
only on its program, and an hour takes a millisecond. If all tasks wait and no timer is set, the run
raises Stuck instead of hanging.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

START_MS = 1_700_000_000_000


class Stuck(Exception):
    """All tasks wait, and no timer is set."""


class _NoWaiting(selectors.SelectSelector):
    """A selector that advances the simulated time instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.elapsed_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:  # Any: as in the base class
        if timeout is None:
            raise Stuck("all tasks wait and no timer is set")
        self.elapsed_s += max(timeout, 0.0)
        return []


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, selector: _NoWaiting) -> None:
        super().__init__(selector)
        self._time = selector

    def time(self) -> float:
        return self._time.elapsed_s


class SimulatedClock:
    """The clock of a simulated loop; `jump_ms` shifts its wall clock."""

    def __init__(self, selector: _NoWaiting) -> None:
        self._selector = selector
        self.jump_ms = 0

    def now_ms(self) -> int:
        """Return the wall clock time."""
        return START_MS + self.jump_ms + round(self._selector.elapsed_s * 1000)

    def elapsed_s(self) -> float:
        """Return the seconds since the run began."""
        return self._selector.elapsed_s

    async def sleep(self, seconds: float) -> None:
        """Wait for this many simulated seconds."""
        await asyncio.sleep(seconds)


def simulated(program: Callable[[SimulatedClock], Coroutine[Any, Any, T]]) -> T:
    """Run a program in a new event loop with simulated time."""
    selector = _NoWaiting()
    with asyncio.Runner(loop_factory=lambda: _Loop(selector)) as runner:
        return runner.run(program(SimulatedClock(selector)))
