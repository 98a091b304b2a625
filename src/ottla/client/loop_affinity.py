"""The home of a client: the event loop in which it was started, and where alone it can be used.

Invariant: who calls from elsewhere is told so before anything is touched: another loop would wait
for what is never told there, or take apart what this one is about to use.
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
    """Where a client lives: the loop that runs now; `whose` names it in errors."""

    __slots__ = ("_loop", "_whose")

    def __init__(self, whose: str) -> None:
        self._whose = whose
        self._loop = asyncio.get_running_loop()

    def check(self) -> None:
        """NotRunning unless its loop is the one that runs."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is not self._loop:
            raise NotRunning(f"the {self._whose} {ELSEWHERE}", ONE_EACH)


def runs_already(whose: str) -> RuntimeError:
    """What to raise for a client that is started while it runs."""
    return RuntimeError(
        f"the {whose} runs already: it is started once, and whoever needs it uses the one that "
        "runs; when that has ended it can be started again"
    )


def not_running(whose: str) -> NotRunning:
    """What to raise for a client that was not started, or has ended."""
    return NotRunning(
        f"the {whose} does not run", "use `async with`: it runs inside of that, and ends there"
    )
