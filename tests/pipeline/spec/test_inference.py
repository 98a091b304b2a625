"""The schema that is inferred from a sample of values."""

import json
from typing import Any

from ottla.pipeline.spec.inference import Inferred, infer
from ottla.pipeline.spec.schema_ddl import parse_columns


def of(*objects: Any) -> Inferred:
    found = infer([json.dumps(one).encode() for one in objects])
    if found.format == "json":
        parse_columns(found.schema)  # raises if Spark could not parse it
    return found


def test_columns_have_the_types_of_the_values() -> None:
    found = of(
        {"id": 1, "at": "2026-01-01T00:00:01Z", "day": "2026-01-01", "name": "a", "ok": True},
        {"id": 2, "at": "2026-01-01 00:00", "day": "2026-01-02", "name": None, "mean": 1.5},
        {"id": 2, "mean": 2, "large": 2**70, "unknown": None},
    )
    assert found.notes == ()
    assert found.schema == (
        "id BIGINT, at TIMESTAMP, day DATE, name STRING, ok BOOLEAN, mean DOUBLE, large DOUBLE, "
        "unknown STRING"
    )


def test_nested_values_are_arrays_and_structs() -> None:
    found = of({"tags": ["a", None], "at": {"x": 1, "y": [{"z": 1.5}]}, "none": [], "any": {}})
    assert found.schema == (
        "tags ARRAY<STRING>, at STRUCT<x: BIGINT, y: ARRAY<STRUCT<z: DOUBLE>>>, "
        "none ARRAY<STRING>, any MAP<STRING, STRING>"
    )


def test_most_values_decide_and_others_are_reported() -> None:
    found = of(*({"celsius": number} for number in range(3)), {"celsius": "n/a"}, "text")
    assert found == Inferred(
        "json",
        "celsius BIGINT",
        ("1 of 5 records is not a JSON object", "celsius: BIGINT does not fit 1 of 4 values"),
    )


def test_names_that_are_not_words_are_quoted() -> None:
    found = of({"a b": 1, "x`y": 2, "ä": 3, "Id": 4, "id": 5, "line\n": 6, "": 7})
    assert found.schema == "`a b` BIGINT, `x``y` BIGINT, `ä` BIGINT, Id BIGINT"
    assert found.notes == (
        "fields Id and id are the same column in Spark",
        "a field with the name 'line\\n' is left out",
        "a field with the name '' is left out",
    )


def test_other_values_are_text_or_binary() -> None:
    assert infer([b"a line", b"[1]", b"12"]) == Inferred("text", "line")
    assert infer([b"a line", None]) == Inferred("text", "line", ("some records have no value",))
    assert infer([b"\xff\xfe", b"text"]) == Inferred("binary", "value")
    assert infer([b"[" * 100_000]) == Inferred("text", "line")
    assert of({}) == Inferred("text", "line"), "an object without fields has no schema"
