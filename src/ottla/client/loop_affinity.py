"""Ties a client to the event loop in which it was started.

Invariant: a call from another loop raises before it changes anything. The other loop would wait for
events that never arrive there, or change state that this loop is using.
"""

import asyncio
from typing import Final

from ottla.transport.failures import NotRunning

ELSEWHERE: Final = (
    "belongs to the event loop in which it was started, and this is another one, another thread or "
    "a process that was forked"
)
ONE_EACH: Final = "make one in each loop, or use ottla.sync, whose clients threads can share"


class LoopAffinity:
    """The loop that runs now; `whose` names the client in errors."""

    __slots__ = ("_loop", "_whose")

    def __init__(self, whose: str) -> None:
        self._whose = whose
        self._loop = asyncio.get_running_loop()

    def check(self) -> None:
        """Raise NotRunning unless the client's loop is running."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is not self._loop:
            raise NotRunning(f"the {self._whose} {ELSEWHERE}", ONE_EACH)


def runs_already(whose: str) -> RuntimeError:
    """Return the error for a client that is started twice."""
    return RuntimeError(
        f"the {whose} runs already: it is started once, and whoever needs it uses the one that "
        "runs; when that has ended it can be started again"
    )


def not_running(whose: str) -> NotRunning:
    """Return the error for a client that is not started or is closed."""
    return NotRunning(
        f"the {whose} does not run", "use `async with`: it runs inside of that, and ends there"
    )
