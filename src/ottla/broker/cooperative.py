"""Work in turns: what is long gives the event loop back to the others now and then.

Invariant: a turn ends some milliseconds after it began, with the element that it is at; nobody
waits longer for the loop than a turn and an element take. Between two turns anything may change,
so whoever works in turns decides on each element by what is there when its turn comes. A broker
that stops pauses no more: what was begun is done before the listeners are closed.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import Final, TypeVar

from ottla.broker.state import BrokerState

T = TypeVar("T")

TURN_SECONDS: Final = 0.004


class CooperativeLoop:
    """The turns of one request."""

    __slots__ = ("_state", "_until_s")

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._until_s = state.clock.elapsed_s() + TURN_SECONDS

    async def over(self, elements: Iterable[T]) -> AsyncGenerator[T]:
        """The elements, with pauses between them; they must be nobody else's to change."""
        state, elapsed_s = self._state, self._state.clock.elapsed_s
        for element in elements:
            yield element
            if elapsed_s() > self._until_s and not state.stopping:
                await asyncio.sleep(0)
                self._until_s = elapsed_s() + TURN_SECONDS
