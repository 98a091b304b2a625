"""The invented devices do what the example is to show, and always the same."""

import json
from collections import Counter
from datetime import datetime
from itertools import pairwise

from sensors.devices import (
    DEVICES,
    LATE_MS,
    PERIOD_MS,
    TOO_LATE_MS,
    Message,
    fails,
    garbles,
    is_slow,
    messages,
    name_of,
)

from pipeline.sensors.plain import computed, reason_of

START_MS = 1_800_000_000_000
MINUTE_MS = 60_000


def all_of(start_ms: int, end_ms: int, seed: int = 7) -> list[Message]:
    return list(messages(seed, start_ms, end_ms))


def test_a_seed_says_all_of_it() -> None:
    once = all_of(START_MS, START_MS + 10_000)
    assert once == all_of(START_MS, START_MS + 10_000)
    assert once != all_of(START_MS, START_MS + 10_000, seed=8)


def test_pieces_are_the_whole() -> None:
    whole = all_of(START_MS, START_MS + 30_000)
    cuts = [0, 1, 199, 200, 7_777, 7_778, 30_000]
    pieces = [
        one
        for start_ms, end_ms in pairwise(cuts)
        for one in all_of(START_MS + start_ms, START_MS + end_ms)
    ]
    assert pieces == whole


def test_every_device_sends_at_its_pace_and_what_is_due_comes_in_order() -> None:
    found = all_of(START_MS, START_MS + MINUTE_MS)
    assert [one.due_ms for one in found] == sorted(one.due_ms for one in found)
    counts = Counter(one.key for one in found)
    assert set(counts) == {name_of(device) for device in range(DEVICES)}
    punctual = {counts[name_of(one)] for one in range(DEVICES) if not is_slow(one)}
    assert punctual == {MINUTE_MS // PERIOD_MS}


def test_slow_devices_are_late_by_little_and_by_much() -> None:
    delays = Counter[int]()
    for one in all_of(START_MS, START_MS + 2 * MINUTE_MS):
        if is_slow(int(one.key[-3:])):
            at = json.loads(one.value)["at"]
            delays[one.due_ms - _ms(at)] += 1
    assert set(delays) == {0, LATE_MS, TOO_LATE_MS}
    assert min(delays.values()) > 100


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def test_some_devices_send_what_cannot_be_read_in_every_way() -> None:
    found = all_of(START_MS, START_MS + 2 * MINUTE_MS)
    wrong = [one for one in found if reason_of(one) is not None]
    assert {int(one.key[-3:]) for one in wrong} == {
        device for device in range(DEVICES) if garbles(device)
    }
    assert {reason_of(one) for one in wrong} == {
        "there is no value",
        "it is not a reading in JSON",
        "device is missing",
        "vibration is missing",
    }


def test_failing_devices_stand_out() -> None:
    found = computed([all_of(START_MS, START_MS + 2 * MINUTE_MS)])
    alarming = {alert[0] for alert in found.alerts}
    assert alarming >= {name_of(device) for device in range(DEVICES) if fails(device)}
    assert len(alarming) < 20
