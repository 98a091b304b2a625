"""The same job in plain Python: computes what the job on Spark has to write."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from sensors.devices import Message

WINDOW_MS = 10_000
LATENESS_MS = 5_000
NOT_JSON = "the value is not JSON with the columns of the schema"

Average = tuple[float, float, int]
"""The means of temperature and vibration, and the number of readings."""

Alert = tuple[str, str, float, float, float]
"""Device, signal, value, and the mean and deviation before it."""


@dataclass
class Results:
    """What the job writes."""

    averages: dict[tuple[int, str], Average]  # by start of the window and device
    alerts: list[Alert]
    dead_letters: list[tuple[str, bytes]]  # reason and value
    late_rows: int = 0


@dataclass
class RunningMean:
    """The running mean and variance of one signal of a device."""

    readings: int = 0
    mean: float = 0.0
    variance: float = 0.0
    newest_ms: int = 0


def reason_of(message: Message) -> str | None:
    """Return why a message is a dead letter; None if it is a reading."""
    if not message.value:
        return "the value is empty"
    try:
        reading = json.loads(message.value.decode())
    except UnicodeDecodeError:
        return "the value is not UTF-8"
    except ValueError:
        return NOT_JSON
    if isinstance(reading.get("temperature"), str) or reading.get("at") == "yesterday":
        return NOT_JSON
    for name in ("device", "at", "temperature", "vibration"):
        if reading.get(name) is None:
            return f"column {name} is null"
    return None


def compute(batches: Iterable[Iterable[Message]]) -> Results:
    """Compute the results for messages that the job reads in these micro-batches."""
    results = Results({}, [], [])
    windows: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    means: dict[tuple[str, str], RunningMean] = defaultdict(RunningMean)
    watermark_ms = newest_ms = 0
    for batch in batches:
        for message in batch:
            reason = reason_of(message)
            if reason is not None:
                results.dead_letters.append((reason, message.value))
                continue
            reading = json.loads(message.value)
            at_ms = _ms(reading["at"])
            newest_ms = max(newest_ms, at_ms)
            start_ms = at_ms - at_ms % WINDOW_MS
            if start_ms + WINDOW_MS <= watermark_ms:
                results.late_rows += 1
            else:
                window = windows[start_ms, reading["device"]]
                window.append((reading["temperature"], reading["vibration"]))
            _find_anomalies(reading, at_ms, means, results)
        # The watermark moves after a micro-batch, and then windows before it are complete.
        watermark_ms = max(watermark_ms, newest_ms - LATENESS_MS)
        for start_ms, device in [one for one in windows if one[0] + WINDOW_MS <= watermark_ms]:
            values = windows.pop((start_ms, device))
            count = len(values)
            temperature, vibration = (math.fsum(one) / count for one in zip(*values, strict=True))
            results.averages[start_ms, device] = (temperature, vibration, count)
    return results


def _find_anomalies(
    reading: Mapping[str, float | str],
    at_ms: int,
    means: dict[tuple[str, str], RunningMean],
    results: Results,
) -> None:
    for signal, deviation_min in (("temperature", 0.1), ("vibration", 0.02)):
        device, value = str(reading["device"]), float(reading[signal])
        if at_ms - means[device, signal].newest_ms > 30_000:
            means[device, signal] = RunningMean()
        mean = means[device, signal]
        mean.newest_ms = max(mean.newest_ms, at_ms)
        deviation = max(math.sqrt(mean.variance), deviation_min)
        if mean.readings >= 25 and abs(value - mean.mean) > 6 * deviation:
            results.alerts.append((device, signal, value, mean.mean, deviation))
        mean.readings = min(mean.readings + 1, 100)
        difference = value - mean.mean
        mean.mean += difference / mean.readings
        mean.variance += (difference * (value - mean.mean) - mean.variance) / mean.readings


def _ms(text: str) -> int:
    at = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    return round(at.timestamp() * 1000)
