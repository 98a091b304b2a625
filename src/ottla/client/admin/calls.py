"""Calls: what the calls of every noun stand on.

Invariant: a call is made by an administrator that runs, or says how to start one.
"""

from typing import Final

from ottla.client.admin.asking import Asking
from ottla.transport.failures import Disconnected

NEVER_STARTED: Final = "the administrator was not started: use `async with`"


class Calls:
    """Calls on one cluster."""

    _started: Asking | None = None

    @property
    def _asking(self) -> Asking:
        if self._started is None:
            raise Disconnected(NEVER_STARTED)
        return self._started
