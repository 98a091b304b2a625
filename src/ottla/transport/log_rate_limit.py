"""Which complaints about peers reach the log: the first ones.

Invariant: a peer is complained about once in a minute for one reason, whatever it does, and all
peers together at most LINES_MAX times; the next line says how many were left out. So nobody fills
the log from outside.
"""

from enum import StrEnum
from typing import Final

SECONDS: Final = 60.0
LINES_MAX: Final = 200


class CloseReason(StrEnum):
    """Why the broker closes a connection."""

    VIOLATION = "violation"  # the client's bytes are no request
    OVERDUE = "overdue"  # the client is idle or too slow
    CROWDED = "crowded"  # there are too many, and others were heard of later
    FAILURE = "failure"  # our mistake


class LogRateLimit:
    """Remembers who was complained about lately, and why."""

    __slots__ = ("_left_out", "_said_s")

    def __init__(self) -> None:
        self._said_s: dict[tuple[str, str], float] = {}  # the oldest first
        self._left_out = 0

    def left_out(self, peer: str, reason: str, elapsed_s: float) -> int | None:
        """How many were left out before this one; None when this one is left out too."""
        said_s = self._said_s
        while said_s and elapsed_s - said_s[oldest := next(iter(said_s))] >= SECONDS:
            del said_s[oldest]
        if (peer, reason) in said_s or len(said_s) >= LINES_MAX:
            self._left_out += 1
            return None
        said_s[peer, reason] = elapsed_s
        left_out, self._left_out = self._left_out, 0
        return left_out
