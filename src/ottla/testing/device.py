"""A simulated disk with latency, timed by the simulated clock.

Invariant: a blocking call takes effect at one moment within its latency, which may be its first or
its last; the event loop runs meanwhile. Once begun, a call completes, as in files.py. A simulated
power failure is reported at once.
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
_BEFORE_CHANCE = 0.6  # of a delay before the call takes effect
_AFTER_CHANCE = 0.6  # of a delay afterwards; a call has at least one of both


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
        """Run a call after a random delay, before one or between two.

        A cancellation is raised after the call is done.
        """
        random = self._random.random
        limit_s = SLOW_SECONDS_MAX if random() < SLOW_CHANCE else SYNC_SECONDS_MAX
        delays, cancelled = random(), None
        if delays < _BEFORE_CHANCE:
            cancelled = await self._pause(limit_s * random())
        result = call()
        if delays >= 1 - _AFTER_CHANCE:
            cancelled = await self._pause(limit_s * random()) or cancelled
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
