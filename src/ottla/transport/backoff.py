"""Exponential backoff with jitter.

Invariant: a pause is at most 1.2 times the limit. Clients that fail at the same moment do not retry
at the same moment.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

JITTER: Final = 0.2
DOUBLINGS_MAX: Final = 32


class Backoff(NamedTuple):
    """The backoff after a number of consecutive failures."""

    first_s: float
    longest_s: float
    random: Callable[[], float]

    def pause_s(self, failures: int) -> float:
        """Return the pause after this many consecutive failures; 0 after none."""
        if failures <= 0:
            return 0.0
        doubled = self.first_s * 2 ** min(failures - 1, DOUBLINGS_MAX)
        return min(doubled, self.longest_s) * (1 - JITTER + 2 * JITTER * self.random())
