"""A simulated disk that takes its time, by the clock of the simulation.

Invariant: what is asked of the device in a thread happens at one moment within the time it takes;
the loop goes on before and after it. Once begun it is done to its end, as files.py has it, and the
moment at which the power went out is told at once.
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
    """A disk for a simulation."""

    def __init__(self, clock: SimulatedClock, random: Random) -> None:
        super().__init__()
        self.power_went_out: Callable[[], None] = lambda: None
        self._clock = clock
        self._random = random

    def call(self, what: str, path: str) -> None:
        """Count a call, and say so when it is the one that is not done any more."""
        self.now_ms = self._clock.now_ms()
        try:
            super().call(what, path)
        except Crashed:
            self.power_went_out()
            raise

    async def blocking(self, call: Callable[[], T]) -> T:
        """Do it, some time before, some after; a cancellation goes on when it is done."""
        limit_s = SLOW_SECONDS_MAX if self._random.random() < SLOW_CHANCE else SYNC_SECONDS_MAX
        cancelled = await self._pause(limit_s * self._random.random())
        result = call()
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
