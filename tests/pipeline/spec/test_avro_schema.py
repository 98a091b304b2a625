"""Avro schemas as columns of Spark."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from cases import Cases
from ottla.pipeline import InvalidPipeline
from ottla.pipeline.spec.avro_schema import AvroSchemaError, avro_ddl
from ottla.pipeline.spec.loading import load_text

INNER = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}
TYPES: list[tuple[Any, str]] = [
    ("int", "INT"),
    ("long", "BIGINT"),
    ("string", "STRING"),
    ("bytes", "BINARY"),
    (["null", "double"], "DOUBLE"),
    ({"type": "string"}, "STRING"),
    ({"type": "int", "logicalType": "date"}, "DATE"),
    ({"type": "long", "logicalType": "timestamp-millis"}, "TIMESTAMP"),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, "TIMESTAMP_NTZ"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "DECIMAL(9, 2)"),
    ({"type": "string", "logicalType": "uuid"}, "STRING"),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, "STRING"),
    ({"type": "fixed", "name": "F", "size": 4}, "BINARY"),
    ({"type": "array", "items": ["null", "int"]}, "ARRAY<INT>"),
    ({"type": "map", "values": {"type": "array", "items": "long"}}, "MAP<STRING, ARRAY<BIGINT>>"),
    (INNER, "STRUCT<`x`: INT>"),
]
WRONG: list[tuple[Any, str]] = [
    (["int", "string"], "field a is a union of several types, which Spark has not"),
    ("Inner", "field a has an unknown type 'Inner'"),
    ({"type": "int", "logicalType": "time-millis"}, "field a is time-millis"),
    ({"type": "array"}, "field a has no type"),
    ({**INNER, "fields": []}, "field a has no fields"),
]


def schema(kind: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]})


def test_types_become_those_of_spark() -> None:
    cases = Cases()
    for kind, expected in TYPES:
        with cases.case(kind):
            assert avro_ddl(schema(kind)) == f"`a` {expected}"
    cases.check()


def test_types_that_spark_has_not_are_refused() -> None:
    cases = Cases()
    for kind, expected in WRONG:
        with cases.case(kind), pytest.raises(AvroSchemaError) as error:
            avro_ddl(schema(kind))
        with cases.case(kind, expected):
            assert expected in str(error.value)
    cases.check()


def test_named_type_can_be_used_again() -> None:
    fields = [{"name": "a", "type": INNER}, {"name": "b", "type": "Inner"}]
    text = json.dumps({"type": "record", "name": "R", "fields": fields})
    assert avro_ddl(text) == "`a` STRUCT<`x`: INT>, `b` STRUCT<`x`: INT>"


PIPELINE = """\
name: x
sources:
  a: {topic: a, avro: a.avsc, watermark: {column: at, delay: 1 second}}
sinks: [{from: a, console: true}]
"""


def test_schema_is_read_from_its_file() -> None:
    timestamp = {"type": "long", "logicalType": "timestamp-millis"}
    text = schema(timestamp).replace('"a"', '"at"')
    found = load_text(PIPELINE, "p.yaml", environment={}, read_file={"a.avsc": text}.__getitem__)
    assert found.pipeline.sources["a"].avro == text
    assert found.written.sources["a"].avro == "a.avsc"


def test_problems_of_a_schema_file_have_the_position_of_its_name() -> None:
    def missing(name: str) -> str:
        raise FileNotFoundError(2, "No such file or directory", name)

    cases: list[tuple[Callable[[str], str], str]] = [
        (missing, 'cannot read "a.avsc": No such file or directory'),
        (lambda name: "{", "the schema is not JSON"),
        (lambda name: schema("int"), 'there is no column "at"'),
    ]
    for read_file, expected in cases:
        with pytest.raises(InvalidPipeline) as error:
            load_text(PIPELINE, "p.yaml", environment={}, read_file=read_file)
        [line] = str(error.value).splitlines()
        assert line.startswith("p.yaml:3:")
        assert expected in line
