"""Arrow types of Avro schemas.

Invariant: a type represents every value of its schema exactly; a schema without such a type is
refused.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from ottla.records.arrow import pyarrow_module

_DECIMAL128_DIGITS: Final = 38


def arrow_type(schema: Any) -> Any:
    """Return the Arrow type of a schema; raises ValueError."""
    return _Types().of(schema)


def plain_uuids(schema: Any) -> Any:
    """Return the schema with UUIDs as plain strings or bytes."""
    if isinstance(schema, Mapping):
        fields = cast("Mapping[str, Any]", schema)
        return {
            name: plain_uuids(part)
            for name, part in fields.items()
            if not (name == "logicalType" and part == "uuid")
        }
    if isinstance(schema, list):
        return [plain_uuids(part) for part in cast("list[Any]", schema)]
    return schema


class _Types:
    """Maps types and remembers named ones."""

    def __init__(self) -> None:
        pa = self._pa = pyarrow_module()
        self._known: dict[str, Any] = {
            "null": pa.null(),
            "boolean": pa.bool_(),
            "int": pa.int32(),
            "long": pa.int64(),
            "float": pa.float32(),
            "double": pa.float64(),
            "bytes": pa.binary(),
            "string": pa.utf8(),
        }
        self._logical: dict[tuple[str, str], Any] = {
            ("int", "date"): pa.date32(),
            ("int", "time-millis"): pa.time32("ms"),
            ("long", "time-micros"): pa.time64("us"),
            ("long", "timestamp-millis"): pa.timestamp("ms", tz="UTC"),
            ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
            ("long", "local-timestamp-millis"): pa.timestamp("ms"),
            ("long", "local-timestamp-micros"): pa.timestamp("us"),
        }
        self._open: set[str] = set()  # named types whose fields are being mapped

    def of(self, schema: Any, space: str = "") -> Any:
        """Return the type of a schema in a namespace."""
        if isinstance(schema, list):
            return self._union(cast("list[Any]", schema), space)
        if not isinstance(schema, Mapping):
            return self._named(str(schema), space)
        return self._declared(cast("Mapping[str, Any]", schema), space)

    def _named(self, name: str, space: str) -> Any:
        for full in (f"{space}.{name}" if space and "." not in name else name, name):
            if full in self._open:
                raise ValueError(f"Avro type {name} contains itself and cannot be a column")
            if full in self._known:
                return self._known[full]
        raise ValueError(f"unknown Avro type {name!r}")

    def _union(self, union: list[Any], space: str) -> Any:
        types = [self.of(one, space) for one in union if one != "null"]
        if not types:
            return self._pa.null()
        if len(types) > 1:
            raise ValueError(
                f"Avro union {union} has {len(types)} types besides null: a column can have only "
                "one"
            )
        return types[0]

    def _declared(self, schema: Mapping[str, Any], space: str) -> Any:
        pa = self._pa
        kind = schema["type"]
        match kind:
            case "array":
                return pa.list_(self.of(schema["items"], space))
            case "map":
                return pa.map_(pa.utf8(), self.of(schema["values"], space))
            case "record" | "error":
                return self._record(schema, space)
            case "enum":
                return self._name(schema, space, pa.utf8())
            case "fixed":
                decimal = schema.get("logicalType") == "decimal"
                made = _decimal(pa, schema) if decimal else pa.binary(schema["size"])
                return self._name(schema, space, made)
            case "bytes" if schema.get("logicalType") == "decimal":
                return _decimal(pa, schema)
            case str():
                found = self._logical.get((kind, schema.get("logicalType", "")))
                return self._named(kind, space) if found is None else found
            case _:
                return self.of(kind, space)

    def _record(self, schema: Mapping[str, Any], space: str) -> Any:
        full, inner = _full_name(schema, space)
        self._open.add(full)
        fields = [(field["name"], self.of(field["type"], inner)) for field in schema["fields"]]
        self._open.discard(full)
        return self._name(schema, space, self._pa.struct(fields))

    def _name(self, schema: Mapping[str, Any], space: str, made: Any) -> Any:
        self._known[_full_name(schema, space)[0]] = made
        return made


def _full_name(schema: Mapping[str, Any], space: str) -> tuple[str, str]:
    """Return the full name and its namespace."""
    name = str(schema["name"])
    if "." in name:
        return name, name.rpartition(".")[0]
    space = str(schema.get("namespace", space))
    return (f"{space}.{name}" if space else name), space


def _decimal(pa: Any, schema: Mapping[str, Any]) -> Any:
    precision, scale = int(schema["precision"]), int(schema.get("scale", 0))
    wide = precision > _DECIMAL128_DIGITS
    return (pa.decimal256 if wide else pa.decimal128)(precision, scale)
