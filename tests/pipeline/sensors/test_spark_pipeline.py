"""The pipeline of the example: its own tests, its step in Python, and all of it on a broker."""

import json
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pandas
import pytest

from judges.ottla_broker import OttlaBroker
from ottla.pipeline import load
from ottla.pipeline.compiler import compile_pipeline
from ottla.pipeline.declared_tests import check_tests
from ottla.pipeline.spec.checks import AVAILABLE_NOW
from ottla.sync import Admin
from pipeline.sensors.judging import EXAMPLE, check, is_chosen, send
from pipeline.sensors.plain import compute, reason_of
from sensors import anomalies
from sensors.description import PIPELINE
from sensors.devices import (
    DEVICES,
    Message,
    fails,
    messages,
    name_of,
)

START = datetime(2027, 1, 1, tzinfo=UTC)
SEED = 7
START_MS = 1_800_000_000_000
PIECE_MS = 15_000


def test_declared_tests_pass(spark: Any) -> None:
    check_tests(PIPELINE, spark=spark)


class State:
    """The state of a device, as Spark passes it."""

    def __init__(self) -> None:
        self.get: Any = None

    @property
    def exists(self) -> bool:
        return self.get is not None

    def update(self, value: tuple[Any, ...]) -> None:
        self.get = value


def found_in(state: State, *pieces: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """The second and value of each anomaly in temperatures, which come with their offsets."""
    pd: Any = pandas
    frames = [
        pd.DataFrame(
            {
                "_offset": [offset for offset, _ in piece],
                "at": [START + timedelta(seconds=offset) for offset, _ in piece],
                "temperature": [value for _, value in piece],
                "vibration": [1.0 for _ in piece],
            }
        )
        for piece in pieces
    ]
    found: list[Any] = list(anomalies.find_anomalies(("d",), iter(frames), state))
    return [
        ((row.at - START).seconds, row.value)
        for frame in found
        for row in frame.itertuples()
        if row.signal == "temperature"
    ]


STEADY = [(offset, 20.0 + offset % 2) for offset in range(100)]


def test_values_near_the_mean_are_not_anomalies() -> None:
    assert found_in(State(), STEADY) == []


def test_value_far_from_the_mean_is_an_anomaly() -> None:
    assert found_in(State(), [*STEADY, (100, 40.0), (101, 20.0)]) == [(100, 40.0)]


def test_new_device_has_no_anomalies() -> None:
    first = STEADY[: anomalies.WARM_UP - 1]
    assert found_in(State(), [*first, (50, 40.0)]) == []
    assert found_in(State(), [*first, (50, 20.0), (51, 40.0)]) == [(51, 40.0)]


def test_micro_batches_and_row_order_make_no_difference() -> None:
    rows = [*STEADY, (100, 27.0), (101, 26.5), (102, 20.0)]
    whole = State()
    expected = found_in(whole, rows)
    assert expected
    pieces = State()
    found = found_in(pieces, rows[:30])
    found += found_in(pieces, rows[99:29:-1], rows[100:101])
    found += found_in(pieces, rows[101:])
    assert found == expected
    assert pieces.get == whole.get


def test_mean_is_forgotten_after_a_pause_of_readings() -> None:
    state = State()
    assert found_in(state, STEADY) == []
    after = [(99 + 25 * 60 + offset, 40.0 + offset % 2) for offset in range(40)]
    assert found_in(state, after) == []
    end = after[-1][0]
    assert found_in(state, [(end + 30, 60.0)]) == [(end + 30, 60.0)]
    assert found_in(state, [(end + 61, 60.0)]) == []


def test_late_readings_do_not_expire_the_mean() -> None:
    state = State()
    assert found_in(state, STEADY[50:]) == []
    assert found_in(state, STEADY[:10]) == []
    assert found_in(state, [(100, 40.0)]) == [(100, 40.0)]


def test_run_after_a_pause_raises_no_false_alerts() -> None:
    states = {name_of(device): State() for device in range(DEVICES)}
    alarming: set[str] = set()
    for start_ms in (START_MS, START_MS + 25 * 60_000):
        sent = [one for one in messages(SEED, start_ms, start_ms + 12_000) if not reason_of(one)]
        pd: Any = pandas
        rows = pd.DataFrame([json.loads(one.value) for one in sent]).reset_index(names="_offset")
        rows["at"] = pd.to_datetime(rows["at"])
        for name, frame in rows.groupby("device"):
            if list(anomalies.find_anomalies((name,), iter([frame]), states[name])):
                alarming.add(name)
    assert alarming
    assert alarming <= {name_of(device) for device in range(DEVICES) if fails(device)}


def test_mean_follows_a_permanent_change() -> None:
    changed = [(100 + offset, 40.0 + offset % 2) for offset in range(100)]
    found = found_in(State(), [*STEADY, *changed])
    assert 1 <= len(found) <= 5


@pytest.fixture
def servers(broker: OttlaBroker) -> Generator[str]:
    """A broker without the topics of the example, before the test and afterwards."""
    topics = {topic.name for topic in EXAMPLE.counted_topics}
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        left = topics.intersection(admin.list_topics())  # by the guide
        admin.delete_topics([*left]).or_raise()
        yield broker.bootstrap
        admin.delete_topics([*topics]).or_raise()


def piece(number: int) -> list[Message]:
    start_ms = START_MS + number * PIECE_MS
    sent = messages(SEED, start_ms, start_ms + PIECE_MS)
    return [one for one in sent if is_chosen(one)]


def test_pipeline_writes_what_python_computes(spark: Any, servers: str, tmp_path: Path) -> None:
    pieces = [piece(0), piece(1)]
    for sent in pieces:  # the second run continues from the checkpoints of the first
        send(servers, sent)
        loaded = load(PIPELINE, environment={"BROKERS": servers, "DIRECTORY": str(tmp_path)})
        pipeline = msgspec.structs.replace(loaded.pipeline, trigger=AVAILABLE_NOW)
        compiled = compile_pipeline(spark, loaded._replace(pipeline=pipeline))
        for query in [one.start() for one in compiled.queries]:
            query.awaitTermination()
    expected = compute(pieces)
    assert expected.late_rows > 0, "no reading is later than the watermark allows"
    assert len(expected.averages) > 60
    assert len(expected.alerts) > 10
    check(servers, tmp_path, expected)
