"""Work that is done to its end once it has begun.

Invariant: whoever waits for such work may be cancelled, the work may not: what it does to the disk
and what it notes in memory belong together. The cancellation goes on when the work is over, and a
failure of it is in the state that it leaves behind.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def uninterrupted(
    method: Callable[P, Coroutine[Any, Any, T]],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """A coroutine function whose work goes on when its caller is cancelled."""

    @wraps(method)
    async def to_the_end(*args: P.args, **kwargs: P.kwargs) -> T:
        return await shielded(method(*args, **kwargs))

    return to_the_end


async def shielded(work: Coroutine[Any, Any, T]) -> T:
    """The result of work that is not interrupted."""
    try:
        task = asyncio.get_running_loop().create_task(work)
    except RuntimeError:
        return await work  # no loop runs, so nobody can cancel
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # it is in the state of what failed; nobody is there to hear of it
        raise cancelled
    return task.result()
