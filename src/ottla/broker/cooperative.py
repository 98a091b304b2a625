"""Cooperative loops: long handlers yield to the event loop every few milliseconds.

A handler that loops over many elements yields after the element at which its time slice ends.
Between two slices anything may change, so the handler decides on each element from the current
state. A stopping broker does not yield: handlers finish before the listeners close.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Final, TypeVar

from ottla.broker.shutdown import Shutdown
from ottla.clock import Clock

T = TypeVar("T")

TURN_SECONDS: Final = 0.004


class CooperativeScheduler:
    """Starts the cooperative loops of a broker."""

    __slots__ = ("_elapsed_s", "_shutdown")

    def __init__(self, clock: Clock, shutdown: Shutdown) -> None:
        self._elapsed_s = clock.elapsed_s
        self._shutdown = shutdown

    def new_loop(self) -> "CooperativeLoop":
        """Return the loop of a request, whose first time slice starts now."""
        return CooperativeLoop(self._elapsed_s, self._shutdown)


class CooperativeLoop:
    """The time slices of one request."""

    __slots__ = ("_elapsed_s", "_shutdown", "_until_s")

    def __init__(self, elapsed_s: Callable[[], float], shutdown: Shutdown) -> None:
        self._elapsed_s = elapsed_s
        self._shutdown = shutdown
        self._until_s = elapsed_s() + TURN_SECONDS

    async def over(self, elements: Iterable[T]) -> AsyncGenerator[T]:
        """Yield the elements, with pauses in between; nobody else may change the iterable."""
        elapsed_s, shutdown = self._elapsed_s, self._shutdown
        for element in elements:
            yield element
            if elapsed_s() > self._until_s and not shutdown.begun:
                await asyncio.sleep(0)
                self._until_s = elapsed_s() + TURN_SECONDS
