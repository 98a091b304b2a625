"""The transformations of the example, each with rows made for it."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sensors import transformations

START = datetime(2027, 1, 1, tzinfo=UTC)


def reading(**other: object) -> dict[str, object]:
    at = other.pop("at", "2027-01-01T00:00:00.000Z")
    return {"device": "d", "at": at, "temperature": 21.5, "vibration": 1.25, **other}


def raw(spark: Any, *values: bytes | None, key: bytes | None = b"d") -> Any:
    """Rows as the source has them."""
    rows = [(key, value, "t", 3, number, START) for number, value in enumerate(values)]
    names = "key BINARY, value BINARY, topic STRING, partition INT, offset LONG"
    return spark.createDataFrame(rows, f"{names}, timestamp TIMESTAMP")


def said(**other: object) -> bytes:
    return json.dumps(reading(**other)).encode()


def test_readings_are_what_could_be_read(spark: Any) -> None:
    frame = raw(spark, said(), b"{", said(temperature=3, other=[1]))
    rows = transformations.readings(frame).collect()
    assert [(row.device, row.temperature, row.vibration, row.offset) for row in rows] == [
        ("d", 21.5, 1.25, 0),
        ("d", 3.0, 1.25, 2),
    ]
    assert rows[0].at.astimezone(UTC) == START


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "there is no value"),
        (b"", "there is no value"),
        (b"{", "it is not a reading in JSON"),
        (b"[]", "it is not a reading in JSON"),
        (b"12", "it is not a reading in JSON"),
        (b"\xff\xfe\x00", "it is not a reading in JSON"),
        (said()[:-1], "it is not a reading in JSON"),
        (said(temperature="n/a"), "it is not a reading in JSON"),
        (said(at="yesterday"), "it is not a reading in JSON"),
        (b"{}", "device is missing"),
        (said(at=None), "at is missing"),
        (said(temperature=None), "temperature is missing"),
        (said(vibration=None), "vibration is missing"),
        (said(device="another"), "its key is not its device"),
    ],
)
def test_what_cannot_be_read_is_a_dead_letter_with_its_reason(
    spark: Any, value: bytes | None, reason: str
) -> None:
    frame = raw(spark, said(), value)
    assert transformations.readings(frame).count() == 1
    (letter,) = transformations.dead_letters(frame).collect()
    assert (letter.key, letter.value) == (b"d", value)
    assert {header.key: bytes(header.value).decode() for header in letter.headers} == {
        "reason": reason,
        "origin.topic": "t",
        "origin.partition": "3",
        "origin.offset": "1",
        "origin.timestamp": "2027-01-01 00:00:00",
    }


def test_a_reading_without_a_key_is_a_dead_letter(spark: Any) -> None:
    (letter,) = transformations.dead_letters(raw(spark, said(), key=None)).collect()
    assert bytes(letter.headers[0].value) == b"its key is not its device"


def test_averages_are_of_ten_seconds_and_of_a_device(spark: Any) -> None:
    rows = [
        ("a", START, 10.0, 1.0),
        ("a", START + timedelta(seconds=9.999), 20.0, 2.0),
        ("a", START + timedelta(seconds=10), 40.0, 3.0),
        ("b", START + timedelta(seconds=5), 1.0, 1.0),
    ]
    frame = spark.createDataFrame(
        rows, "device STRING, at TIMESTAMP, temperature DOUBLE, vibration DOUBLE"
    )
    found = transformations.averages(frame).orderBy("device", "start").collect()
    assert [
        (row.device, (row.start.astimezone(UTC) - START).seconds, row.temperature, row.vibration)
        for row in found
    ] == [("a", 0, 15.0, 1.5), ("a", 10, 40.0, 3.0), ("b", 0, 1.0, 1.0)]
    assert [row.readings for row in found] == [2, 1, 1]
    assert found[0].end - found[0].start == timedelta(seconds=10)


class State:
    """What Spark keeps of a device."""

    def __init__(self) -> None:
        self.get: Any = None

    @property
    def exists(self) -> bool:
        return self.get is not None

    def update(self, value: tuple[Any, ...]) -> None:
        self.get = value


def anomalies(state: State, *pieces: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """The second and the value of each anomaly of a device, out of offsets and temperatures."""
    import pandas

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
    found: list[Any] = list(transformations.anomalies(("d",), iter(frames), state))
    return [
        ((row.at - START).seconds, row.value)
        for frame in found
        for row in frame.itertuples()
        if row.signal == "temperature"
    ]


STEADY = [(offset, 20.0 + offset % 2) for offset in range(100)]


def test_what_is_usual_is_no_anomaly() -> None:
    assert anomalies(State(), STEADY) == []


def test_what_is_far_from_usual_is_an_anomaly() -> None:
    assert anomalies(State(), [*STEADY, (100, 40.0), (101, 20.0)]) == [(100, 40.0)]


def test_a_device_that_is_new_has_no_anomalies() -> None:
    first = STEADY[: transformations.WARM_UP - 1]
    assert anomalies(State(), [*first, (50, 40.0)]) == []
    assert anomalies(State(), [*first, (50, 20.0), (51, 40.0)]) == [(51, 40.0)]


def test_micro_batches_and_the_order_of_their_rows_make_no_difference() -> None:
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


def test_a_device_that_has_changed_for_good_is_usual_after_a_while() -> None:
    changed = [(100 + offset, 40.0 + offset % 2) for offset in range(100)]
    found = anomalies(State(), [*STEADY, *changed])
    assert 1 <= len(found) <= 5
