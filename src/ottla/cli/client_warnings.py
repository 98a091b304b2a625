"""Prints the warnings of the client: what it waits for, and that the wait is over."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

DELAY_S: Final = 1.0
"""A command that fails at once prints the reason itself."""

_CLIENT: Final = logging.getLogger("ottla.client")


class ClientWarnings(logging.Handler):
    """Calls `report` with each warning of the `with` block, if the event loop still runs then."""

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Callable[[str], object]) -> None:
        super().__init__(logging.WARNING)
        self._loop = loop
        self._report = report

    def __enter__(self) -> Self:
        _CLIENT.addHandler(self)
        return self

    def __exit__(self, *exception: object) -> None:
        _CLIENT.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Handle a warning."""
        self._loop.call_later(DELAY_S, self._print, record.getMessage())

    def _print(self, text: str) -> None:
        with suppress(OSError, ValueError):  # stderr is closed, or its reader is gone
            self._report(text)
