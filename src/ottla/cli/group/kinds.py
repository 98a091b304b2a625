"""The states and the types that groups of consumers have.

Invariant: the words are Kafka's, in its order.
"""

from collections.abc import Iterable
from typing import Final

STATES: Final = (
    *("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty"),
    *("Assigning", "Reconciling"),
)
TYPES: Final = ("Classic", "Consumer")
OTHER_TYPES: Final = ("Share", "Streams")
"""Those of groups that are no consumers', which can be listed."""


def strange(words: Iterable[str], known: Iterable[str]) -> list[str]:
    """The words that are none of those, however they are written."""
    there = {one.lower() for one in known}
    return [word for word in words if word.lower() not in there]
