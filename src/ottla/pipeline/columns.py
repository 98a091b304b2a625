"""The rows that Spark reads from a topic, with the columns of its Kafka connector.

Invariant: the Arrow types are exactly those that Spark makes of the schema. No Python object is
made per row.
"""

from bisect import bisect_left
from typing import Any, Final

from ottla.ids import TopicPartition
from ottla.pipeline.options import BadOption
from ottla.records import Columns, TimestampType
from ottla.records.arrow import pyarrow_module, to_arrow

SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)
HEADERS: Final = "headers array<struct<key:string,value:binary>>"

_TYPES: Final = {TimestampType.CREATE_TIME: 0, TimestampType.LOG_APPEND_TIME: 1}


def source_schema(*, headers: bool) -> str:
    """Return the schema of a source as DDL."""
    return f"{SCHEMA}, {HEADERS}" if headers else SCHEMA


def check_source_schema(schema: Any, *, headers: bool) -> None:
    """Raise BadOption if the user has set another schema than that of a topic."""
    given = ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in schema.fields)
    expected = source_schema(headers=headers)
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


def rows(partition: TopicPartition, columns: Columns, end: int, schema: Any) -> Any:
    """Return the rows with offsets below `end`, in the Arrow schema that Spark expects."""
    pa = pyarrow_module()
    batch = to_arrow(columns)
    count = columns.rows
    arrays = {
        "key": batch.column("key"),
        "value": batch.column("value"),
        "topic": pa.repeat(pa.scalar(partition.topic, pa.utf8()), count),
        "partition": pa.repeat(pa.scalar(partition.partition, pa.int32()), count),
        "offset": batch.column("offset"),
        "timestamp": batch.column("timestamp"),
        "timestampType": pa.concat_arrays(
            [
                pa.repeat(pa.scalar(_TYPES[kind], pa.int32()), run)
                for kind, run in columns.timestamp_types
            ]
        ),
    }
    if "headers" in schema.names:
        arrays["headers"] = _headers(batch.column("headers"))
    assert columns.offsets is not None
    offsets = memoryview(columns.offsets).cast("B").cast("q")[:count]
    stop = count if not count or offsets[-1] < end else bisect_left(offsets, end)
    return pa.RecordBatch.from_arrays(
        [arrays[field.name].slice(0, stop).cast(field.type) for field in schema], schema=schema
    )
