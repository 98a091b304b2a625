"""How a query is doing, as Spark tells it.

Invariant: nothing is asked of the query but its last progress, so that to look costs it nothing.
"""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Progress:
    """One query after its last micro-batch."""

    name: str
    batch: int | None = None  # none is done yet
    batch_ms: int = 0
    rows_per_s: float = 0.0
    done: int = 0  # records of the topic, from its first one on
    too_late: int = 0  # rows that the watermark has left out of this micro-batch


def progress_of(name: str, told: Any) -> Progress:
    """What a query's last progress says."""
    if told is None:
        return Progress(name)
    (source,) = told["sources"]
    return Progress(
        name,
        told["batchId"],
        told["durationMs"].get("triggerExecution", 0),
        told["processedRowsPerSecond"],
        _records(source["endOffset"]),
        sum(one["numRowsDroppedByWatermark"] for one in told["stateOperators"]),
    )


def _records(place: Any) -> int:
    """How many records are before a place of a source, which is JSON."""
    topics: Any = json.loads(place) if isinstance(place, str) else place or {}
    return sum(sum(partitions.values()) for partitions in topics.values())
