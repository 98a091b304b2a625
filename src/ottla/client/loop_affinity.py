"""Ties a client to the event loop in which it was started.

Invariant: a call from another loop raises before it changes anything. The other loop would wait for
events that never arrive there, or change state that this loop is using.
"""

import asyncio
from typing import Final, NoReturn

from ottla.transport.failures import NotRunning

ELSEWHERE: Final = (
    "belongs to the event loop in which it was started, and cannot be used in another loop, "
    "another thread or a forked process"
)
ONE_EACH: Final = (
    "create one in each loop, or use ottla.sync, whose clients can be shared by threads"
)


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
        f"the {whose} is already running: share the running one, or close it before you start it "
        "again"
    )


def not_running(whose: str) -> NotRunning:
    """Return the error for a client that is not started or is closed."""
    return NotRunning(
        f"the {whose} is not running", "use `async with`, which starts it and closes it at the end"
    )


class AsyncWith:
    """A client that `async with` starts; a plain `with` raises a TypeError that says so."""

    def __enter__(self) -> NoReturn:
        """Raise TypeError."""
        name = type(self).__name__
        raise TypeError(
            f"start {name} with `async with`, or import {name} from ottla.sync to use `with`"
        )

    def __exit__(self, *exception: object) -> None:
        """Do nothing: a plain `with` never enters."""
