"""The simulated devices: generates what they send from one time to another.

Invariant: the messages depend only on the seed and the time. Intervals next to each other return
together what the whole interval returns, so a feed that was stopped can continue.
"""

import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

DEVICES: Final = 200
PERIOD_MS: Final = 200
"""The time between two readings of a device."""

LATE_MS: Final = 3_000
"""The delay of readings that the watermark of the job still includes."""

TOO_LATE_MS: Final = 20_000
"""The delay of readings that it excludes, and the longest of all."""

BLOCK_TICKS: Final = 25
"""A slow device is late, or not, for so many readings in a row."""


@dataclass(frozen=True, slots=True)
class Message:
    """A reading as a device sends it."""

    due_ms: int
    key: str
    value: bytes
    headers: Sequence[tuple[str, bytes]] = ()


def name_of(device: int) -> str:
    """Return the name of a device."""
    return f"device-{device:03}"


def drifts(device: int) -> bool:
    """Whether its temperature drifts, until it is reset every 15 minutes."""
    return device % 20 == 3


def fails(device: int) -> bool:
    """Whether its bearing jams every 45 s: temperature and vibration rise for 3 s."""
    return device % 40 == 7


def is_jammed(device: int, seconds: float) -> bool:
    """Whether the bearing of a device that fails is jammed; a different one jams every 9 s."""
    return (seconds + 9 * (device // 40)) % 45 < 3


def is_slow(device: int) -> bool:
    """Whether some of its readings are late."""
    return device % 25 == 11


def sends_invalid(device: int) -> bool:
    """Whether some of its readings are invalid."""
    return device % 50 == 19


def messages(seed: int, start_ms: int, end_ms: int) -> Iterator[Message]:
    """Generate the messages that arrive from one time to another, ordered by time."""
    found: list[Message] = []
    for device in range(DEVICES):
        since_ms = start_ms - TOO_LATE_MS if is_slow(device) else start_ms
        phase_ms = device * PERIOD_MS // DEVICES
        for tick in range(-((phase_ms - since_ms) // PERIOD_MS), _ticks(end_ms, phase_ms)):
            at_ms = tick * PERIOD_MS + phase_ms
            due_ms = at_ms + _delay_ms(device, tick)
            if start_ms <= due_ms < end_ms:
                source = random.Random((seed << 72) | (device << 56) | tick)
                value = _value(device, at_ms, source)
                found.append(Message(due_ms, name_of(device), value))
    # The sort is stable, so messages of a device with the same time stay in order.
    return iter(sorted(found, key=lambda message: message.due_ms))


def _ticks(end_ms: int, phase_ms: int) -> int:
    return -((phase_ms - end_ms) // PERIOD_MS)


def _delay_ms(device: int, tick: int) -> int:
    block = tick // BLOCK_TICKS + device
    if not is_slow(device) or block % 4:
        return 0
    return TOO_LATE_MS if block % 12 == 0 else LATE_MS


def _value(device: int, at_ms: int, source: random.Random) -> bytes:
    seconds = at_ms / 1000
    temperature = 20 + device % 17 + 1.5 * math.sin(math.tau * (seconds / 600 + device / DEVICES))
    temperature += source.gauss(0, 0.2)
    vibration = 1 + device % 7 * 0.1 + source.gauss(0, 0.05)
    if drifts(device):
        temperature += seconds % 900 * 0.01
    if fails(device) and is_jammed(device, seconds):
        temperature += 12
        vibration *= 4
    at = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    reading = {
        "device": name_of(device),
        "at": at.replace("+00:00", "Z"),
        "temperature": round(temperature, 2),
        "vibration": round(vibration, 3),
    }
    if sends_invalid(device) and source.random() < 0.2:
        return _invalid(reading, source)
    return json.dumps(reading).encode()


def _invalid(reading: Mapping[str, object], source: random.Random) -> bytes:
    whole = json.dumps(reading).encode()
    return source.choice(
        [
            whole[: source.randrange(1, len(whole) - 1)],
            b"",
            b"\xff\xfe\x00 power on",
            json.dumps({**reading, "temperature": "n/a"}).encode(),
            json.dumps({**reading, "at": "yesterday"}).encode(),
            json.dumps({**reading, "device": None}).encode(),
            json.dumps(
                {name: value for name, value in reading.items() if name != "vibration"}
            ).encode(),
        ]
    )
