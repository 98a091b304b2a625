"""The states and types of groups.

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
"""Types of groups that are not consumer groups, but can be listed."""


def strange(words: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return the words that are not known, ignoring case."""
    there = {one.lower() for one in known}
    return [word for word in words if word.lower() not in there]
