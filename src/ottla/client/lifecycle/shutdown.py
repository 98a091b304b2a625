"""An ending: what is begun to be ended is ended, also when who waits for it is cancelled.

Invariant: it returns, or raises, when nothing more is to be done. A cancellation that comes
meanwhile counts afterwards; it is not lost.
"""

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from typing import Any

from ottla.errors import RequestError


async def end_all(ending: Coroutine[Any, Any, None]) -> None:
    """Go through an ending that takes a few turns of the event loop and waits for nobody else."""
    doing = asyncio.get_running_loop().create_task(ending)
    cancelled: asyncio.CancelledError | None = None
    while not doing.done():
        try:
            await asyncio.wait((doing,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not doing.cancelled():
            doing.exception()  # that who waited was cancelled says more
        raise cancelled
    doing.result()


@contextmanager
def noted_on(error: BaseException | None) -> Generator[None]:
    """What an ending fails by is raised, or noted on the error that brought the ending about."""
    try:
        yield
    except RequestError as failure:
        if error is None:
            raise
        error.add_note(f"and while it was closed: {failure}")
