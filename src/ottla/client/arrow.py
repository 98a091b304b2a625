"""Consumed columns as Arrow record batches.

Invariant: no Python object is made per record, and no key or value is copied: topic and partition,
which are the same throughout, are columns that Arrow fills by itself.
"""

from typing import Any

from ottla.ids import TopicPartition
from ottla.records import Columns


def consumed(partition: TopicPartition, columns: Columns) -> Any:
    """A pyarrow.RecordBatch: topic, partition, offset, timestamp, key, value, headers."""
    batch = columns.to_arrow()
    import pyarrow

    pa: Any = pyarrow
    rows = columns.rows
    # One name for all rows, and a small number in each that points to it.
    names = pa.DictionaryArray.from_arrays(
        pa.repeat(pa.scalar(0, pa.int8()), rows), pa.array([partition.topic], pa.utf8())
    )
    numbers = pa.repeat(pa.scalar(partition.partition, pa.int32()), rows)
    return pa.RecordBatch.from_arrays(
        [names, numbers, *batch.columns], names=["topic", "partition", *batch.schema.names]
    )
