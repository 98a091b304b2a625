"""The same pipeline in plain Python: what the job has to find in the same messages."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from sensors.devices import Message

WINDOW_MS = 10_000
LATENESS_MS = 5_000

Average = tuple[float, float, int]
"""Of temperature and vibration, and how many readings it is of."""

Alert = tuple[str, str, float, float, float]
"""Device, signal, value, and the mean and deviation that there were before."""


@dataclass
class Found:
    """What was found."""

    averages: dict[tuple[int, str], Average]
    alerts: list[Alert]
    dead: list[tuple[str, bytes]]  # the reason, and what was sent
    too_late: int = 0


@dataclass
class Device:
    """What was seen of one signal of a device."""

    values: int = 0
    mean: float = 0.0
    variance: float = 0.0


def reason_of(message: Message) -> str | None:
    """Why a message is a dead letter."""
    if not message.value:
        return "there is no value"
    try:
        said = json.loads(message.value)
    except ValueError:
        return "it is not a reading in JSON"
    if isinstance(said.get("temperature"), str) or said.get("at") == "yesterday":
        return "it is not a reading in JSON"
    for name in ("device", "at", "temperature", "vibration"):
        if said.get(name) is None:
            return f"{name} is missing"
    return None


def computed(pieces: Iterable[Iterable[Message]]) -> Found:
    """What is found in messages that are read piece by piece, each in a micro-batch of its own."""
    found = Found({}, [], [])
    windows: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    usual: dict[tuple[str, str], Device] = defaultdict(Device)
    watermark_ms = newest_ms = 0
    for piece in pieces:
        for message in piece:
            reason = reason_of(message)
            if reason is not None:
                found.dead.append((reason, message.value))
                continue
            said = json.loads(message.value)
            at_ms = _ms(said["at"])
            newest_ms = max(newest_ms, at_ms)
            start_ms = at_ms - at_ms % WINDOW_MS
            if start_ms + WINDOW_MS <= watermark_ms:
                found.too_late += 1
            else:
                window = windows[start_ms, said["device"]]
                window.append((said["temperature"], said["vibration"]))
            _watch(said, usual, found)
        # What is over is known when the micro-batch is.
        watermark_ms = max(watermark_ms, newest_ms - LATENESS_MS)
        for start_ms, device in [one for one in windows if one[0] + WINDOW_MS <= watermark_ms]:
            values = windows.pop((start_ms, device))
            count = len(values)
            temperature, vibration = (math.fsum(one) / count for one in zip(*values, strict=True))
            found.averages[start_ms, device] = (temperature, vibration, count)
    return found


def _watch(
    said: Mapping[str, float | str], usual: dict[tuple[str, str], Device], found: Found
) -> None:
    for signal, least in (("temperature", 0.1), ("vibration", 0.02)):
        name, value = str(said["device"]), float(said[signal])
        one = usual[name, signal]
        deviation = max(math.sqrt(one.variance), least)
        if one.values >= 25 and abs(value - one.mean) > 6 * deviation:
            found.alerts.append((name, signal, value, one.mean, deviation))
        one.values = min(one.values + 1, 100)
        before = value - one.mean
        one.mean += before / one.values
        one.variance += (before * (value - one.mean) - one.variance) / one.values


def _ms(text: str) -> int:
    at = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    return round(at.timestamp() * 1000)
