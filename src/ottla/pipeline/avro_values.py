"""Decodes and encodes the values of records in Avro's binary encoding, with fastavro.

Invariant: a value is decoded to a row, or has an error that says why it is not one. All bytes of a
value belong to its record.
"""

import io
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple, cast
from uuid import UUID

from ottla.pipeline.spec.avro_schema import avro_schema


class DecodedValue(NamedTuple):
    """A row, or the reason why there is none."""

    row: Mapping[str, Any] | None
    error: str | None


def decoded_values(schema: str, values: Iterable[bytes | None]) -> Iterator[DecodedValue]:
    """Decode the values of records; `schema` is the JSON of a record schema."""
    import fastavro

    library: Any = fastavro
    parsed = library.parse_schema(dict(avro_schema(schema)))
    for value in values:
        if value is None:
            yield DecodedValue(None, "the value is null")
            continue
        stream = io.BytesIO(value)
        try:
            row = library.schemaless_reader(stream, parsed)
        except Exception as error:  # fastavro raises many kinds for bytes that are not Avro
            reason = str(error) or type(error).__name__
            yield DecodedValue(None, f"the value is not Avro with this schema: {reason}")
            continue
        left = len(value) - stream.tell()
        if left:
            noun = "1 byte follows" if left == 1 else f"{left} bytes follow"
            yield DecodedValue(None, f"the value is not Avro with this schema: {noun} the record")
        else:
            yield DecodedValue(cast("Mapping[str, Any]", _for_arrow(row)), None)


def encoded_value(schema: str, row: Mapping[str, Any]) -> bytes:
    """Encode a row, whose values are those of JSON or YAML; raises ValueError."""
    import fastavro

    library: Any = fastavro
    whole = dict(avro_schema(schema))
    stream = io.BytesIO()
    try:
        library.schemaless_writer(stream, library.parse_schema(whole), _from_json(whole, row))
    except Exception as error:  # fastavro raises many kinds for values that do not fit
        raise ValueError(f"the row does not fit the Avro schema: {error}") from error
    return stream.getvalue()


def _for_arrow(value: Any) -> Any:
    """Return a decoded value as Arrow takes it."""
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        return {name: _for_arrow(one) for name, one in entries.items()}
    if isinstance(value, list):
        return [_for_arrow(one) for one in cast("list[Any]", value)]
    return str(value) if isinstance(value, UUID) else value


def _from_json(schema: Any, value: Any) -> Any:
    """Return a value with the types that fastavro encodes."""
    if isinstance(schema, list):
        others = [one for one in cast("list[Any]", schema) if one != "null"]
        return None if value is None or not others else _from_json(others[0], value)
    if not isinstance(schema, Mapping) or value is None:
        return value.encode() if schema == "bytes" and isinstance(value, str) else value
    given = cast("Mapping[str, Any]", schema)
    kind, logical = given.get("type"), str(given.get("logicalType", ""))
    match kind:
        case "record":
            fields = {one["name"]: one["type"] for one in given["fields"]}
            row = cast("Mapping[str, Any]", value)
            return {name: _from_json(fields.get(name), one) for name, one in row.items()}
        case "array":
            return [_from_json(given["items"], one) for one in value]
        case "map":
            return {name: _from_json(given["values"], one) for name, one in value.items()}
        case _:
            return _logical(logical, kind, value)


def _logical(logical: str, kind: Any, value: Any) -> Any:
    if "timestamp" in logical and isinstance(value, str):
        found = datetime.fromisoformat(value)
        if logical.startswith("local"):
            return found
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    if logical == "date" and isinstance(value, str):
        return date.fromisoformat(value)
    if logical == "decimal":
        return Decimal(str(value))
    return value.encode() if kind in ("bytes", "fixed") and isinstance(value, str) else value
