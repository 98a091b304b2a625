"""Values as typed columns: conversion of JSON and Avro, and schemas that are refused."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow
import pytest

from cases import each_case
from ottla.client.columns.typed_values import form_of, typed
from ottla.client.serializers import DeserializationFailed
from ottla.client.serializers.documents import avro
from ottla.ids import PartitionIndex, TopicPartition
from ottla.records import BatchBuilder, decode

pa: Any = pyarrow

PLACE = TopicPartition("t", PartitionIndex(3))
SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.utf8()), ("c", pa.list_(pa.float64()))])


def columns_of(*values: bytes | None) -> Any:
    """Return columns as a consumer returns them, from offset 100."""
    builder = BatchBuilder()
    for number, value in enumerate(values):
        assert builder.append(5 + number, b"k%d" % number, value)
    return decode(builder.build(base_offset=100))


def rows_of(schema: Any, *values: bytes | None) -> list[dict[str, Any]]:
    batch, failure = typed(form_of(schema), None, PLACE, columns_of(*values))
    assert failure is None
    batch.validate(full=True)
    return batch.to_pylist()


def test_json_objects_become_columns() -> None:
    rows = rows_of(
        SCHEMA,
        b'{"a": 1, "b": "x\\ny", "c": [1, null]}',
        None,
        b'\n{\n  "b": "\xc3\xa9",\n  "unknown": {"a": [2]}\n}\n',
        b"null",
        b"{}",
    )
    assert [[*row.values()][5:] for row in rows] == [
        [1, "x\ny", [1.0, None]],
        [None, None, None],
        [None, "é", None],
        [None, None, None],
        [None, None, None],
    ]
    assert [(row["topic"], row["partition"], row["offset"], row["key"]) for row in rows] == [
        ("t", 3, 100 + number, b"k%d" % number) for number in range(5)
    ]
    assert rows[1]["timestamp"] == datetime.fromtimestamp(0.006, UTC)


def test_unusual_but_valid_json_is_read() -> None:
    deep = 10_000
    rows = rows_of(
        SCHEMA,
        b'\r\n\t {"a": 1}\n\n',
        b" null ",
        b'{"b": "x\\u0000y", "a": 2}',
        b'{"u": 1, "u": 2, "a": 3}',  # a duplicate name that is not in the schema
        b'{"u": ' + b"[" * deep + b"]" * deep + b', "a": 4}',
        b'{"u": ' + b'{"u": ' * deep + b"1" + b"}" * deep + b', "a": 5}',
        b'{"u": "}{", "b": "{\\"]}", "a": 6}',
        b'{"c": [NaN], "a": 7}',
        b"{}",
    )
    assert [row["a"] for row in rows] == [1, None, 2, 3, 4, 5, 6, 7, None]
    assert [row["b"] for row in rows][2] == "x\0y"
    assert [row["b"] for row in rows][6] == '{"]}'


def test_two_invalid_values_do_not_cancel_each_other() -> None:
    """There are as many objects as values, but not one per value."""
    for bad in (
        [b'{"a": 1}{"a": 2}', b""],
        [b'{"a": 1', b'}{"a": 2}'],
        [b'{"a":', b"1}", b'{"a": 2}{"a": 3}'],
        [b'{"u": [{}', b'{"a": 1}]}{}'],
    ):
        told: list[int] = []
        batch, failure = typed(
            form_of(SCHEMA),
            lambda failed, told=told: told.append(failed.offset),
            PLACE,
            columns_of(b'{"a": 0}', *bad, b'{"a": 9}'),
        )
        assert failure is None
        assert told == [101 + number for number in range(len(bad))]
        assert batch.column("a").to_pylist() == [0, 9]


def test_field_named_like_a_record_column_is_prefixed() -> None:
    schema = pa.schema([("key", pa.utf8()), ("timestamp", pa.timestamp("s")), ("value", pa.int8())])
    [row] = rows_of(schema, b'{"key": "inner", "timestamp": "2020-01-02 03:04:05", "value": 7}')
    assert row["key"] == b"k0"
    assert row["value.key"] == "inner"
    assert row["value.timestamp"].isoformat() == "2020-01-02T03:04:05"
    assert row["value"] == 7


@each_case(
    "bad",
    [
        b"",
        b" ",
        b"5",
        b"[]",
        b'{"a": 1',
        b'{"a": "x"}',
        b'{"a": 1.5}',
        b'{"a": 99999999999999999999}',
        b'{"b": "\xff"}',
        b'{"a": 1}{"a": 2}',
        b'{"a": 1}, {"a": 2}',
        b'{"a": 1}]}\n{"v":[{"a": 2}',
        b'{"a": 1}\n{"a": 2}',
        b'{"a": 1} {"a": 2}',
        b'{"a": 1}\n\n{}',
        # Fragments that would be valid inside another value.
        b'{"a": 1}],"x":[{}',
        b'{"a": 1}],"p":5,"x\\"y" : [{}',
        b'{"a": 1}],"v":[{}',
        b'{"a": 1}},"x":{"y":{}',
        b'{"a": 1},"x":{}',
        b'null],"x":[null',
        b'{"a": 1}null{}',
        b'{"a": 1}]{}',
        b'{"a": [{}',
        b'"a": 1}',
        # Whitespace only, a BOM, NUL, and forms that other parsers accept.
        b" \t\r\n",
        b'\xef\xbb\xbf{"a": 1}',
        b"\0",
        b'{"a": 1}\0',
        b'\0{"a": 1}',
        b'{"a": 1\0}',
        b'{"a": 1}\0{}',
        b'{"b": "x\0y"}',
        b'{"b": "x\ny"}',
        b'{"a": 1,}',
        b'{"a": 1} // one',
        b"{'a': 1}",
        b'{"b": "\\ud800"}',
        b'{"c": [1e999]}',
        # A duplicate name that is in the schema: which value counts is ambiguous.
        b'{"a": 1, "a": 1}',
        b'{"c": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    ],
    ids=lambda bad: repr(bad[:30]),
)
def test_invalid_value_is_reported_after_the_rows_before_it(bad: bytes) -> None:
    good = [b'{"a": %d}' % number for number in range(20)]
    form = form_of(SCHEMA)
    batch, failure = typed(form, None, PLACE, columns_of(*good[:7], bad, *good[7:], bad))
    assert batch.column("a").to_pylist() == [*range(7)]
    assert failure is not None
    assert (failure.topic, failure.partition, failure.offset) == ("t", 3, 107)
    assert failure.data == bad
    assert "topic 't', partition 3, offset 107" in str(failure)
    told: list[int] = []
    values = columns_of(bad, *good[:7], bad, bad, *good[7:], bad)

    def skip(failed: DeserializationFailed) -> None:
        told.append(failed.offset)

    batch, failure = typed(form, skip, PLACE, values)
    assert failure is None
    assert batch.column("a").to_pylist() == [*range(20)]
    assert told == [100, 108, 109, 123]
    assert batch.column("offset").to_pylist() == [*range(101, 108), *range(110, 123)]
    nothing, failure = typed(form, None, PLACE, columns_of(bad, good[0]))
    assert nothing is None
    assert failure is not None
    assert failure.offset == 100


def test_unsupported_schemas_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"cannot be used for JSON.*duration"):
        form_of(pa.schema([("a", pa.duration("s"))]))
    with pytest.raises(ValueError, match=r"a duplicate name: value\.key, value\.key"):
        form_of(pa.schema([("key", pa.int8()), ("value.key", pa.int8())]))
    with pytest.raises(TypeError, match=r"pyarrow\.Schema for JSON.*not int"):
        form_of(5)
    with pytest.raises(ValueError, match=r"fields that are not nullable \(a\)"):
        form_of(pa.schema([pa.field("a", pa.int8(), nullable=False)]))
    with pytest.raises(ValueError, match="2 types besides null"):
        form_of(
            {"type": "record", "name": "r", "fields": [{"name": "f", "type": ["int", "string"]}]}
        )
    with pytest.raises(ValueError, match="r contains itself"):
        form_of({"type": "record", "name": "r", "fields": [{"name": "f", "type": ["null", "r"]}]})


@each_case(
    "schema",
    [
        *("hello", "", "5", "[1]", '"nonsense"', {"a": "int"}, {"type": "record"}),
        *({"type": "array"}, {"type": "nonsense"}, {"type": "enum", "name": "e"}),
        {"type": "record", "name": "r", "fields": 5},
    ],
    ids=str,
)
def test_invalid_schema_error_names_the_valid_forms(schema: Any) -> None:
    with pytest.raises(ValueError, match=r"an Avro schema as JSON text or dict"):
        form_of(schema)


@pytest.mark.parametrize("schema", ['"long"', {"type": "long"}])
def test_schema_without_fields_may_be_text(schema: Any) -> None:
    assert form_of(schema).read(pa.array([b"\x02", None]))[0].type == pa.int64()


def test_text_date_error_explains_the_supported_forms() -> None:
    days = form_of(pa.schema([("d", pa.date32())]))
    assert days.read(pa.array([b'{"d": 1}']))[0].to_pylist() == [date(1970, 1, 2)]
    text = pa.array([b'{"d": "2024-01-01"}'])
    with pytest.raises(ValueError, match=r"number of days since 1970.*timestamp\('s'\)"):
        days.read(text)
    [found] = form_of(pa.schema([("d", pa.timestamp("s"))])).read(text)
    assert found.to_pylist() == [datetime(2024, 1, 1)]  # noqa: DTZ001 - it has no zone


def test_invalid_avro_bytes_are_reported() -> None:
    form = form_of({"type": "record", "name": "r", "fields": [{"name": "f", "type": "string"}]})
    with pytest.raises(ValueError, match="the bytes do not match the Avro schema: "):
        form.read(pa.array([b"\xff"]))


AVRO = {
    "type": "record",
    "name": "space.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "key", "type": ["null", "string"], "default": None},
        {"name": "flag", "type": "boolean"},
        {"name": "ratio", "type": "float"},
        {"name": "raw", "type": "bytes"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["ON", "OFF"]}},
        {"name": "before", "type": ["null", "State"]},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "who", "type": {"type": "string", "logicalType": "uuid"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {
            "name": "place",
            "type": {
                "type": "record",
                "name": "Place",
                "fields": [{"name": "x", "type": "double"}, {"name": "hash", "type": "space.Hash"}],
            },
        },
        {"name": "none", "type": "null"},
    ],
}


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "key": None if number % 2 else "inner",
        "flag": True,
        "ratio": 0.5,
        "raw": b"\0\xff",
        "state": "OFF",
        "before": "ON",
        "hash": b"hash",
        "tags": ["é"],
        "counts": {"one": 1},
        "day": date(2020, 1, 2),
        "at": datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        "clock": time(1, 2, 3),
        "who": "12345678-1234-5678-1234-567812345678",
        "price": Decimal("12.34"),
        "place": {"x": 1.5, "hash": b"hash"},
        "none": None,
    }


def test_avro_records_become_columns() -> None:
    write = avro(AVRO).serialize
    written = [
        write("t", {**order(number), "who": UUID(order(number)["who"])}) for number in range(1200)
    ]
    rows = rows_of(AVRO, *written, None)
    for number, row in enumerate(rows[:-1]):
        values = dict([*row.items()][5:])
        values["key"] = values.pop("value.key")
        values["counts"] = dict(values["counts"])
        assert values == order(number)
    assert {*[*rows[-1].values()][5:]} == {None}
    for bad in (b"short", (written[3] or b"") + b"more"):
        batch, failure = typed(form_of(AVRO), None, PLACE, columns_of(*written[:3], bad))
        assert batch.num_rows == 3
        assert failure is not None
        assert (failure.offset, failure.data) == (103, bad)


def test_avro_that_is_not_a_record_is_one_column() -> None:
    write = avro({"type": "long"}).serialize
    assert [row["value"] for row in rows_of('{"type": "long"}', write("t", 5), None)] == [5, None]
