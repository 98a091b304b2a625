"""The simulated devices: their messages, their failures, and that a seed repeats them."""

import json
from collections import Counter
from datetime import datetime
from functools import cache
from itertools import pairwise

from pipeline.sensors.plain import NOT_JSON, compute, reason_of
from sensors.devices import (
    DEVICES,
    LATE_MS,
    PERIOD_MS,
    TOO_LATE_MS,
    Message,
    fails,
    is_slow,
    messages,
    name_of,
    sends_invalid,
)

START_MS = 1_800_000_000_000
MINUTE_MS = 60_000


def all_of(start_ms: int, end_ms: int, seed: int = 7) -> list[Message]:
    return list(messages(seed, start_ms, end_ms))


@cache
def one_minute() -> list[Message]:
    """All messages of a minute in which no failing device fails before its mean is known."""
    start_ms = START_MS + 21_000
    return all_of(start_ms, start_ms + MINUTE_MS)


def test_messages_depend_only_on_the_seed() -> None:
    once = all_of(START_MS, START_MS + 2_000)
    assert once == all_of(START_MS, START_MS + 2_000)
    assert once != all_of(START_MS, START_MS + 2_000, seed=8)


def test_intervals_return_together_what_the_whole_returns() -> None:
    whole = all_of(START_MS, START_MS + 30_000)
    cuts = [0, 1, 199, 200, 7_777, 7_778, 30_000]
    pieces = [
        one
        for start_ms, end_ms in pairwise(cuts)
        for one in all_of(START_MS + start_ms, START_MS + end_ms)
    ]
    assert pieces == whole


def test_devices_send_regularly_and_messages_are_ordered() -> None:
    found = one_minute()
    assert [one.due_ms for one in found] == sorted(one.due_ms for one in found)
    counts = Counter(one.key for one in found)
    assert set(counts) == {name_of(device) for device in range(DEVICES)}
    punctual = {counts[name_of(one)] for one in range(DEVICES) if not is_slow(one)}
    assert punctual == {MINUTE_MS // PERIOD_MS}


def test_slow_devices_are_late_by_3_s_and_by_20_s() -> None:
    delays = Counter[int]()
    for one in one_minute():
        if is_slow(int(one.key[-3:])):
            at = json.loads(one.value)["at"]
            delays[one.due_ms - _ms(at)] += 1
    assert set(delays) == {0, LATE_MS, TOO_LATE_MS}
    assert min(delays.values()) > 100


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def test_some_devices_send_every_kind_of_invalid_reading() -> None:
    found = one_minute()
    wrong = [one for one in found if reason_of(one) is not None]
    assert {int(one.key[-3:]) for one in wrong} == {
        device for device in range(DEVICES) if sends_invalid(device)
    }
    assert {reason_of(one) for one in wrong} == {
        "the value is empty",
        "the value is not UTF-8",
        NOT_JSON,
        "column device is null",
        "column vibration is null",
    }


def test_failing_devices_raise_alerts() -> None:
    found = compute([one_minute()])
    alarming = {alert[0] for alert in found.alerts}
    assert alarming >= {name_of(device) for device in range(DEVICES) if fails(device)}
    assert len(alarming) < 20
