import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each_case
from ottla.settings.config_types import BadValue
from ottla.settings.validators import (
    NON_EMPTY,
    NON_EMPTY_LIST,
    OFFSET_RESET,
    THROTTLED_REPLICAS,
    Validator,
    at_least,
    between,
    duration_ms,
    matching,
    one_of,
    range_or,
    some_of,
)


@each_case(
    ("valid", "printed"),
    [
        (at_least(0), "[0,...]"),
        (between(0, 1), "[0,...,1]"),
        (between(0.5, 1.0), "[0.5,...,1.0]"),
        (range_or(between(1, 9), -1), "[1,...,9] or -1"),
        (one_of("uncompressed", "zstd"), "[uncompressed, zstd]"),
        (one_of("A", "B", any_case=True), "(case insensitive) [A, B]"),
        (one_of("https", ""), "[https, (empty)]"),
        (some_of("compact", "delete"), "[compact, delete]"),
        (NON_EMPTY, "non-empty string"),
        (THROTTLED_REPLICAS, "[partitionId]:[brokerId],[partitionId]:[brokerId],..."),
        (OFFSET_RESET, "[latest, earliest, none, by_duration:PnDTnHnMn.nS]"),
    ],
)
def test_valid_values_print_as_in_kafka(valid: Validator[Any], printed: str) -> None:
    assert str(valid) == printed


@each_case(
    ("valid", "kind", "expected"),
    [
        (at_least(-1), "long", "an integer of at least -1"),
        (between(0, 1), "int", "an integer from 0 to 1"),
        (between(0.5, 1.0), "double", "a number from 0.5 to 1.0"),
        (range_or(between(1, 9), -1), "int", "an integer from 1 to 9, or -1"),
        (one_of("uncompressed", "zstd"), "string", "string, [uncompressed, zstd]"),
        (NON_EMPTY, "string", "a non-empty string"),
        (NON_EMPTY_LIST, "list", "a non-empty list"),
    ],
)
def test_expected_values_are_described_in_errors(
    valid: Validator[Any], kind: str, expected: str
) -> None:
    assert valid.expected(kind) == expected


@each_case(
    ("valid", "given", "admitted"),
    [
        (at_least(1), 1, 1),
        (between(0, 1), 0, 0),
        (between(0, 1), 1, 1),
        (range_or(between(1, 9), -1), -1, -1),
        (one_of("PLAINTEXT", any_case=True), "plaintext", "PLAINTEXT"),
        (one_of("all", aliases={"-1": "all"}), "-1", "all"),
        (some_of("a", "b", aliases={"long.name.A": "a"}), ("long.name.A", "a", "b"), ("a", "b")),
        (some_of("a"), (), ()),
        (matching("[0-9]+", "digits"), "12", "12"),
        (THROTTLED_REPLICAS, ("*",), ("*",)),
        (THROTTLED_REPLICAS, (), ()),
        (THROTTLED_REPLICAS, ("0:1", "10:22"), ("0:1", "10:22")),
        (OFFSET_RESET, "EARLIEST", "earliest"),
        (OFFSET_RESET, "by_duration:PT1H", "by_duration:PT1H"),
        (OFFSET_RESET, "BY_DURATION:p1d", "by_duration:p1d"),
    ],
)
def test_valid_values(valid: Validator[Any], given: object, admitted: object) -> None:
    assert valid.validate(given) == admitted
    assert valid.validate(admitted) == admitted


@each_case(
    ("valid", "value"),
    [
        (at_least(1), 0),
        (between(0, 1), 1.01),
        (between(0, 1), -0.01),
        (range_or(between(1, 9), -1), 0),
        (range_or(between(1, 9), -1), -2),
        (one_of("CreateTime"), "createtime"),
        (one_of("a"), ""),
        (some_of("a"), ("a", "b")),
        (some_of("a", empty_allowed=False), ()),
        (NON_EMPTY, ""),
        (NON_EMPTY_LIST, ()),
        (matching("[0-9]+", "digits"), "12\n"),
        (THROTTLED_REPLICAS, ("*", "0:1")),
        (THROTTLED_REPLICAS, ("0",)),
        (THROTTLED_REPLICAS, ("0:1:2",)),
        (THROTTLED_REPLICAS, ("-1:1",)),
        (OFFSET_RESET, "smallest"),
        (OFFSET_RESET, "by_duration:"),
        (OFFSET_RESET, "by_duration:-PT1H"),
        (OFFSET_RESET, "by_duration:1h"),
    ],
)
def test_invalid_values(valid: Validator[Any], value: object) -> None:
    with pytest.raises(BadValue):
        valid.validate(value)


@each_case(
    ("text", "ms"),
    [
        ("PT1H", 3_600_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("PT0.0019S", 1),
        ("PT1,5S", 1500),
        ("pt90m", 5_400_000),
        ("P2D", 172_800_000),
        ("PT0S", 0),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@each_case("text", ["", "P", "PT", "P1DT", "1H", "PT1", "PT1H ", "P1Y", "PT\u0663H", "-PT1H"])
def test_invalid_durations(text: str) -> None:
    with pytest.raises(BadValue):
        duration_ms(text)


def test_duration_must_fit_a_long() -> None:
    with pytest.raises(BadValue):
        duration_ms("P999999999999D")


@given(st.text(alphabet="PTDHMS0123456789.,-", max_size=30))
def test_any_duration_text_parses_or_raises_bad_value(text: str) -> None:
    with contextlib.suppress(BadValue):
        assert duration_ms(text) >= 0


def test_duration_with_too_many_digits_is_rejected() -> None:
    with pytest.raises(BadValue):
        duration_ms(f"P{'9' * 5000}D")
