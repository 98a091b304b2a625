"""Arrow record batches: consumed columns, and rows to send.

Invariant: no Python object per record. Consumed keys and values are not copied; topic and partition
are dictionary-encoded constants. Sent rows keep their order within a partition.
"""

import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from ottla.ids import TopicPartition
from ottla.protocol.primitives import Buffer
from ottla.records import Columns
from ottla.records.arrow import arrow_arrays, pyarrow_module


def consumed(partition: TopicPartition, columns: Columns) -> Any:
    """Return a pyarrow.RecordBatch: topic, partition, offset, timestamp, key, value, headers."""
    pa = pyarrow_module()
    rows = columns.rows
    # Constant columns from buffers take a fraction of the time of `pa.repeat`. The topic is a
    # dictionary with one name, and an index per row.
    names = pa.DictionaryArray.from_buffers(
        pa.dictionary(pa.int8(), pa.utf8()),
        rows,
        [None, pa.py_buffer(bytes(rows))],
        _name(partition.topic),
    )
    number = partition.partition.to_bytes(4, sys.byteorder)
    numbers = pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(number * rows)])
    arrays = {"topic": names, "partition": numbers, **arrow_arrays(columns)}
    return pa.RecordBatch.from_arrays([*arrays.values()], names=[*arrays])


@lru_cache(maxsize=64)
def _name(topic: str) -> Any:
    """Return an array with the name of a topic; made once per topic, not per batch."""
    pa = pyarrow_module()
    return pa.array([topic], pa.utf8())


class RowColumns(NamedTuple):
    """The names of the columns to send; None for absent ones."""

    key: str | None
    value: str | None
    headers: str | None
    timestamp: str | None


def select(given: Any, named: RowColumns, partition: str | None) -> Any:
    """Return a table of the columns to send, named as in RowColumns; raises ValueError."""
    pa = pyarrow_module()
    if not (hasattr(given, "__arrow_c_stream__") or hasattr(given, "__arrow_c_array__")):
        raise ValueError(
            "expected a pyarrow RecordBatch or Table such as "
            f"pyarrow.table({{'key': keys, 'value': values}}), not {type(given).__name__}"
        )
    table = pa.table(given)
    wanted = {**named._asdict(), "partition": partition}
    arrays: dict[str, Any] = {}
    for part, name in wanted.items():
        if name is None:
            continue
        places = table.schema.get_all_field_indices(name)
        if len(places) != 1:
            found = "no column" if not places else "more than one column"
            raise ValueError(
                f"{part}={name!r}: the table has {found} of this name, its columns are "
                f"{', '.join(table.column_names)}; use {part}=None to send records without it"
            )
        column = table.column(places[0])
        if part in ("key", "value"):
            _check_bytes(pa, column.type, name)
        elif part == "partition":
            if not pa.types.is_integer(column.type):
                raise ValueError(
                    f"column {name!r} has type {column.type}: partitions must be integers"
                )
            column = column.cast(pa.int32())
        arrays[part] = column
    if not arrays:
        # A table without columns would lose its number of rows.
        arrays["value"] = pa.nulls(table.num_rows)
    return pa.table(arrays)


def check_times(columns: Columns, name: str) -> None:
    """Raise ValueError if a row has a timestamp before 1970."""
    import pyarrow.compute

    compute: Any = pyarrow.compute
    pa = pyarrow_module()
    parts = [None, pa.py_buffer(columns.timestamps)]
    first_ms = compute.min(pa.Array.from_buffers(pa.int64(), columns.rows, parts)).as_py()
    if first_ms is not None and first_ms < 0:
        raise ValueError(
            f"column {name!r} has the timestamp {first_ms}: timestamps are milliseconds since "
            "1970 and must not be negative; null means the current time"
        )


def _check_bytes(pa: Any, kind: Any, name: str) -> None:
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if not (
        types.is_binary(kind)
        or types.is_string(kind)
        or types.is_large_binary(kind)
        or types.is_large_string(kind)
        or types.is_binary_view(kind)
        or types.is_string_view(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_null(kind)
    ):
        raise ValueError(
            f"column {name!r} has type {kind}: keys and values must be binary or string; cast it "
            "to the type that its readers expect, for example "
            f"table.set_column(table.column_names.index({name!r}), {name!r}, "
            f"table[{name!r}].cast('string'))"
        )


def pieces(table: Any, bytes_max: int) -> Iterator[Any]:
    """Split a table into record batches of about `bytes_max` bytes."""
    rows = table.num_rows
    step = max(1, rows * max(1, bytes_max) // max(1, table.nbytes))
    for start in range(0, rows, step):
        yield from table.slice(start, step).combine_chunks().to_batches()


def sorted_by_partition(batch: Any, numbers: Any) -> tuple[Any, list[tuple[int, int]]]:
    """Group the rows by partition, in order; returns the partitions and their counts.

    The partition numbers are an array or a buffer of 32-bit integers.
    """
    pa = pyarrow_module()
    import pyarrow.compute

    compute: Any = pyarrow.compute
    if not isinstance(numbers, pa.Array):
        buffer: Buffer = numbers
        parts = [None, pa.py_buffer(buffer)]
        numbers = pa.Array.from_buffers(pa.int32(), batch.num_rows, parts)
    counted = compute.value_counts(numbers).to_pylist()
    counts = sorted((one["values"], one["counts"]) for one in counted)
    if len(counts) > 1:
        # The sort is stable: rows of one partition keep their order.
        batch = batch.take(compute.array_sort_indices(numbers))
    return batch, counts
