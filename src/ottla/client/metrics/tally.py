"""Count, sum and maximum of a series.

Invariant: adding takes constant time; the average of nothing is NaN.
"""

from dataclasses import dataclass
from typing import Final

NOT_YET: Final = float("nan")
"""The average or maximum of nothing, as in Kafka."""


@dataclass(slots=True)
class Tally:
    """Count, sum, maximum and last value."""

    count: int = 0
    total: float = 0.0
    largest: float = NOT_YET
    last: float = NOT_YET

    def add(self, value: float) -> None:
        """Add a value."""
        self.count += 1
        self.total += value
        self.last = value
        if not self.largest >= value:  # true for NaN as well
            self.largest = value

    @property
    def average(self) -> float:
        """The average so far."""
        return self.total / self.count if self.count else NOT_YET
