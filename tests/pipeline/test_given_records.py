"""The records of declared tests, as Spark reads them."""

import json
from base64 import b64decode
from typing import Any

from cases import Cases
from ottla.pipeline import Source
from ottla.pipeline.given_records import record_lines, record_value, spaced_batches

JSON = Source(topic=["a", "b"], json="x INT, y STRING")
CSV = Source(topic="a", csv="x INT, y STRING, z BOOLEAN")
VALUES: list[tuple[Source, Any, Any]] = [
    (JSON, {"x": 1, "y": "ü"}, '{"x": 1, "y": "ü"}'),
    (JSON, {"x": 1, "_key": "k", "_offset": 7}, '{"x": 1}'),
    (JSON, "not JSON", "not JSON"),
    (CSV, {"y": 'a,"b"', "x": 1, "z": True}, '1,"a,""b""",true'),
    (CSV, {"x": 1}, "1,,"),
    (Source(topic="a", csv="x INT, y INT", parse={"sep": ";"}), {"x": 1, "y": 2}, "1;2"),
    (Source(topic="a", text="line"), {"line": "a"}, "a"),
    (Source(topic="a", text="line"), {}, None),
    (Source(topic="a", binary="data"), {"data": "a"}, "a"),
]


def test_row_becomes_the_value_of_its_format() -> None:
    cases = Cases()
    for source, row, value in VALUES:
        with cases.case(source, row):
            assert record_value(source, row) == value
    cases.check()


def parsed(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_offsets_count_over_the_micro_batches() -> None:
    texts = record_lines(JSON, [[{"x": 1}, "x"], [], [{"x": 2}]])
    assert [[one["offset"] for one in parsed(text)] for text in texts] == [[0, 1], [], [2]]
    [first, second] = parsed(texts[0])
    assert b64decode(second["value"]) == b"x"
    assert (first["topic"], first["partition"], first["key"], first["headers"]) == (
        "a",
        0,
        None,
        [],
    )


def test_metadata_of_a_row_is_that_of_its_record() -> None:
    given = {
        "x": 1,
        "_key": "k",
        "_topic": "b",
        "_partition": 2,
        "_offset": 0,
        "_timestamp": "2026-02-01T00:00:00Z",
        "_headers": {"trace": "1"},
    }
    [line] = parsed(record_lines(JSON, [[given]])[0])
    assert (b64decode(line["key"]), line["topic"], line["partition"]) == (b"k", "b", 2)
    assert (line["offset"], line["timestamp"]) == (0, "2026-02-01T00:00:00Z")
    assert line["headers"] == [{"key": "trace", "value": "MQ=="}]


def test_empty_micro_batch_follows_each_one_but_the_last() -> None:
    first, second = [{"x": 1}], [{"x": 2}]
    assert spaced_batches([first, second]) == [first, (), second]
    assert spaced_batches([]) == []
