"""Pauses between tries: each twice as long as the one before, up to a limit, and uneven.

Invariant: a pause is never longer than the limit and a fifth, and many clients that failed at the
same moment do not come back at the same moment.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

JITTER: Final = 0.2
DOUBLINGS_MAX: Final = 32


class Backoff(NamedTuple):
    """How long to wait after so many failures in a row."""

    first_s: float
    longest_s: float
    random: Callable[[], float]

    def pause_s(self, failures: int) -> float:
        """The pause after the given number of failures in a row; none after none."""
        if failures <= 0:
            return 0.0
        doubled = self.first_s * 2 ** min(failures - 1, DOUBLINGS_MAX)
        return min(doubled, self.longest_s) * (1 - JITTER + 2 * JITTER * self.random())
