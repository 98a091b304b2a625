"""What the sensors' job has to find, computed from what the devices sent, without Spark.

Invariant: it is the answer to a run that reads all of it in one micro-batch, as `--once` does: no
reading is too late then, and the watermark that ends averages is that of the last reading.
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from math import sqrt
from statistics import fmean
from typing import Any, NamedTuple

from sensors.devices import Message
from sensors.transformations import DEVIATIONS, SIGNALS, WARM_UP, Usual

WINDOW_MS, LATENESS_MS = 10_000, 5_000


class Answer(NamedTuple):
    """Averages by the end of their ten seconds and device; alerts; what could not be read."""

    averages: dict[tuple[int, str], tuple[float, float, int]]
    alerts: set[tuple[str, str, str, float]]
    dead: list[bytes]


def answer(messages: Iterable[Message]) -> Answer:
    """All of it."""
    readings: list[dict[str, Any]] = []
    dead: list[bytes] = []
    for message in messages:
        reading = _reading(message)
        dead.append(message.value) if reading is None else readings.append(reading)
    return Answer(_averages(readings), _alerts(readings), sorted(dead))


def _reading(message: Message) -> dict[str, Any] | None:
    try:
        said = json.loads(message.value)
        said["at_ms"] = round(datetime.fromisoformat(said["at"]).timestamp() * 1000)
        right = said["device"] == message.key
        return (
            said if right and all(isinstance(said[signal], float) for signal in SIGNALS) else None
        )
    except (ValueError, KeyError):
        return None


def _averages(readings: list[dict[str, Any]]) -> dict[tuple[int, str], tuple[float, float, int]]:
    windows: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for one in readings:
        windows[(one["at_ms"] // WINDOW_MS + 1) * WINDOW_MS, one["device"]].append(one)
    over_ms = max(one["at_ms"] for one in readings) - LATENESS_MS
    return {
        (end_ms, device): (
            fmean(one["temperature"] for one in ones),
            fmean(one["vibration"] for one in ones),
            len(ones),
        )
        for (end_ms, device), ones in windows.items()
        if end_ms <= over_ms
    }


def _alerts(readings: list[dict[str, Any]]) -> set[tuple[str, str, str, float]]:
    usual: dict[tuple[str, str], Usual] = defaultdict(Usual)
    found: set[tuple[str, str, str, float]] = set()
    for one in readings:
        for signal, least in SIGNALS.items():
            place, value = (one["device"], signal), one[signal]
            before = usual[place]
            far = DEVIATIONS * max(sqrt(before.variance), least)
            if before.seen >= WARM_UP and abs(value - before.mean) > far:
                found.add((one["device"], one["at"], signal, value))
            usual[place] = before.and_then(value)
    return found
