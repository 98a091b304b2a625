"""The rows that Spark reads from a topic, with the columns of its Kafka connector.

Invariant: the Arrow types are exactly those that Spark makes of the schema. No Python object is
made per row.
"""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, Final

from ottla.ids import TopicPartition
from ottla.pipeline.json_values import JsonSchema, parsed_values
from ottla.pipeline.options import BadOption
from ottla.records import Columns, TimestampType
from ottla.records.arrow import pyarrow_module, to_arrow

TYPES: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""The columns of all records, and their types in Spark."""

PARSED: Final = "parsed"
"""The column with the row of a JSON value; null if it is not parsed."""

UNPARSED: Final = "unparsed"
"""The column with a value that is not parsed; null if it is parsed."""

_TIMESTAMP_TYPES: Final = {TimestampType.CREATE_TIME: 0, TimestampType.LOG_APPEND_TIME: 1}


def source_columns(
    given: str | None, *, headers: bool, json: JsonSchema | None = None
) -> dict[str, str]:
    """Return the columns of a source and their types; raise BadOption for an unknown one.

    `given` is the option with their names; without it, these are all columns except headers.
    """
    types = {**TYPES, PARSED: json.spark_type, UNPARSED: "binary"} if json is not None else TYPES
    if given is None:
        return {name: one for name, one in types.items() if headers or name != "headers"}
    wanted = {name.strip().lower() for name in given.split(",")}
    if unknown := sorted(wanted - {name.lower() for name in types}):
        raise BadOption(f"columns: unknown column {unknown[0]!r}; there are {', '.join(types)}")
    wanted |= {"headers"} if headers else set()
    return {name: one for name, one in types.items() if name.lower() in wanted}


def source_schema(columns: Mapping[str, str]) -> str:
    """Return the schema of a source as DDL."""
    return ", ".join(f"{name} {one}" for name, one in columns.items())


def check_source_schema(schema: Any, columns: Mapping[str, str]) -> None:
    """Raise BadOption if the user has set another schema than that of a topic."""
    given = ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in schema.fields)
    expected = source_schema(columns)
    if given != expected:
        raise BadOption(f"the schema of a topic is fixed, remove .schema(...): it is {expected}")


def arrow_schema(schema: Any) -> Any:
    """Return the Arrow schema that Spark makes of its schema."""
    from pyspark.sql.pandas import types

    spark: Any = types
    return spark.to_arrow_schema(schema, timezone="UTC")


def _headers(lists: Any) -> Any:
    """Return the headers as the connector does: null for a record without headers."""
    import pyarrow.compute

    compute: Any = pyarrow.compute
    none = compute.equal(compute.list_value_length(lists), 0)
    return pyarrow_module().ListArray.from_arrays(lists.offsets, lists.values, mask=none)


def rows(
    partition: TopicPartition,
    columns: Columns,
    end: int,
    schema: Any,
    *,
    json: JsonSchema | None = None,
    skips_parsed: bool = False,
) -> Any:
    """Return the rows with offsets below `end`, in the Arrow schema that Spark expects.

    With `skips_parsed`, rows whose value is parsed with the JSON schema are left out.
    """
    pa = pyarrow_module()
    batch = to_arrow(columns)
    count = columns.rows
    assert columns.offsets is not None
    offsets = memoryview(columns.offsets).cast("B").cast("q")[:count]
    stop = count if not count or offsets[-1] < end else bisect_left(offsets, end)
    found = None
    if json is not None:
        found = parsed_values(json, batch.column("value").slice(0, stop))
        if skips_parsed and found.parsed_count == stop:
            return pa.RecordBatch.from_pylist([], schema)

    def array(name: str) -> Any:
        match name:
            case "topic":
                return pa.repeat(pa.scalar(partition.topic, pa.utf8()), count)
            case "partition":
                return pa.repeat(pa.scalar(partition.partition, pa.int32()), count)
            case "timestampType":
                runs = [
                    pa.repeat(pa.scalar(_TIMESTAMP_TYPES[kind], pa.int32()), run)
                    for kind, run in columns.timestamp_types
                ]
                return pa.concat_arrays(runs)
            case "headers":
                return _headers(batch.column(name))
            case "parsed" if found is not None:
                return found.rows
            case "unparsed" if found is not None:
                return found.unparsed
            case _:
                return batch.column(name)

    whole = pa.RecordBatch.from_arrays(
        [array(field.name).slice(0, stop).cast(field.type) for field in schema], schema=schema
    )
    if found is None or not skips_parsed:
        return whole
    return whole.filter(found.is_unparsed)
