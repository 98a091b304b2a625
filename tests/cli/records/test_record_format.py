"""Formats of records, and records as objects."""

import json
from itertools import chain

import pytest

from cases import each_case
from cli.records.harness import Row, taken_of
from ottla.cli.output import Output
from ottla.cli.records.cells import Cells
from ottla.cli.records.form_names import Seen
from ottla.cli.records.format import BadFormat, Looks, parse, rendered
from ottla.cli.records.forms import SchemaFile, to_bytes, to_json
from ottla.cli.records.objects import Objects, written
from ottla.cli.records.output import harmless

ROWS: list[Row] = [
    (1000, b"k", b"one", [("a", b"1"), ("b", None)]),
    (1001, None, b"", []),
    (2002, b"", None, [("c", b"x")]),
]


def text(format_: str, rows: list[Row] = ROWS, looks: Looks | None = None) -> bytes:
    taken = taken_of(rows)
    cells = [*taken.stretches(taken.rows)]
    return b"".join(rendered(parse(format_), looks or Looks(), one) for one in cells)


@each_case(
    ("format_", "expected"),
    [
        ("%v\\n", b"one\n\nnull\n"),
        ("%s", b"onenull"),
        ("%t/%p/%o ", b"t/3/0 t/3/1 t/3/2 "),
        ("%k=%v;", b"k=one;null=;=null;"),
        ("%K %V|", b"1 3|-1 0|0 -1|"),
        ("%S,", b"3,0,-1,"),
        ("%h\\n", b"a=1,b=null\n\nc=x\n"),
        ("%T\\x2c", b"1000,1001,2002,"),
        ("%d ", b"1970-01-01T00:00:01.000Z 1970-01-01T00:00:01.001Z 1970-01-01T00:00:02.002Z "),
        ("%e%%", b"7%7%7%"),
        ("same\\t", b"same\tsame\tsame\t"),
        ("%t%p", b"t3t3t3"),
        ("\u00e9%o", "\u00e90\u00e91\u00e92".encode()),
        ("", b""),
    ],
)
def test_format_is_filled_in(format_: str, expected: bytes) -> None:
    assert text(format_) == expected


@each_case("bad", ["%y", "%", "\\q", "\\", "\\xg0", "a%"])
def test_unknown_field_is_refused(bad: str) -> None:
    with pytest.raises(BadFormat, match="is not valid in a format"):
        parse(bad)


def test_null_text_is_configurable() -> None:
    assert text("%k ", looks=Looks(null=b"-")) == b"k -  "


def test_stretches_contain_every_row_once() -> None:
    rows: list[Row] = [(n, b"%d" % n, b"v" * 100_000, [("h", b"%d" % n)]) for n in range(101)]
    taken = taken_of(rows)
    cells = [*taken.stretches(99)]
    assert len(cells) > 1
    assert [offset for one in cells for offset in one.offsets()] == [*range(99)]
    assert [*chain.from_iterable(one.keys() for one in cells)] == [b"%d" % n for n in range(99)]
    assert [headers for one in cells for headers in one.headers()] == [
        [(b"h", b"%d" % n)] for n in range(99)
    ]
    assert all(value == b"v" * 100_000 for one in cells for value in one.values())
    assert taken.before(5) == 5
    assert taken.offset_of(98) == 98
    assert taken.size == sum(len(key or b"") + len(value or b"") for _, key, value, _ in rows)


def test_large_row_is_a_stretch_of_its_own() -> None:
    taken = taken_of([(0, None, b"v" * 5_000_000, ()), (0, b"k" * 5_000_000, b"", ())])
    assert [one.count for one in taken.stretches(2)] == [1, 1]


INTS = [(b"\x7f", 127), (b"\xff\xfe", -2), (b"\0\0\0\x01", 1), (b"\0" * 7 + b"\x09", 9)]
SCHEMA = '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "bytes"}]}'  # noqa: E501


@each_case(
    ("form", "data", "told", "printed"),
    [
        *((Seen.INT, data, number, str(number).encode()) for data, number in INTS),
        (Seen.INT, b"abc", "abc", b"abc"),
        (Seen.INT, b"\xff\xff\xff", {"base64": "////"}, b"////"),
        (Seen.FLOAT, b"\x3f\xc0\0\0", 1.5, b"1.5"),
        (Seen.FLOAT, b"\x7f\xf0" + b"\0" * 6, "inf", b"inf"),
        (Seen.HEX, b"\x00\xff", "00ff", b"00ff"),
        (Seen.BASE64, b"\x00\xff", "AP8=", b"AP8="),
        (Seen.JSON, b'{ "a": [1, 2] }', {"a": [1, 2]}, b'{"a":[1,2]}'),
        (Seen.JSON, b"{", "{", b"{"),
        (Seen.TEXT, "\u00e9".encode(), "\u00e9", None),
        (Seen.TEXT, b"\xff", {"base64": "/w=="}, None),
        (
            Seen.AVRO,
            b"\x04\x02x",
            {"a": 2, "b": {"base64": "eA=="}},
            b'{"a":2,"b":{"base64":"eA=="}}',
        ),
        (Seen.AVRO, b"", "", b'""'),
    ],
)  # fmt: skip
def test_bytes_are_decoded_in_the_requested_format(
    form: Seen, data: bytes, told: object, printed: bytes | None
) -> None:
    schema = SchemaFile("r.avsc", SCHEMA) if form is Seen.AVRO else None
    assert to_json(form, schema)(data) == told
    make = to_bytes(form, schema)
    assert (None if make is None else make(data)) == printed


def test_avro_requires_a_schema() -> None:
    with pytest.raises(ValueError, match="--value-schema"):
        to_bytes(Seen.AVRO)
    with pytest.raises(ValueError, match="--value-schema"):
        Objects(value=Seen.AVRO)


def test_objects_have_stable_keys() -> None:
    taken = taken_of([*ROWS, (5, b"\xff", b"{}", [("h", b"\xff")])])
    lines = written(Objects(value=Seen.JSON).made(Cells(taken, 0, 4)), Output.JSON).splitlines()
    found = [json.loads(line) for line in lines]
    keys = ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    assert all([*one] == keys for one in found)
    assert found[0] == {
        "topic": "t", "partition": 3, "offset": 0, "timestamp": 1000, "key": "k", "value": "one",
        "headers": [{"key": "a", "value": "1"}, {"key": "b", "value": None}],
    }  # fmt: skip
    assert (found[2]["key"], found[2]["value"]) == ("", None)
    assert found[3]["key"] == {"base64": "/w=="}
    assert found[3]["value"] == {}
    assert found[3]["headers"] == [{"key": "h", "value": {"base64": "/w=="}}]


def test_yaml_has_one_document_per_record() -> None:
    import yaml

    taken = taken_of(ROWS)
    told = written(Objects().made(Cells(taken, 0, 3)), Output.YAML)
    assert [one["offset"] for one in yaml.safe_load_all(told)] == [0, 1, 2]


def test_deeply_nested_value_is_written_as_json_in_yaml() -> None:
    deep = b"[" * 500 + b"]" * 500
    taken = taken_of([(1, None, deep, []), (2, None, b"{}", [])])
    told = written(Objects(value=Seen.JSON).made(Cells(taken, 0, 2)), Output.YAML)
    first, second = told.removeprefix(b"---\n").split(b"---\n")
    assert b'"value":' + deep in first
    assert b"value: {}\n" in second


def test_control_characters_are_escaped() -> None:
    assert harmless(b"a\tb\n\x1b[31m\r\x9b") == b"a\tb\n\\x1b[31m\\r\\x9b"
    assert harmless("\u202e\u00e9\\".encode()) == "\\u202e\u00e9\\".encode()
