"""Which sources have values that tasks can parse, and the columns that the tasks make of them."""

from typing import Any

import pyarrow
import pytest

from cases import each_case
from ottla.pipeline import Source
from ottla.pipeline.json_values import is_parsed_in_tasks, json_schema, parsed_values
from ottla.pipeline.options import BadOption
from ottla.records import COMPILED

SCHEMA = "text STRING, flag BOOLEAN, number INT, long LONG NOT NULL, real DOUBLE, at TIMESTAMP"
UTC_SESSION = {"spark.sql.session.timeZone": "UTC"}

pytestmark = pytest.mark.skipif(not COMPILED, reason="plain Python is slower than Spark")


@each_case(
    ("source", "is_parsed"),
    [
        (Source(topic="t", json=SCHEMA), True),
        (Source(topic="t", json="day DATE", unknown_fields="keep"), True),
        (Source(topic="t", text="line"), False),
        (Source(topic="t", csv="a INT"), False),
        (Source(topic="t", json="a ARRAY<INT>"), False),
        (Source(topic="t", json="a DECIMAL(9, 2)"), False),
        (Source(topic="t", json="a FLOAT"), False),
        (Source(topic="t", json="a STRING COLLATE UNICODE_CI"), False),
        (Source(topic="t", json="`a.b` INT"), False),
        (Source(topic="t", json="`a\n` INT"), False),
        (Source(topic="t", json=", ".join(f"c{n} INT" for n in range(64))), True),
        (Source(topic="t", json=", ".join(f"c{n} INT" for n in range(65))), False),
        (Source(topic="t", json="a INT", parse={"allowComments": "true"}), False),
    ],
)
def test_sources_that_tasks_parse(source: Source, is_parsed: bool) -> None:
    assert is_parsed_in_tasks(source, UTC_SESSION) is is_parsed


@each_case(
    ("settings", "is_parsed"),
    [
        ({"spark.sql.session.timeZone": "Etc/UTC"}, True),
        ({**UTC_SESSION, "spark.sql.shuffle.partitions": "1"}, True),
        ({"spark.sql.session.timeZone": "Europe/Berlin"}, False),
        ({}, False),
        ({**UTC_SESSION, "spark.sql.legacy.timeParserPolicy": "LEGACY"}, False),
        ({**UTC_SESSION, "spark.sql.json.enablePartialResults": "false"}, False),
    ],
)
def test_settings_that_change_the_parser(settings: dict[str, str], is_parsed: bool) -> None:
    assert is_parsed_in_tasks(Source(topic="t", json="a INT"), settings) is is_parsed


def test_schema_that_tasks_cannot_parse_is_refused() -> None:
    for ddl, why in (
        ("a ARRAY<INT>", "jsonColumns: a ARRAY: the type must be one of STRING, BOOLEAN"),
        ("a", "jsonColumns: expected a type"),
        ("`a b` INT", "jsonColumns: column 'a b': a name must have only letters"),
    ):
        with pytest.raises(BadOption, match=why):
            json_schema(ddl, skips_unknown=True)


def test_every_value_is_parsed_or_unparsed() -> None:
    arrow: Any = pyarrow
    values = [b'{"long":1,"at":"2026-01-31T00:00:00Z"}', None, b"x", b'{"text":"a"}', b'{"long":2}']
    schema = json_schema(SCHEMA, skips_unknown=True)
    for part in (slice(0, 5), slice(1, 5), slice(1, 4), slice(0, 1), slice(0, 0)):
        array = arrow.array([b"", *values])[1:][part]
        found = parsed_values(schema, array)
        rows = [None if row is None else row["long"] for row in found.rows.to_pylist()]
        assert rows == [1, None, None, None, 2][part]
        assert found.unparsed.to_pylist() == [None, None, b"x", b'{"text":"a"}', None][part]
        assert found.is_unparsed.to_pylist() == [row is None for row in rows]
        assert found.parsed_count == len(rows) - rows.count(None)
