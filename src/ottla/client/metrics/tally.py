"""A tally: how many things there were, their sum and the largest.

Invariant: adding costs the same however many there were; of none there is no average.
"""

from dataclasses import dataclass
from typing import Final

NOT_YET: Final = float("nan")
"""An average or a maximum of nothing, as in Kafka."""


@dataclass(slots=True)
class Tally:
    """A number of things, their sum, the largest and the last."""

    count: int = 0
    total: float = 0.0
    largest: float = NOT_YET
    last: float = NOT_YET

    def add(self, value: float) -> None:
        """Count one more."""
        self.count += 1
        self.total += value
        self.last = value
        if not self.largest >= value:  # nothing is larger than no number
            self.largest = value

    @property
    def average(self) -> float:
        """Of all so far."""
        return self.total / self.count if self.count else NOT_YET
