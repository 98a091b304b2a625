"""Work that completes even if its caller is cancelled.

Invariant: a caller may be cancelled, the work may not: changes on the disk and in memory belong
together. The cancellation continues after the work, and a failure of the work is kept in the state
of the log.
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
    """A coroutine function whose work completes if its caller is cancelled."""

    @wraps(method)
    async def run_to_the_end(*args: P.args, **kwargs: P.kwargs) -> T:
        return await shielded(method(*args, **kwargs))

    return run_to_the_end


async def shielded(work: Coroutine[Any, Any, T]) -> T:
    """Run work to its end and return its result."""
    try:
        task = asyncio.get_running_loop().create_task(work)
    except RuntimeError:
        return await work  # without a running loop nobody can cancel it
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # kept in the state of the log; retrieve it for asyncio
        raise cancelled
    return task.result()
