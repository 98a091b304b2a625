"""Ends a client's calls together with the client.

Invariant: a call in progress when the client closes fails with NotRunning; a call that starts later
fails at once. No caller waits for a response that cannot arrive.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from ottla.transport.failures import NotRunning

T = TypeVar("T")


class CallScope:
    """The time from the start of a client to `end`; `whose` names the client in errors."""

    def __init__(self, whose: str) -> None:
        self._whose: Final = whose
        self._calls: set[asyncio.Timeout] = set()
        self._is_over = False

    def end(self) -> None:
        """Fail all calls in progress."""
        self._is_over = True
        now_s = asyncio.get_running_loop().time()
        for call in self._calls:
            call.reschedule(now_s)

    @asynccontextmanager
    async def call(self) -> AsyncGenerator[None]:
        """Run the body as a call that fails with NotRunning when the client closes."""
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
        """Return the result of a coroutine, if it completes before the end."""
        try:
            async with self.call():
                return await doing
        finally:
            doing.close()  # it has completed, or was refused before it started

    @property
    def reason(self) -> NotRunning:
        """The error of a call that is too late."""
        return NotRunning(f"the {self._whose} was closed during this call")
