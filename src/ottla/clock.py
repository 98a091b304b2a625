"""Time, handed to whoever needs it.

Invariant: the time of day may jump, for people and other machines set it; what has to last counts
elapsed seconds, which do not. Waiting is the event loop's: in a simulation its time is simulated.
"""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """What tells the time."""

    def now_ms(self) -> int:
        """The time of day, in milliseconds since 1970."""
        ...

    def elapsed_s(self) -> float:
        """Seconds since some moment; never less than before."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return when so many seconds have gone by."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now_ms(self) -> int:
        """The time of day."""
        return time.time_ns() // 1_000_000

    def elapsed_s(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)
