"""An event loop with simulated time, and its clock.

Invariant: time advances only while every task waits, straight to the next timer. So a run depends
only on its program, and an hour takes a millisecond. If all tasks wait and no timer is set, the run
raises Stuck instead of hanging.

Callbacks can be held back by their context, as those of a process that the operating system has
stopped. They run when nothing holds them back any more, in their order. A check can run before each
step; it gets the contexts of the callbacks that may have run since the last one.
"""

import asyncio
import selectors
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")

START_MS = 1_700_000_000_000

# The event loop runs a timer up to a nanosecond early. Code that then waits for the rest would wait
# forever if the time stood still: after so many steps at one moment, a nanosecond passes.
STEPS_AT_ONE_MOMENT_MAX = 10_000
STEP_SECONDS = 1e-9


class Stuck(Exception):
    """All tasks wait, and no timer is set."""


Check = Callable[[Collection[Context]], None]
"""Checks what may have changed in some contexts."""


class _NoWaiting(selectors.SelectSelector):
    """A selector that advances the simulated time instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.elapsed_s = 0.0
        self._steps = 0  # at this moment
        self.on_step: Callable[[], None] | None = None

    def select(self, timeout: float | None = None) -> list[Any]:  # Any: as in the base class
        if self.on_step is not None:
            self.on_step()
        if timeout is None:
            raise Stuck("all tasks wait and no timer is set")
        self._steps = 0 if timeout > 0 else self._steps + 1
        if self._steps > STEPS_AT_ONE_MOMENT_MAX:
            timeout = STEP_SECONDS
        self.elapsed_s += max(timeout, 0.0)
        return []


class _Ready(deque[asyncio.Handle]):
    """The callbacks that the event loop runs next, apart from those that are held back."""

    def __init__(
        self, holds: Callable[[Context], bool] | None, ready: Iterable[asyncio.Handle]
    ) -> None:
        super().__init__()
        self.held: list[asyncio.Handle] = []
        self.contexts: list[Context] = []  # of what was added since the last step
        self._holds = holds
        for handle in ready:
            self.append(handle)

    def append(self, handle: asyncio.Handle, /) -> None:
        context: Context = _attribute(handle, "_context")
        if self._holds is not None and self._holds(context):
            self.held.append(handle)
        else:
            self.contexts.append(context)
            super().append(handle)


def _attribute(one: object, name: str) -> Any:  # Any: asyncio does not declare these
    """Return an attribute that asyncio keeps to itself."""
    return getattr(one, name)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, selector: _NoWaiting) -> None:
        super().__init__(selector)
        self._time = selector

    def time(self) -> float:
        return self._time.elapsed_s

    def hold_back(self, holds: Callable[[Context], bool] | None) -> None:
        """Hold back the callbacks of some contexts from now on; None holds back nothing."""
        ready = self._own_ready()
        self._ready = _Ready(holds, [*ready.held, *ready])

    def check_each_step(self, check: Check | None) -> None:
        """Call a function before each step."""
        if check is None:
            self._time.on_step = None
            return
        last: list[Context] = []

        def on_step() -> None:
            # What was added after the last step may run in this one.
            nonlocal last
            ready = self._own_ready()
            added, ready.contexts = ready.contexts, []
            check([*last, *added])
            last = added

        self._time.on_step = on_step

    def _own_ready(self) -> _Ready:
        ready: deque[asyncio.Handle] = _attribute(self, "_ready")
        if not isinstance(ready, _Ready):
            ready = self._ready = _Ready(None, ready)
        return ready


def _running_loop() -> _Loop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, _Loop)
    return loop


class SimulatedClock:
    """The clock of a simulated loop; `jump_ms` shifts its wall clock."""

    def __init__(self, selector: _NoWaiting) -> None:
        self._selector = selector
        self.jump_ms = 0

    def check_each_step(self, check: Check | None) -> None:
        """Call a function before each step of the event loop."""
        _running_loop().check_each_step(check)

    def hold_back(self, holds: Callable[[Context], bool] | None) -> None:
        """Hold back the callbacks of some contexts from now on; None holds back nothing."""
        _running_loop().hold_back(holds)

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
