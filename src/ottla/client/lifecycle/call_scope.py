"""The lifetime of a client: what was begun within it does not outlast it.

Invariant: a call that is under way when the client ends fails then, and says so; one that begins
later fails at once. Nobody is left to wait for answers that nobody will bring.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from ottla.transport.failures import NotRunning

T = TypeVar("T")


class CallScope:
    """From the start of a client to `end`; `whose` names it in errors."""

    def __init__(self, whose: str) -> None:
        self._whose: Final = whose
        self._calls: set[asyncio.Timeout] = set()
        self._is_over = False

    def end(self) -> None:
        """End all calls that are under way."""
        self._is_over = True
        now_s = asyncio.get_running_loop().time()
        for call in self._calls:
            call.reschedule(now_s)

    @asynccontextmanager
    async def call(self) -> AsyncGenerator[None]:
        """What is done inside ends with the client, by NotRunning."""
        if self._is_over:
            raise self.reason
        call = asyncio.timeout(None)
        self._calls.add(call)
        try:
            async with call:
                yield
        except TimeoutError as error:
            if not call.expired():
                raise
            raise self.reason from error
        finally:
            self._calls.remove(call)

    async def within(self, doing: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine, if it comes before the end."""
        try:
            async with self.call():
                return await doing
        finally:
            doing.close()  # it has ended, or was refused before it began

    @property
    def reason(self) -> NotRunning:
        """Why a call fails that is too late."""
        return NotRunning(f"the {self._whose} was closed while this was asked")
