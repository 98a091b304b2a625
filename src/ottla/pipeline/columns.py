"""The rows that Spark reads from a topic, with the columns of its Kafka connector.

Invariant: the Arrow types are exactly those that Spark makes of the schema. No Python object is
made per row.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, Final

from ottla.ids import TopicPartition
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
"""All columns, and their types in Spark."""

_BY_LOWER: Final = {name.lower(): name for name in TYPES}

_TIMESTAMP_TYPES: Final = {TimestampType.CREATE_TIME: 0, TimestampType.LOG_APPEND_TIME: 1}


def source_columns(given: str | None, *, headers: bool) -> tuple[str, ...]:
    """Return the columns of a source, in their order; raise BadOption for an unknown one.

    `given` is the option with their names; without it, these are all columns except headers.
    """
    if given is None:
        return tuple(name for name in TYPES if headers or name != "headers")
    wanted = {name.strip().lower() for name in given.split(",")}
    if unknown := sorted(wanted - _BY_LOWER.keys()):
        raise BadOption(f"columns: unknown column {unknown[0]!r}; there are {', '.join(TYPES)}")
    wanted |= {"headers"} if headers else set()
    return tuple(name for lower, name in _BY_LOWER.items() if lower in wanted)


def source_schema(columns: Iterable[str]) -> str:
    """Return the schema of a source as DDL."""
    return ", ".join(f"{name} {TYPES[name]}" for name in columns)


def check_source_schema(schema: Any, columns: Iterable[str]) -> None:
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
    without_values: str | None = None,
) -> Any:
    """Return the rows with offsets below `end`, in the Arrow schema that Spark expects.

    Rows whose value matches the pattern `without_values` are left out.
    """
    pa = pyarrow_module()
    batch = to_arrow(columns)
    count = columns.rows
    assert columns.offsets is not None
    offsets = memoryview(columns.offsets).cast("B").cast("q")[:count]
    stop = count if not count or offsets[-1] < end else bisect_left(offsets, end)

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
            case _:
                return batch.column(name)

    left = None if without_values is None else _not_matching(batch, stop, without_values)
    if left is not None and not left.true_count:
        return pa.RecordBatch.from_pylist([], schema)
    found = pa.RecordBatch.from_arrays(
        [array(field.name).slice(0, stop).cast(field.type) for field in schema], schema=schema
    )
    return found if left is None else found.filter(left)


def _not_matching(batch: Any, stop: int, pattern: str) -> Any:
    """Return for each row whether its value does not match; null does not."""
    import pyarrow.compute

    compute: Any = pyarrow.compute
    values = batch.column("value").slice(0, stop)
    return compute.invert(compute.fill_null(compute.match_substring_regex(values, pattern), False))
