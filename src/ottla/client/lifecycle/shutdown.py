"""Shutdown that completes even if its caller is cancelled.

Invariant: it returns or raises when everything is closed. A cancellation in between is delivered
afterwards; it is not lost.
"""

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from typing import Any

from ottla.errors import RequestError


async def end_all(ending: Coroutine[Any, Any, None]) -> None:
    """Run a shutdown that takes a few iterations of the event loop and waits for nobody else."""
    doing = asyncio.get_running_loop().create_task(ending)
    cancelled: asyncio.CancelledError | None = None
    while not doing.done():
        try:
            await asyncio.wait((doing,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not doing.cancelled():
            doing.exception()  # the cancellation says more
        raise cancelled
    doing.result()


@contextmanager
def noted_on(error: BaseException | None) -> Generator[None]:
    """Raise an error of the shutdown, or add it as a note to the error that caused the shutdown."""
    try:
        yield
    except RequestError as failure:
        if error is None:
            raise
        error.add_note(f"error during close: {failure}")
