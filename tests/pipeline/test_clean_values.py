"""Which sources have a pattern of clean values, and what it matches."""

from typing import Any

import pyarrow
import pyarrow.compute
import pytest

from cases import Cases
from ottla.pipeline import Expectation, Source
from ottla.pipeline.clean_values import clean_pattern

SCHEMA = "text STRING, flag BOOLEAN, number INT, `long` BIGINT, real DOUBLE, at TIMESTAMP"
EVERY = b'{"text":"a b","flag":true,"number":-1,"long":10,"real":1.5,"at":"2026-02-28T23:59:59.5Z"}'


def is_clean(source: Source, *values: bytes) -> list[bool]:
    arrow: Any = pyarrow
    compute: Any = pyarrow.compute
    pattern = clean_pattern(source, {})
    assert pattern is not None
    return compute.match_substring_regex(arrow.array([*values]), pattern).to_pylist()


def test_values_of_the_schema_are_clean() -> None:
    cases = Cases()
    source = Source(topic="t", json=SCHEMA.replace("`", ""))
    for value, expected in {
        EVERY: True,
        b'{"number": 1, "text": null}': True,  # any order
        '{"text":"né €"}'.encode(): True,
        b'{"text":"\\u0041"}': False,  # Spark parses it: it may be correct
        b'{"text":"\xff"}': False,
        b'{"text":"a"} ': False,
        b'{"text":"a"}\n': False,
        b'{"text":"a",}': False,
        b"{}": False,
        b"": False,
        b'{"other":1}': False,
        b'{"text":1}': False,
        b'{"number":1.5}': False,
        b'{"number":3000000000}': False,
        b'{"number":01}': False,
        b'{"at":"2026-02-30T00:00:00Z"}': False,
        b'{"at":"yesterday"}': False,
        b'{"real":NaN}': False,
        b'[{"text":"a"}]': False,
    }.items():
        with cases.case(value):
            assert is_clean(source, value) == [expected]
    cases.check()


def test_clean_values_have_all_required_columns() -> None:
    source = Source(topic="t", json="a INT NOT NULL, b INT")
    values = [b'{"a":1,"b":null}', b'{"a":1, "b":2}', b'{"a":null,"b":1}', b'{"b":1}', b'{"a":1}']
    assert is_clean(source, *values) == [True, True, False, False, False]


@pytest.mark.parametrize(
    "source",
    [
        Source(topic="t", text="line"),
        Source(topic="t", csv="a INT"),
        Source(topic="t", json="a ARRAY<INT>"),
        Source(topic="t", json="`a.b` INT"),
        Source(topic="t", json="a INT", parse={"allowComments": "true"}),
        Source(
            topic="t",
            json="a INT",
            expect={"low": Expectation(check="a < 1", otherwise="dead_letter")},
        ),
    ],
)
def test_other_sources_have_no_pattern(source: Source) -> None:
    assert clean_pattern(source, {}) is None


def test_settings_of_the_parser_prevent_a_pattern() -> None:
    source = Source(topic="t", json="a INT")
    assert clean_pattern(source, {"spark.sql.legacy.timeParserPolicy": "LEGACY"}) is None
    assert clean_pattern(source, {"spark.sql.shuffle.partitions": "1"}) is not None
    drops = Source(topic="t", json="a INT", expect={"low": Expectation(check="a < 1")})
    assert clean_pattern(drops, {}) is not None
