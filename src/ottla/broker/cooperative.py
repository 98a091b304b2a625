"""Cooperative loops: long handlers yield to the event loop every few milliseconds.

A handler that loops over many elements yields after the element at which its time slice ends.
Between two slices anything may change, so the handler decides on each element from the current
state. A stopping broker does not yield: handlers finish before the listeners close.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import Final, TypeVar

from ottla.broker.state import BrokerState

T = TypeVar("T")

TURN_SECONDS: Final = 0.004


class CooperativeLoop:
    """The time slices of one request."""

    __slots__ = ("_state", "_until_s")

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._until_s = state.clock.elapsed_s() + TURN_SECONDS

    async def over(self, elements: Iterable[T]) -> AsyncGenerator[T]:
        """Yield the elements, with pauses in between; nobody else may change the iterable."""
        state, elapsed_s = self._state, self._state.clock.elapsed_s
        for element in elements:
            yield element
            if elapsed_s() > self._until_s and not state.stopping:
                await asyncio.sleep(0)
                self._until_s = elapsed_s() + TURN_SECONDS
