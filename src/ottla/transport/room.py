"""A place in the line of those who wait for memory for an answer.

Invariant: whoever waits is told at most once for each wait, and is out of the line when the wait
is over, however it ended. Who is known to read waits for its turn. Of the others there may be any
number, so the newest goes first: else all of them would wait for too long, and whoever reads with
them.
"""

import asyncio

from ottla.clock import Clock
from ottla.transport.holding import Holding


class Room:
    """The memory for one answer."""

    __slots__ = ("_clock", "_rank", "_told", "client", "has_waited", "memory")

    def __init__(self, client: Holding, clock: Clock) -> None:
        self.client = client
        self.memory = client.answers
        self.has_waited = False
        self._clock = clock
        self._rank = 0.0
        self._told: asyncio.Future[None] | None = None

    @property
    def is_there(self) -> bool:
        """Whether something may be held now."""
        return self.memory.has_room(self)

    async def wait(self, seconds: float) -> bool:
        """Wait until there may be some; tells whether that was in time."""
        if not self.has_waited:
            self.has_waited = True
            now_s = self._clock.elapsed_s()
            self._rank = now_s if self.client.is_known else -now_s
        self._told = asyncio.get_running_loop().create_future()
        self.memory.wait(self, self._rank)
        try:
            await asyncio.wait((self._told,), timeout=max(seconds, 0))
        finally:
            self.memory.leave(self)
        return self._told.done()

    def go_on(self) -> None:
        """There may be memory."""
        if self._told is not None and not self._told.done():
            self._told.set_result(None)
