"""Values in Avro's binary encoding."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from ottla.pipeline.avro_values import decoded_values, encoded_value

FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
    {
        "name": "price",
        "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}],
        "default": None,
    },
    {"name": "tags", "type": {"type": "map", "values": "bytes"}, "default": {}},
]
SCHEMA = json.dumps({"type": "record", "name": "R", "fields": FIELDS})


def test_row_of_json_is_encoded_and_decoded() -> None:
    row = {
        "id": 1,
        "at": "2026-01-01T00:00:01",
        "day": "2026-01-01",
        "price": 1.25,
        "tags": {"a": "x"},
    }
    [found] = decoded_values(SCHEMA, [encoded_value(SCHEMA, row)])
    assert found.error is None
    assert found.row == {
        "id": 1,
        "at": datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC),
        "day": date(2026, 1, 1),
        "price": Decimal("1.25"),
        "tags": {"a": b"x"},
    }


def test_missing_fields_have_their_defaults() -> None:
    [found] = decoded_values(SCHEMA, [encoded_value(SCHEMA, {"id": 1, "at": "2026-01-01T00:00"})])
    assert found.row is not None
    assert (found.row["day"], found.row["tags"]) == (None, {})


def test_values_that_are_not_avro_have_an_error() -> None:
    whole = encoded_value(SCHEMA, {"id": 1, "at": "2026-01-01T00:00:01"})
    not_avro = "the value is not Avro with this schema: "
    found = [*decoded_values(SCHEMA, [None, b"", whole[:-1], whole + b"x", whole])]
    assert [one.row is None for one in found] == [True, True, True, True, False]
    assert found[0].error == "the value is null"
    assert all((one.error or "").startswith(not_avro) for one in found[1:4])
    assert found[3].error == f"{not_avro}1 byte follows the record"


def test_row_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit the Avro schema"):
        encoded_value(SCHEMA, {"id": "x", "at": "2026-01-01T00:00:01"})
