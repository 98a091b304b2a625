"""Parses JSON values to a column of structs in the tasks that read them, in compiled code.

Spark parses the values that are not parsed here. Most values of most topics are: objects with the
columns of the schema in their usual forms. To parse one here takes a tenth of the processor time
that Spark needs.

Invariant: a parsed value has the row that Spark's `from_json` returns in a session with the time
zone UTC, and `from_json` finds nothing wrong with it.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.pipeline.options import BadOption
from ottla.pipeline.spec.model import Source
from ottla.pipeline.spec.schema_ddl import Column, SchemaSyntaxError, parse_columns
from ottla.records import COMPILED, JsonField, JsonType, parse_json_objects
from ottla.records.arrow import binary_column, pyarrow_module

COLUMNS_MAX: Final = 64

_TYPES: Final = {
    "STRING": JsonType.STRING,
    "BOOLEAN": JsonType.BOOLEAN,
    "INT": JsonType.INT,
    "BIGINT": JsonType.LONG,
    "LONG": JsonType.LONG,
    "DOUBLE": JsonType.DOUBLE,
    "TIMESTAMP": JsonType.TIMESTAMP,
    "DATE": JsonType.DATE,
}
_SPARK_TYPES: Final = {
    JsonType.STRING: "string",
    JsonType.BOOLEAN: "boolean",
    JsonType.INT: "int",
    JsonType.LONG: "bigint",
    JsonType.DOUBLE: "double",
    JsonType.TIMESTAMP: "timestamp",
    JsonType.DATE: "date",
}

_NAME: Final = re.compile("[A-Za-z0-9_]+")
_CHANGES: Final = re.compile("legacy|json", re.IGNORECASE)
"""Settings with such names can change what Spark accepts, as the options of a source can."""

_TIME_ZONE: Final = "spark.sql.session.timeZone"


class JsonSchema(NamedTuple):
    """The columns of JSON values."""

    columns: tuple[Column, ...]
    skips_unknown: bool = True
    """Whether a value with other fields is parsed, too."""

    @property
    def spark_type(self) -> str:
        """Return the type of the parsed rows in Spark."""
        fields = (f"{one.name}:{_SPARK_TYPES[_TYPES[one.type]]}" for one in self.columns)
        return f"struct<{','.join(fields)}>"


class ParsedValues(NamedTuple):
    """Arrow arrays of some values."""

    rows: Any
    """The rows as structs; null if a value is not parsed."""
    unparsed: Any
    """The values that are not parsed; null if a value is parsed."""
    is_unparsed: Any
    parsed_count: int


def json_schema(ddl: str, *, skips_unknown: bool) -> JsonSchema:
    """Return the schema of a DDL; raise BadOption if values cannot be parsed with it."""
    try:
        columns = parse_columns(ddl)
    except SchemaSyntaxError as error:
        raise BadOption(f"jsonColumns: {error}") from error
    if (problem := _problem(columns, ddl)) is not None:
        raise BadOption(f"jsonColumns: {problem}")
    return JsonSchema(columns, skips_unknown)


def _problem(columns: tuple[Column, ...], ddl: str) -> str | None:
    """Return why tasks cannot parse values with these columns."""
    if len(columns) > COLUMNS_MAX:
        return f"{len(columns)} columns: at most {COLUMNS_MAX} are possible"
    if re.search(r"\bCOLLATE\b", ddl, re.IGNORECASE):
        return "collations are not possible"
    for column in columns:
        if column.type not in _TYPES:
            return f"{column.name} {column.type}: the type must be one of {', '.join(_TYPES)}"
        if not _NAME.fullmatch(column.name):
            return f"column {column.name!r}: a name must have only letters, digits and _"
    return None


def is_parsed_in_tasks(source: Source, settings: Mapping[str, str]) -> bool:
    """Return whether the tasks can parse values of a source; `settings` are those of Spark."""
    if (
        not COMPILED
        or source.json is None
        or source.parse
        or _problem(parse_columns(source.json), source.json)
    ):
        return False
    if settings.get(_TIME_ZONE) not in ("UTC", "Etc/UTC"):
        return False
    return not any(_CHANGES.search(name) for name in settings)


def parsed_values(schema: JsonSchema, values: Any) -> ParsedValues:
    """Parse an Arrow array of values."""
    pa = pyarrow_module()
    count = len(values)
    kinds = [_TYPES[one.type] for one in schema.columns]
    fields = [
        JsonField(one.name.encode(), kind, one.is_required)
        for one, kind in zip(schema.columns, kinds, strict=True)
    ]
    column = binary_column(values).kernel()
    bits, parsed = parse_json_objects(column, count, fields, schema.skips_unknown)
    validity = pa.py_buffer(bits)
    types = _arrow_types()
    names = [one.name for one in schema.columns]
    struct = pa.struct([(name, types[kind]) for name, kind in zip(names, kinds, strict=True)])
    arrays = [
        pa.Array.from_buffers(types[kind], count, [pa.py_buffer(one) for one in field.buffers])
        for kind, field in zip(kinds, fields, strict=True)
    ]
    compute = _compute()
    is_unparsed = compute.invert(pa.Array.from_buffers(pa.bool_(), count, [None, validity]))
    unparsed = values if not parsed else compute.if_else(is_unparsed, values, None)
    return ParsedValues(
        pa.Array.from_buffers(struct, count, [validity], children=arrays),
        unparsed,
        is_unparsed,
        parsed,
    )


def _compute() -> Any:
    import pyarrow.compute

    return pyarrow.compute


def _arrow_types() -> Mapping[JsonType, Any]:
    pa = pyarrow_module()
    return {
        JsonType.STRING: pa.utf8(),
        JsonType.BOOLEAN: pa.bool_(),
        JsonType.INT: pa.int32(),
        JsonType.LONG: pa.int64(),
        JsonType.DOUBLE: pa.float64(),
        JsonType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
        JsonType.DATE: pa.date32(),
    }
