import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each_case
from ottla.settings.config_types import (
    BOOLEAN,
    DOUBLE,
    HIDDEN,
    INT,
    LIST,
    LONG,
    PASSWORD,
    SHORT,
    STRING,
    BadValue,
    ConfigType,
    Secret,
)

BOUNDS = [(SHORT, 2**15), (INT, 2**31), (LONG, 2**63)]


@each_case("text", ["true", "TRUE", " True\t", "\x01true"])
def test_true_in_any_case_and_trimmed(text: str) -> None:
    assert BOOLEAN.parse(text) is True


@each_case("text", ["", "yes", "1", "on", "truee"])
def test_other_texts_are_not_booleans(text: str) -> None:
    with pytest.raises(BadValue):
        BOOLEAN.parse(text)


@each_case(("kind", "limit"), BOUNDS)
def test_integer_out_of_range_is_rejected(kind: ConfigType[int], limit: int) -> None:
    assert kind.parse(str(limit - 1)) == limit - 1
    assert kind.parse(str(-limit)) == -limit
    for beyond in (limit, -limit - 1):
        with pytest.raises(BadValue, match="out of range"):
            kind.parse(str(beyond))
        with pytest.raises(BadValue, match="out of range"):
            kind.convert(beyond)


@each_case("text", ["+5", " 5 ", "5", "005"])
def test_integers_are_parsed_as_in_java(text: str) -> None:
    assert INT.parse(text) == 5


@each_case("text", ["", "-", "+-5", "1_000", "1.0", "0x10", "1e3", "5 5", "\u0665", "²"])
def test_invalid_integers(text: str) -> None:
    with pytest.raises(BadValue):
        INT.parse(text)


def test_very_long_number_is_rejected_quickly() -> None:
    with pytest.raises(BadValue):
        LONG.parse("9" * 1_000_000)


@each_case("text", ["nan", "inf", "Infinity", "1_0.5", "", "1e999", "0x1p3", "--1"])
def test_invalid_doubles(text: str) -> None:
    with pytest.raises(BadValue):
        DOUBLE.parse(text)


@each_case(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (0.5, "0.5"),
        (1.0, "1.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (0.00012, "1.2E-4"),
        (1e-05, "1.0E-5"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (-2.5e20, "-2.5E20"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_doubles_are_formatted_as_in_java(value: float, text: str) -> None:
    assert DOUBLE.format(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_double_round_trips_through_text(value: float) -> None:
    assert DOUBLE.parse(DOUBLE.format(value)) == value


@each_case(
    ("text", "entries"),
    [("", ()), ("  ", ()), ("a", ("a",)), (" a , b ,c", ("a", "b", "c")), ("a,b,a", ("a", "b"))],
)
def test_lists_are_split_trimmed_and_deduplicated(text: str, entries: tuple[str, ...]) -> None:
    assert LIST.parse(text) == entries


@each_case("text", ["a,,b", "a,", ",", " , a"])
def test_list_has_no_empty_entries(text: str) -> None:
    with pytest.raises(BadValue, match="empty"):
        LIST.parse(text)


def test_lists_from_python() -> None:
    assert LIST.convert(["a", " b "]) == ("a", "b")
    assert LIST.convert(("a",)) == ("a",)
    assert LIST.convert("a,b") == ("a", "b")
    for wrong in (["a,b"], [1], {"a"}, 5, [""]):
        with pytest.raises(BadValue):
            LIST.convert(wrong)


def test_list_round_trips_through_text() -> None:
    assert LIST.parse(LIST.format(("a", "b"))) == ("a", "b")


def test_python_values_of_the_other_kinds() -> None:
    assert INT.convert(5) == 5
    assert INT.convert("5") == 5
    assert DOUBLE.convert(1) == 1.0
    assert STRING.convert(1) == "1"
    assert BOOLEAN.convert(False) is False


@each_case(
    ("kind", "value"),
    [
        (INT, True),
        (INT, 5.0),
        (INT, None),
        (BOOLEAN, 1),
        (STRING, True),
        (STRING, b"x"),
        (DOUBLE, True),
        (DOUBLE, float("nan")),
        (DOUBLE, 10**400),
        (PASSWORD, b"x"),
    ],
)
def test_python_values_of_the_wrong_type(kind: ConfigType[object], value: object) -> None:
    with pytest.raises(BadValue):
        kind.convert(value)


def test_secret_is_hidden_in_str_and_repr() -> None:
    secret = PASSWORD.parse(" hunter2 ")
    shown = (
        str(secret),
        repr(secret),
        f"{secret}",
        f"{secret!r}",
        f"{secret!s:>20}",
        f"{[secret]}",
    )
    assert not any("hunter2" in each for each in shown)
    assert PASSWORD.format(secret) == HIDDEN
    assert secret.reveal() == "hunter2"
    assert "hunter2" not in repr(dir(secret))


def test_secrets_compare_by_value() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1
    assert pickle.loads(pickle.dumps(Secret("a"))) == Secret("a")


@given(st.text())
def test_any_text_parses_or_raises_bad_value(text: str) -> None:
    for kind in (BOOLEAN, INT, SHORT, LONG, DOUBLE, LIST, STRING, PASSWORD):
        try:
            kind.parse(text)
        except BadValue:
            continue
