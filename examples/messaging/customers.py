"""The simulated customers: generates the orders that they send from one time to another.

Invariant: the orders depend only on the seed and the time, and no two have the same id. Intervals
next to each other return together what the whole interval returns.
"""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from messaging.requests import REPLY_TO
from messaging.topics import ANSWERS, CORRELATION_ID

PERIOD_MS: Final = 50
"""The time between two orders."""

ITEMS: Final = {"bread": 30, "coffee": 30, "honey": 20, "tea": 17, "umbrella": 2, "piano": 1}
"""What customers order, and how often of a hundred times."""

CUSTOMERS: Final = ("ann", "bob", "cleo", "dan", "eva", "finn", "gina", "hugo")


@dataclass(frozen=True, slots=True)
class OrderMessage:
    """An order as a customer sends it."""

    due_ms: int
    key: str
    value: bytes
    headers: Sequence[tuple[str, bytes]]


def messages(seed: int, start_ms: int, end_ms: int) -> Iterator[OrderMessage]:
    """Generate the orders from one time to another, ordered by time."""
    for tick in range(-(-start_ms // PERIOD_MS), -(-end_ms // PERIOD_MS)):
        source = random.Random((seed << 64) | tick)
        [item] = source.choices([*ITEMS], weights=[*ITEMS.values()])
        key = f"{seed}-{tick}"
        order = {
            "order": key,
            "customer": source.choice(CUSTOMERS),
            "item": item,
            "count": source.randint(1, 5),
        }
        headers = ((CORRELATION_ID, key.encode()), (REPLY_TO, ANSWERS.encode()))
        yield OrderMessage(tick * PERIOD_MS, key, json.dumps(order).encode(), headers)
