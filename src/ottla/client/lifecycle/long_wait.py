"""A wait of a client that is logged when it is long, with the reason, and so is its end.

Invariant: each reason is logged once per wait.
"""

import logging
from typing import Final

from ottla.clock import Clock
from ottla.errors import ErrorCode, RequestError

LONG_S: Final = 5.0

_log: Final = logging.getLogger(__name__)


class LongWait:
    """Attempts that fail until one succeeds, each of which may be short."""

    def __init__(self, clock: Clock, purpose: str, success: str) -> None:
        """The log lines are "still waiting PURPOSE: REASON" and SUCCESS."""
        self._clock = clock
        self._purpose = purpose
        self._success = success
        self._since_s: float | None = None
        self._logged: ErrorCode | None = None

    def failed(self, why: RequestError) -> None:
        """Note a failed attempt."""
        now_s = self._clock.elapsed_s()
        if self._since_s is None:
            self._since_s = now_s
        # The text is not compared, because it can have details that change.
        if now_s - self._since_s >= LONG_S and why.code is not self._logged:
            self._logged = why.code
            _log.warning("still waiting %s: %s", self._purpose, why)

    def succeeded(self) -> None:
        """Note the end of the wait."""
        self._since_s = None
        if self._logged is not None:
            self._logged = None
            _log.warning("%s", self._success)
