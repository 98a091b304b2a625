"""A simulated disk with latency, timed by the simulated clock.

Invariant: a blocking call takes effect at one moment within its latency; the event loop runs before
and after it. Once begun, a call completes before a cancellation is raised, and its failure does not
replace the cancellation, as in files.py. A simulated power failure is reported at once.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import TypeVar

from ottla.testing.clock import SimulatedClock
from ottla.testing.disk import Crashed, SimulatedDisk

T = TypeVar("T")

SYNC_SECONDS_MAX = 0.004
SLOW_SECONDS_MAX = 0.4
SLOW_CHANCE = 0.01


class SimulatedDevice(SimulatedDisk):
    """A disk with latency for a simulation."""

    def __init__(self, clock: SimulatedClock, random: Random) -> None:
        super().__init__()
        self.power_went_out: Callable[[], None] = lambda: None
        self._clock = clock
        self._random = random

    def call(self, what: str, path: str) -> None:
        """Record a call; report the power failure if this call triggers it."""
        self.now_ms = self._clock.now_ms()
        try:
            super().call(what, path)
        except Crashed:
            self.power_went_out()
            raise

    async def blocking(self, call: Callable[[], T]) -> T:
        """Run a call between two random delays; a cancellation is raised after it is done."""
        limit_s = SLOW_SECONDS_MAX if self._random.random() < SLOW_CHANCE else SYNC_SECONDS_MAX
        cancelled = await self._pause(limit_s * self._random.random())
        try:
            result = call()
        except Exception as failure:
            if cancelled is not None:
                raise cancelled from failure
            raise
        cancelled = await self._pause(limit_s * self._random.random()) or cancelled
        if cancelled is not None:
            raise cancelled
        return result

    async def _pause(self, seconds: float) -> asyncio.CancelledError | None:
        until_s, cancelled = self._clock.elapsed_s() + seconds, None
        while (left_s := until_s - self._clock.elapsed_s()) > 0:
            try:
                await self._clock.sleep(left_s)
            except asyncio.CancelledError as error:
                cancelled = error
        return cancelled
