"""The devices, which are invented: what each of them measures and sends at any time.

Invariant: a seed says all of it. What is sent between two moments is the same however often and in
whatever pieces it is asked for: a feed that starts again goes on as if it had never stopped.
"""

import json
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

DEVICES: Final = 200
PERIOD_MS: Final = 200
"""Each device measures so often."""

LATE_MS: Final = 3_000
"""Soon enough to be counted."""

TOO_LATE_MS: Final = 20_000
"""The longest that a reading is on its way."""

BLOCK_TICKS: Final = 25
"""For so many readings a device is late, or is not."""


@dataclass(frozen=True, slots=True)
class Message:
    """What a device sends."""

    due_ms: int
    key: str
    value: bytes


def name_of(device: int) -> str:
    """What a device is called."""
    return f"device-{device:03}"


def drifts(device: int) -> bool:
    """Whether it measures more and more, until it is put right every quarter of an hour."""
    return device % 20 == 3


def fails(device: int) -> bool:
    """Whether its bearing jams now and then: it shakes, and gets hot."""
    return device % 40 == 7


def is_slow(device: int) -> bool:
    """Whether its readings are late at times."""
    return device % 25 == 11


def garbles(device: int) -> bool:
    """Whether some of what it sends cannot be read."""
    return device % 50 == 19


def messages(seed: int, start_ms: int, end_ms: int) -> Iterator[Message]:
    """What arrives from one moment to another, in that order."""
    found: list[Message] = []
    for device in range(DEVICES):
        since_ms = start_ms - TOO_LATE_MS if is_slow(device) else start_ms
        phase_ms = device * PERIOD_MS // DEVICES
        for tick in range(-((phase_ms - since_ms) // PERIOD_MS), _ticks(end_ms, phase_ms)):
            at_ms = tick * PERIOD_MS + phase_ms
            due_ms = at_ms + _delay_ms(device, tick)
            if start_ms <= due_ms < end_ms:
                chance = random.Random((seed << 72) | (device << 56) | tick)
                value = _value(device, at_ms, chance)
                found.append(Message(due_ms, name_of(device), value))
    # Stable: what a device sends at the same moment stays in the order in which it measured it.
    return iter(sorted(found, key=lambda message: message.due_ms))


def _ticks(end_ms: int, phase_ms: int) -> int:
    return -((phase_ms - end_ms) // PERIOD_MS)


def _delay_ms(device: int, tick: int) -> int:
    block = tick // BLOCK_TICKS + device
    if not is_slow(device) or block % 4:
        return 0
    return TOO_LATE_MS if block % 12 == 0 else LATE_MS


def _value(device: int, at_ms: int, chance: random.Random) -> bytes:
    seconds = at_ms / 1000
    temperature = 20 + device % 17 + 1.5 * math.sin(math.tau * (seconds / 600 + device / DEVICES))
    temperature += chance.gauss(0, 0.2)
    vibration = 1 + device % 7 * 0.1 + chance.gauss(0, 0.05)
    if drifts(device):
        temperature += seconds % 900 * 0.01
    if fails(device) and (seconds + device) % 45 < 3:
        temperature += 12
        vibration *= 4
    at = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    reading = {
        "device": name_of(device),
        "at": at.replace("+00:00", "Z"),
        "temperature": round(temperature, 2),
        "vibration": round(vibration, 3),
    }
    if garbles(device) and chance.random() < 0.2:
        return _garbled(reading, chance)
    return json.dumps(reading).encode()


def _garbled(reading: Mapping[str, object], chance: random.Random) -> bytes:
    whole = json.dumps(reading).encode()
    return chance.choice(
        [
            whole[: chance.randrange(1, len(whole) - 1)],
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
