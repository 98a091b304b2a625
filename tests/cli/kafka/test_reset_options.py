"""Values of --reset-offsets: times, durations and CSV files."""

import pytest

from cases import each_case
from ottla.cli.kafka.groups.reset_options import (
    BadReset,
    datetime_ms,
    duration_ms,
    read_rows,
    written_rows,
)

DAY_MS = 86_400_000
LONG = "a-name-of-more-than-24-letters"


@each_case(
    ("text", "time_ms"),
    [
        ("1970-01-02T00:00:00.000", DAY_MS),
        ("1970-01-02T00:00:00.000Z", DAY_MS),
        ("1970-01-02T01:00:00.000+01:00", DAY_MS),
        ("1970-01-02T01:00:00.000+01", DAY_MS),
        ("1970-01-01T23:30:00.000-0030", DAY_MS),
        ("1970-01-02T00:00:00.5", DAY_MS + 5),  # milliseconds, not a fraction
    ],
)
def test_datetime_is_parsed(text: str, time_ms: int) -> None:
    assert datetime_ms(text) == time_ms


@each_case(
    ("text", "why"),
    [
        ("1970-01-02", "does not contain a 'T'"),
        ("1970-01-02T", "does not contain a 'T'"),
        ("1970-01-02T00:00", "Unparseable date"),
        ("1970-01-02T00:00:00", "Unparseable date"),
        ("1970-13-02T00:00:00.000", "Unparseable date"),
        ("1970-01-02T25:00:00.000", "Unparseable date"),
        ("1970-01-02T00:00:00.000+99:00", "Unparseable date"),
        ("1970-13-02T00:00:00.000+01:00", r'Unparseable date: "1970-13-02T00:00:00.000\+01:00"$'),
        ("yesTerday", 'Unparseable date: "yesTerdayZ"$'),
    ],
)
def test_invalid_datetime_is_refused(text: str, why: str) -> None:
    with pytest.raises(BadReset, match=why):
        datetime_ms(text)


@each_case(
    ("text", "span_ms"),
    [
        ("P1D", DAY_MS),
        ("PT1H30M", 5_400_000),
        ("pt1.5s", 1500),
        ("PT0S", 0),
        ("-PT1S", -1000),
        ("PT-1.5S", -1500),
        ("P1DT-1H", 23 * 3_600_000),
        ("PT1,25S", 1250),
    ],
)
def test_duration_is_parsed(text: str, span_ms: int) -> None:
    assert duration_ms(text) == span_ms


@each_case("text", ["", "P", "PT", "P1DT", "1D", "P1Y", "PT1", "P1D ", "1h"])
def test_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(BadReset, match="Text cannot be parsed to a Duration"):
        duration_ms(text)


def test_plan_file_has_one_group_or_names_groups() -> None:
    at = {("t", 0): 5, ("t", 1): 6}
    assert read_rows("t,0,5\nt,1,6\n", ["g"]) == {"g": at}
    assert read_rows("g,t,0,5\r\ng,t,1,6\r\n\nh,t,0,1", ["g", "h"]) == {
        "g": at,
        "h": {("t", 0): 1},
    }
    assert read_rows("g,t,0,5\ng,t,1,6\n", ["g"]) == {"g": at}
    assert read_rows("", ["g"]) == {}


@each_case(
    "text",
    [
        "t,0",
        "t,0,x",
        "t,0,5\nt,0",
        "t,0,5\nt,x,5",
        "g,t,0,5,6",
        "g,t,x,5",
        "t,-1,1",
        "t,0,99999999999999999999999",
        "t,0,5\nt,99999999999,1",
        "g,t,99999999999,1",
        "g,t,0,99999999999999999999999",
        "g,99999999999,1",
    ],
)
def test_invalid_row_is_named(text: str) -> None:
    with pytest.raises(BadReset, match=text.splitlines()[-1]):
        read_rows(text, ["g"])


@pytest.mark.parametrize("text", ["t,99999999999,1", "t,x,5"])
def test_first_row_without_numbers_is_skipped_like_java(text: str) -> None:
    assert read_rows(text, ["g"]) == {}


def test_exported_plan_can_be_read() -> None:
    plan = {'a "b", c': {("t", 0): 5, (LONG, 1): 6}}
    lines = written_rows(plan, with_group=True)
    assert lines == ['"a ""b"", c",t,0,5', f'"a ""b"", c","{LONG}",1,6']
    assert read_rows("\n".join(lines), ["x", "y"]) == plan
    assert written_rows({"g": {("t", 0): 5}}, with_group=False) == ["t,0,5"]
