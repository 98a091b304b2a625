"""Which JSON objects the kernel parses to columns, and to which values."""

import json
import math
import struct
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import Cases
from ottla.records import JsonField, JsonType, parse_json_objects
from ottla.records.arrow import binary_column
from sampling import examples

PA: Any = pyarrow
ARROW: dict[JsonType, Any] = {
    JsonType.STRING: PA.utf8(),
    JsonType.BOOLEAN: PA.bool_(),
    JsonType.INT: PA.int32(),
    JsonType.LONG: PA.int64(),
    JsonType.DOUBLE: PA.float64(),
    JsonType.TIMESTAMP: PA.timestamp("us", tz="UTC"),
    JsonType.DATE: PA.date32(),
}


def parsed(
    kinds: dict[str, JsonType],
    *values: bytes | None,
    required: tuple[str, ...] = (),
    skips_unknown: bool = True,
) -> list[dict[str, Any] | None]:
    """The rows of the values; None for one that is not parsed."""
    fields = [JsonField(name.encode(), kind, name in required) for name, kind in kinds.items()]
    column = binary_column(PA.array(values, PA.binary())).kernel()
    bits, count = parse_json_objects(column, len(values), fields, skips_unknown)
    flags = [bool(bits[row >> 3] >> (row & 7) & 1) for row in range(len(values))]
    assert flags.count(True) == count
    columns: list[list[Any]] = []
    for field, kind in zip(fields, kinds.values(), strict=True):
        buffers = [PA.py_buffer(one) for one in field.buffers]
        array = PA.Array.from_buffers(ARROW[kind], len(values), buffers)
        array.validate(full=True)
        columns.append(array.to_pylist())
    rows = [dict(zip(kinds, cells, strict=True)) for cells in zip(*columns, strict=True)]
    for row, is_parsed in zip(rows, flags, strict=True):
        assert is_parsed or row == dict.fromkeys(kinds), "all columns of other values are null"
    return [row if is_parsed else None for row, is_parsed in zip(rows, flags, strict=True)]


def cell(kind: JsonType, text: str) -> Any:
    """The value of a field; `...` if its object is not parsed."""
    [row] = parsed({"a": kind}, f'{{"a":{text}}}'.encode())
    return ... if row is None else row["a"]


def test_forms_of_objects() -> None:
    cases = Cases()
    kinds = {"a": JsonType.INT, "b": JsonType.STRING}
    one = {"a": 1, "b": None}
    both = {"a": 1, "b": "x"}
    for value, expected in {
        b'{"a":1,"b":"x"}': both,
        b'{"b":"x","a":1}': both,
        b'{ "a" : 1 ,\t"b"\r:\n"x" } \n': both,
        b'{"a":1}': one,
        b'{"a":1,"b":null}': one,
        b'{"c":"y","a":1,"d":-1.5,"e":null,"f":true,"g":false,"h":0}': one,
        b'{"a":1,"A":2}': one,
        b"{}": None,
        b"": None,
        b"   ": None,
        None: None,
        b' {"a":1}': None,
        b"null": None,
        b'[{"a":1}]': None,
        b'{"a":1,}': None,
        b'{"a":1': None,
        b'{"a":1,': None,
        b'{"a":': None,
        b'{"a"': None,
        b'{"a': None,
        b"{": None,
        b'{"a" 1}': None,
        b'{"a":1 "b":"x"}': None,
        b'{"a":1}}': None,
        b'{"a":1} {"a":2}': None,
        b'{"a":1,"a":2}': None,
        b'{"a":nul}': None,
        b'{"a":nullx}': None,
        b'{"a":1,"c":{"d":1}}': None,
        b'{"a":1,"c":[]}': None,
        b'{"a":1,"c":01}': None,
        b'{"a":1,"c":1.}': None,
        b'{"a":1,"c":-}': None,
        b'{"a":1,"c":1e5}': None,
        b'{"a":1,"c":tru}': None,
        b'{"a":1,"c":"\\n"}': None,
        b'{"a":1,"c":"\n"}': None,
        b'{"a":1,"c":"\xff"}': None,
        b'{"a":1,"c":"': None,
        b'{"a":1,"\\u0062":"x"}': None,
        b'{"a":1,c:1}': None,
        b"\xef\xbb\xbf{}": None,
        '{"a":1}'.encode("utf-16"): None,
    }.items():
        with cases.case(value):
            assert parsed(kinds, value) == [expected]
    cases.check()


def test_a_value_that_is_not_parsed_leaves_no_trace() -> None:
    kinds = {"a": JsonType.STRING, "b": JsonType.BOOLEAN, "c": JsonType.LONG}
    good = b'{"a":"xyz","b":true,"c":7}'
    row = {"a": "xyz", "b": True, "c": 7}
    bad = b'{"a":"lost","b":true,"c":7,"d":[]}'
    assert parsed(kinds, bad, good, None, bad, good, bad) == [None, row, None, None, row, None]


def test_unknown_and_required_fields() -> None:
    kinds = {"a": JsonType.INT, "b": JsonType.INT}
    values = [b'{"a":1}', b'{"a":1,"c":2}', b'{"b":1}', b'{"a":null,"b":1}']
    rows = [{"a": 1, "b": None}, {"a": 1, "b": None}, {"a": None, "b": 1}, {"a": None, "b": 1}]
    assert parsed(kinds, *values) == rows
    assert parsed(kinds, *values, skips_unknown=False) == [rows[0], None, *rows[2:]]
    assert parsed(kinds, *values, required=("a",)) == [*rows[:2], None, None]


def test_64_fields() -> None:
    kinds = {f"f{n}": JsonType.INT for n in range(64)}
    row = {name: number for number, name in enumerate(kinds)}
    lacking = {**row, "f63": None}
    values = [json.dumps(one).encode() for one in (row, lacking)]
    assert parsed(kinds, *values) == [row, lacking]
    assert parsed(kinds, *values, required=("f63",)) == [row, None]


def test_strings() -> None:
    cases = Cases()
    for text, expected in {
        '""': "",
        '"a b~"': "a b~",
        '"\x7f"': "\x7f",
        '"é€😀"': "é€😀",
        r'"\"\\\/\b\f\n\r\t"': '"\\/\b\f\n\r\t',
        r'"a\u00e9\u20AC\u0000z"': "aé€\0z",
        r'"\ud83d\ude00"': ...,  # two halves of a character
        r'"\ud83d"': ...,
        r'"\u12"': ...,
        r'"\u12g4"': ...,
        r'"\x"': ...,
        '"\\\x01"': ...,
        '"\\é"': ...,
        '"\\': ...,
        '"\\"': ...,
        '"\n"': ...,
        "1": ...,
        "true": ...,
        "null": None,
    }.items():
        with cases.case(text):
            assert cell(JsonType.STRING, text) == expected
    cases.check()


def test_numbers_and_booleans() -> None:
    cases = Cases()
    for kind, texts in {
        JsonType.INT: {
            "0": 0, "-0": 0, "-1": -1, "2147483647": 2**31 - 1, "-2147483648": -(2**31),
            "2147483648": ..., "-2147483649": ..., "01": ..., "1.0": ..., "1e1": ..., "-": ...,
            "+1": ..., '"1"': ..., "": ..., "true": ...,
        },
        JsonType.LONG: {
            "9" * 18: 10**18 - 1, "-" + "9" * 18: 1 - 10**18, "9" * 19: ..., "1.5": ...,
        },
        JsonType.DOUBLE: {
            "0": 0.0, "1": 1.0, "-1.5": -1.5, "0.1": 0.1, "1e3": 1000.0, "1E+3": 1000.0,
            "-1.25e-7": -1.25e-7, "5e-05": 5e-05, "123456789012345.6": 123456789012345.6,
            "21.473829104857392": 21.473829104857392, "9007199254740993": 2.0**53,
            "1e200": 1e200, "1e201": ..., "1e9999999999": ..., "-0": ..., "1.": ..., ".5": ...,
            "01.5": ..., "1e": ..., "1e+": ..., "NaN": ..., "Infinity": ..., '"1"': ...,
            "0." + "1" * 61: float("0." + "1" * 61), "0." + "1" * 62: ...,
        },
        JsonType.BOOLEAN: {"true": True, "false": False, "True": ..., "1": ..., '"true"': ...},
    }.items():  # fmt: skip
        for text, expected in texts.items():
            with cases.case(kind.name, text):
                assert cell(kind, text) == expected
    cases.check()
    zero = cell(JsonType.DOUBLE, "-0.0")
    assert zero == 0
    assert math.copysign(1, zero) == -1


def test_times_and_dates() -> None:
    noon = datetime(2024, 2, 29, 12, tzinfo=UTC)
    cases = Cases()
    for text, expected in {
        "2024-02-29T12:00:00Z": noon,
        "2024-02-29 12:00:00": noon,
        "2024-02-29T12:00:00+00:00": noon,
        "2024-02-29T13:30:00+01:30": noon,
        "2024-02-28T18:01:00-17:59": noon,
        "2024-02-29T12:00:00.5Z": noon + timedelta(milliseconds=500),
        "2024-02-29T12:00:00.000001": noon + timedelta(microseconds=1),
        "1000-01-01T00:00:00Z": datetime(1000, 1, 1, tzinfo=UTC),
        "2999-12-31T23:59:59.999999Z": datetime(2999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        **dict.fromkeys(
            (
                *("2024-02-29", "2023-02-29T00:00:00Z", "2024-02-30T00:00:00Z", "now", ""),
                *("0999-01-01T00:00:00Z", "3000-01-01T00:00:00Z", "2024-13-01T00:00:00Z"),
                *("2024-00-01T00:00:00Z", "2024-01-00T00:00:00Z", "2024-04-31T00:00:00Z"),
                *("2024-01-01T24:00:00Z", "2024-01-01T00:60:00Z", "2024-01-01T00:00:60Z"),
                *("2024-01-01T00:00:00.Z", "2024-01-01T00:00:00.1234567Z", "2024-1-1T00:00:00Z"),
                *("2024-01-01T00:00:00+18:00", "2024-01-01T00:00:00+01", "2024-01-01T00:00Z"),
                *("2024-01-01T00:00:00+0100", "2024-01-01T00:00:00z", "2024-01-01X00:00:00Z"),
                *("2024-01-01T00:00:00 Z", "2024-01-01T00:00:00+01:60", "-2024-01-01T00:00:00Z"),
            ),
            ...,
        ),
    }.items():
        with cases.case(text):
            assert cell(JsonType.TIMESTAMP, f'"{text}"') == expected
    for text, day in {
        "2024-02-29": date(2024, 2, 29),
        "1000-01-01": date(1000, 1, 1),
        "2999-12-31": date(2999, 12, 31),
        "1900-02-29": ...,
        "2024-02-29T00:00:00": ...,
    }.items():
        with cases.case(text):
            assert cell(JsonType.DATE, f'"{text}"') == day
    for text in ("1700000000", "true", '"2024-02-29'):
        with cases.case(text):
            assert cell(JsonType.TIMESTAMP, text) is ...
            assert cell(JsonType.DATE, text) is ...
    cases.check()


@settings(max_examples=examples(100, usual=1000))
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_are_exact(number: float) -> None:
    found = cell(JsonType.DOUBLE, repr(number))
    if found is ...:
        assert abs(number) > 1e200 or 0 < abs(number) < 1e-199
    else:
        assert struct.pack("d", found) == struct.pack("d", number)


@settings(max_examples=examples(100, usual=1000))
@given(st.text(), st.booleans())
def test_texts_are_those_of_python(text: str, ascii_only: bool) -> None:
    written = json.dumps(text, ensure_ascii=ascii_only)
    if not ascii_only and not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:  # half of a character
            return
    found = cell(JsonType.STRING, written)
    assert found == text or (found is ... and r"\ud" in written)


@settings(max_examples=examples(100, usual=1000))
@given(st.integers(-30_610_224_000_000_000, 32_503_679_999_999_999))
def test_times_are_those_of_python(micros: int) -> None:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    assert cell(JsonType.TIMESTAMP, f'"{at.isoformat()}"') == at
    assert cell(JsonType.DATE, f'"{at.date()}"') == at.date()


def test_every_prefix_of_a_value_is_read_within_its_bounds() -> None:
    """The bytes after the value, which the next ones are, do not count."""
    kinds = {kind.name.lower(): kind for kind in JsonType}
    whole = (
        b'{"string":"a\\u00e9","boolean":false,"int":-12,"long":3,"double":-1.5e2,'
        b'"timestamp":"2026-01-31T23:59:59.5+01:00","date":"2026-01-31","other":"x"}'
    )
    prefixes = [whole[:size] for size in range(len(whole) + 1)]
    rows = parsed(kinds, *prefixes)
    assert rows[:-1] == [None] * len(whole)
    assert rows[-1] is not None
    assert rows[-1]["date"] == date(2026, 1, 31)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 1000])
def test_any_number_of_rows(size: int) -> None:
    values = [b'{"a":%d}' % n if n % 3 else b"x" for n in range(size)]
    expected = [{"a": n} if n % 3 else None for n in range(size)]
    assert parsed({"a": JsonType.LONG}, *values) == expected
