"""The job of the example: its transformations with few rows, and all of it on a broker."""

import json
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas
import pytest

from judges.ottla_broker import OttlaBroker
from ottla.sync import Admin
from pipeline.sensors.judging import EXAMPLE, check, send
from pipeline.sensors.plain import compute, reason_of
from sensors import job
from sensors.devices import (
    DEVICES,
    Message,
    fails,
    is_slow,
    messages,
    name_of,
    sends_invalid,
)

START = datetime(2027, 1, 1, tzinfo=UTC)
SEED = 7
START_MS = 1_800_000_000_000
PIECE_MS = 15_000


def reading(**other: object) -> bytes:
    fields = {"device": "d", "at": "2027-01-01T00:00:00.000Z", "temperature": 21.5}
    return json.dumps({**fields, "vibration": 1.25, **other}).encode()


VALID = [reading(), reading(temperature=3, other=[1])]
INVALID: list[tuple[bytes | None, bytes | None, str]] = [
    (b"d", None, "the value is empty"),
    (b"d", b"", "the value is empty"),
    (b"d", b"{", "the value is not a reading in JSON"),
    (b"d", b"[]", "the value is not a reading in JSON"),
    (b"d", b"12", "the value is not a reading in JSON"),
    (b"d", b"\xff\xfe\x00", "the value is not a reading in JSON"),
    (b"d", reading()[:-1], "the value is not a reading in JSON"),
    (b"d", reading(temperature="n/a"), "the value is not a reading in JSON"),
    (b"d", reading(at="yesterday"), "the value is not a reading in JSON"),
    (b"d", b"{}", "device is missing"),
    (b"d", reading(at=None), "at is missing"),
    (b"d", reading(temperature=None), "temperature is missing"),
    (b"d", reading(vibration=None), "vibration is missing"),
    (b"d", reading(device="another"), "the key is not the device"),
    (None, reading(), "the key is not the device"),
]


def test_records_are_readings_or_dead_letters_with_a_reason(spark: Any) -> None:
    records = [*((b"d", value) for value in VALID), *((key, value) for key, value, _ in INVALID)]
    rows = [(key, value, "t", 3, offset, START) for offset, (key, value) in enumerate(records)]
    names = "key BINARY, value BINARY, topic STRING, partition INT, offset LONG"
    raw = spark.createDataFrame(rows, f"{names}, timestamp TIMESTAMP")

    valid = job.readings(raw).collect()
    assert [(row.device, row.temperature, row.vibration, row.offset) for row in valid] == [
        ("d", 21.5, 1.25, 0),
        ("d", 3.0, 1.25, 1),
    ]
    assert valid[0].at.astimezone(UTC) == START

    letters = job.dead_letters(raw).collect()
    assert [(row.key, row.value) for row in letters] == [one[:2] for one in INVALID]
    headers = [{one.key: bytes(one.value).decode() for one in row.headers} for row in letters]
    assert headers == [
        {
            "reason": reason,
            "origin.topic": "t",
            "origin.partition": "3",
            "origin.offset": str(offset),
            "origin.timestamp": "2027-01-01 00:00:00",
        }
        for offset, (_, _, reason) in enumerate(INVALID, start=len(VALID))
    ]


def test_averages_are_per_device_and_ten_seconds(spark: Any) -> None:
    rows = [
        ("a", START, 10.0, 1.0),
        ("a", START + timedelta(seconds=9.999), 20.0, 2.0),
        ("a", START + timedelta(seconds=10), 40.0, 3.0),
        ("b", START + timedelta(seconds=5), 1.0, 1.0),
    ]
    frame = spark.createDataFrame(
        rows, "device STRING, at TIMESTAMP, temperature DOUBLE, vibration DOUBLE"
    )
    found = job.averages(frame).orderBy("device", "start").collect()
    assert [
        (row.device, (row.start.astimezone(UTC) - START).seconds, row.temperature, row.vibration)
        for row in found
    ] == [("a", 0, 15.0, 1.5), ("a", 10, 40.0, 3.0), ("b", 0, 1.0, 1.0)]
    assert [row.readings for row in found] == [2, 1, 1]
    assert found[0].end - found[0].start == timedelta(seconds=10)


class State:
    """The state of a device, as Spark passes it."""

    def __init__(self) -> None:
        self.get: Any = None

    @property
    def exists(self) -> bool:
        return self.get is not None

    def update(self, value: tuple[Any, ...]) -> None:
        self.get = value


def anomalies(state: State, *pieces: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """The second and value of each anomaly in temperatures, which come with their offsets."""
    pd: Any = pandas
    frames = [
        pd.DataFrame(
            {
                "offset": [offset for offset, _ in piece],
                "at": [START + timedelta(seconds=offset) for offset, _ in piece],
                "temperature": [value for _, value in piece],
                "vibration": [1.0 for _ in piece],
            }
        )
        for piece in pieces
    ]
    found: list[Any] = list(job.find_anomalies(("d",), iter(frames), state))
    return [
        ((row.at - START).seconds, row.value)
        for frame in found
        for row in frame.itertuples()
        if row.signal == "temperature"
    ]


STEADY = [(offset, 20.0 + offset % 2) for offset in range(100)]


def test_values_near_the_mean_are_not_anomalies() -> None:
    assert anomalies(State(), STEADY) == []


def test_value_far_from_the_mean_is_an_anomaly() -> None:
    assert anomalies(State(), [*STEADY, (100, 40.0), (101, 20.0)]) == [(100, 40.0)]


def test_new_device_has_no_anomalies() -> None:
    first = STEADY[: job.WARM_UP - 1]
    assert anomalies(State(), [*first, (50, 40.0)]) == []
    assert anomalies(State(), [*first, (50, 20.0), (51, 40.0)]) == [(51, 40.0)]


def test_micro_batches_and_row_order_make_no_difference() -> None:
    rows = [*STEADY, (100, 27.0), (101, 26.5), (102, 20.0)]
    whole = State()
    expected = anomalies(whole, rows)
    assert expected
    pieces = State()
    found = anomalies(pieces, rows[:30])
    found += anomalies(pieces, rows[99:29:-1], rows[100:101])
    found += anomalies(pieces, rows[101:])
    assert found == expected
    assert pieces.get == whole.get


def test_mean_is_forgotten_after_a_pause_of_readings() -> None:
    state = State()
    assert anomalies(state, STEADY) == []
    after = [(99 + 25 * 60 + offset, 40.0 + offset % 2) for offset in range(40)]
    assert anomalies(state, after) == []
    end = after[-1][0]
    assert anomalies(state, [(end + 30, 60.0)]) == [(end + 30, 60.0)]
    assert anomalies(state, [(end + 61, 60.0)]) == []


def test_late_readings_do_not_expire_the_mean() -> None:
    state = State()
    assert anomalies(state, STEADY[50:]) == []
    assert anomalies(state, STEADY[:10]) == []
    assert anomalies(state, [(100, 40.0)]) == [(100, 40.0)]


def test_run_after_a_pause_raises_no_false_alerts() -> None:
    states = {name_of(device): State() for device in range(DEVICES)}
    alarming: set[str] = set()
    for start_ms in (START_MS, START_MS + 25 * 60_000):
        sent = [one for one in messages(SEED, start_ms, start_ms + 12_000) if not reason_of(one)]
        pd: Any = pandas
        rows = pd.DataFrame([json.loads(one.value) for one in sent]).reset_index(names="offset")
        rows["at"] = pd.to_datetime(rows["at"])
        for name, frame in rows.groupby("device"):
            if list(job.find_anomalies((name,), iter([frame]), states[name])):
                alarming.add(name)
    assert alarming
    assert alarming <= {name_of(device) for device in range(DEVICES) if fails(device)}


def test_mean_follows_a_permanent_change() -> None:
    changed = [(100 + offset, 40.0 + offset % 2) for offset in range(100)]
    found = anomalies(State(), [*STEADY, *changed])
    assert 1 <= len(found) <= 5


@pytest.fixture
def servers(broker: OttlaBroker) -> Generator[str]:
    """A broker on which nothing is left of the example afterwards."""
    yield broker.bootstrap
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        admin.delete_topics([topic.name for topic in EXAMPLE.counted_topics]).or_raise()


def piece(number: int) -> list[Message]:
    start_ms = START_MS + number * PIECE_MS
    sent = messages(SEED, start_ms, start_ms + PIECE_MS)
    return [one for one in sent if is_chosen(int(one.key[-3:]))]


def is_chosen(device: int) -> bool:
    """Whether the job gets the readings of a device: some normal ones, and all others."""
    return device < 20 or fails(device) or is_slow(device) or sends_invalid(device)


def test_job_writes_what_plain_python_computes(spark: Any, servers: str, tmp_path: Path) -> None:
    pieces = [piece(0), piece(1)]
    for sent in pieces:  # the second run continues from the checkpoints of the first
        send(servers, sent)
        starts = job.queries(spark, servers, str(tmp_path), availableNow=True)
        for query in [start() for start in starts.values()]:
            query.awaitTermination()
    expected = compute(pieces)
    assert expected.late_rows > 0, "no reading is later than the watermark allows"
    assert len(expected.averages) > 60
    assert len(expected.alerts) > 10
    check(servers, tmp_path, expected)
