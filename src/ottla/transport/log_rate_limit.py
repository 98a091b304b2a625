"""Limits the log lines that peers can cause.

Invariant: per minute, one line for a subject and a reason, and LINES_MAX lines in total. The next
line carries the number of suppressed ones. No peer can fill the log.
"""

from enum import StrEnum
from typing import Final

SECONDS: Final = 60.0
LINES_MAX: Final = 200


class CloseReason(StrEnum):
    """Why the broker closes a connection."""

    VIOLATION = "violation"  # the bytes are not a valid request
    OVERDUE = "overdue"  # the client is idle or too slow
    CROWDED = "crowded"  # max.connections is exceeded and this one was idle longest
    UNAUTHENTICATED = "unauthenticated"  # the broker refused a login
    FAILURE = "failure"  # an error in the broker


class LogRateLimit:
    """Remembers which lines were logged in the last minute."""

    __slots__ = ("_logged_s", "_suppressed")

    def __init__(self) -> None:
        self._logged_s: dict[tuple[str, str], float] = {}  # oldest first
        self._suppressed = 0

    def suppressed(self, peer: str, reason: str, elapsed_s: float) -> int | None:
        """Return how many lines were suppressed before this one; None if this one is too."""
        logged_s = self._logged_s
        while logged_s and elapsed_s - logged_s[oldest := next(iter(logged_s))] >= SECONDS:
            del logged_s[oldest]
        if (peer, reason) in logged_s or len(logged_s) >= LINES_MAX:
            self._suppressed += 1
            return None
        logged_s[peer, reason] = elapsed_s
        suppressed, self._suppressed = self._suppressed, 0
        return suppressed
