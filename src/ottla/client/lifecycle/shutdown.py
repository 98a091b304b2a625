"""Shutdown that completes even if its caller is cancelled.

Invariant: it returns or raises when everything is closed. A cancellation in between is delivered
afterwards; it is not lost.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, Final

from ottla.errors import RequestError

SILENT_CLOSE_S: Final = 1.0
"""A close that takes longer is logged, so that it does not look hung."""

_log: Final = logging.getLogger(__name__)


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


@contextmanager
def long_close_logged(count: Callable[[], int], timeout_s: float, state: str) -> Generator[None]:
    """Log a warning if the close waits: for how many records, at most how long, and their state."""

    def log() -> None:
        records = count()
        nouns = "record that is" if records == 1 else "records that are"
        _log.warning("closing: waits up to %g s for %d %s %s", timeout_s, records, nouns, state)

    timer = asyncio.get_running_loop().call_later(SILENT_CLOSE_S, log)
    try:
        yield
    finally:
        timer.cancel()
