"""The clock interface, which is injected so that simulations control time.

The wall clock can jump; use `elapsed_s` to measure durations. `sleep` uses the event loop, whose
time is simulated in a simulation.
"""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Wall clock, monotonic clock and sleep."""

    def now_ms(self) -> int:
        """Return the wall clock time in milliseconds since the epoch."""
        ...

    def elapsed_s(self) -> float:
        """Return monotonic seconds since an arbitrary start."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for this many seconds."""
        ...


class SystemClock:
    """The clock of the operating system."""

    def now_ms(self) -> int:
        """Return the wall clock time in milliseconds."""
        return time.time_ns() // 1_000_000

    def elapsed_s(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait for this many seconds."""
        await asyncio.sleep(seconds)
