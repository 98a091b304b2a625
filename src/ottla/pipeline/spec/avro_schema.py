"""Converts the Avro schema of a source to Spark's DDL, without Avro's library.

A field that may be null is a union with null. Other unions have no type in Spark, and are refused.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

_PRIMITIVES: Final = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bytes": "BINARY",
    "string": "STRING",
}
_LOGICAL: Final = {
    ("int", "date"): "DATE",
    ("long", "timestamp-millis"): "TIMESTAMP",
    ("long", "timestamp-micros"): "TIMESTAMP",
    ("long", "local-timestamp-millis"): "TIMESTAMP_NTZ",
    ("long", "local-timestamp-micros"): "TIMESTAMP_NTZ",
}
_UNSUPPORTED: Final = ("time-millis", "time-micros", "duration")


class AvroSchemaError(ValueError):
    """A text that is not a schema that Spark's rows can have."""


def avro_schema(text: str) -> Mapping[str, Any]:
    """Return the record schema in a JSON text; raises AvroSchemaError."""
    try:
        found: object = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise AvroSchemaError(f"the schema is not JSON: {error}") from None
    if not isinstance(found, Mapping):
        raise AvroSchemaError('the schema must be a record: {"type": "record", …}')
    schema = cast("Mapping[str, Any]", found)
    if schema.get("type") != "record":
        raise AvroSchemaError('the schema must be a record: {"type": "record", …}')
    return schema


def avro_ddl(text: str) -> str:
    """Return the columns of a record schema as DDL; raises AvroSchemaError."""
    names: dict[str, str] = {}
    return ", ".join(
        f"{_quoted(name)} {kind}" for name, kind in _fields(avro_schema(text), names, "")
    )


def _fields(schema: Mapping[str, Any], names: dict[str, str], path: str) -> list[tuple[str, str]]:
    fields = schema.get("fields")
    if not isinstance(fields, list) or not fields:
        raise AvroSchemaError(f"{path or 'the record'} has no fields")
    found: list[tuple[str, str]] = []
    for field in cast("list[object]", fields):
        if not isinstance(field, Mapping):
            raise AvroSchemaError(f"{path or 'the record'} has a field that is not an object")
        given = cast("Mapping[str, Any]", field)
        name = given.get("name")
        if not isinstance(name, str) or "type" not in given:
            raise AvroSchemaError(f"a field of {path or 'the record'} needs name and type")
        where = f"{path}.{name}" if path else f"field {name}"
        found.append((name, _type(given["type"], names, where)))
    return found


def _type(schema: object, names: dict[str, str], path: str) -> str:
    match schema:
        case str():
            if schema in _PRIMITIVES:
                return _PRIMITIVES[schema]
            if schema in names:
                return names[schema]
            raise AvroSchemaError(f"{path} has an unknown type {schema!r}")
        case list():
            others = [one for one in cast("list[object]", schema) if one != "null"]
            if len(others) != 1:
                raise AvroSchemaError(f"{path} is a union of several types, which Spark has not")
            return _type(others[0], names, path)
        case Mapping():
            return _complex(cast("Mapping[str, Any]", schema), names, path)
        case _:
            raise AvroSchemaError(f"{path} has no type")


def _complex(schema: Mapping[str, Any], names: dict[str, str], path: str) -> str:
    kind, logical = schema.get("type"), schema.get("logicalType")
    if logical in _UNSUPPORTED:
        raise AvroSchemaError(f"{path} is {logical}, which is not supported")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        found = f"DECIMAL({schema.get('precision', 10)}, {schema.get('scale', 0)})"
    elif (kind, logical) in _LOGICAL:
        return _LOGICAL[cast("tuple[str, str]", (kind, logical))]
    elif kind == "record":
        fields = _fields(schema, names, path)
        found = f"STRUCT<{', '.join(f'{_quoted(name)}: {one}' for name, one in fields)}>"
    elif kind == "array":
        return f"ARRAY<{_type(schema.get('items'), names, path)}>"
    elif kind == "map":
        return f"MAP<STRING, {_type(schema.get('values'), names, path)}>"
    elif kind == "enum":
        found = "STRING"
    elif kind == "fixed":
        found = "BINARY"
    else:
        return _type(kind, names, path)
    if isinstance(name := schema.get("name"), str):
        names[name] = found
    return found


def _quoted(name: str) -> str:
    return f"`{name}`"
