"""The code that runs once per record: Cython in pure-Python mode, compiled where possible.

The modules are compiled when a C compiler is available. Otherwise they run as plain Python, with
the same results. Where the two need different code there is an `if cython.compiled`. A `.pxd` file
has the C declarations of its module, and the C bodies of small functions that other modules inline.
The Python versions of these functions are in the `.py` file, under `if not cython.compiled`. The
types for callers are in `__init__.pyi`.

Either all modules are compiled or none is: a compiled module cannot import the C functions of one
that is not, and setup.py removes a partial build.

| module | contents |
|---|---|
| `buffers` | views of callers' bytes, bytearrays that grow |
| `integers` | 64-bit arithmetic, zigzag, unsigned varints; only inlined |
| `parser` | parses records in place; checks the records of a produced batch |
| `reader` | records as Python objects |
| `column_builder` | records to Arrow columns |
| `columns` | Arrow columns that callers pass in |
| `encode` | Python objects or Arrow columns to records |
| `open_batches` | the open batches of a producer, and the queue to them from other threads |
| `hashing` | murmur2 |
| `compaction` | the offset map, the records that survive compaction |
| `json_columns` | JSON objects to Arrow columns |
| `batch_headers` | scans the headers of consecutive batches |
"""

try:
    from ottla.records._kernel.batch_headers import count_records, scan_batch_headers, split_batches
    from ottla.records._kernel.buffers import COMPILED, not_bytes_error
    from ottla.records._kernel.column_builder import ColumnBuilder
    from ottla.records._kernel.columns import BinaryColumn, HeaderColumn, TimestampColumn
    from ottla.records._kernel.compaction import OffsetMap, copy_retained, mark_retained
    from ottla.records._kernel.constants import HEADER_SIZE, REASONS, RECORD_OVERHEAD_MAX, JsonType
    from ottla.records._kernel.encode import (
        NOT_PAIRS,
        RecordAppender,
        RecordRef,
        encode_rows,
        find_oversized_row,
        write_varint,
        write_varlong,
    )
    from ottla.records._kernel.hashing import murmur2, partitions
    from ottla.records._kernel.json_columns import JsonField, parse_json_objects
    from ottla.records._kernel.open_batches import OpenBatches, QueuedRecord, RecordQueue
    from ottla.records._kernel.parser import (
        check_records,
        find_invalid_records,
        read_varint,
        read_varlong,
    )
    from ottla.records._kernel.reader import Record, RecordReader, read_record_tuples
except ImportError as error:  # a compiled module lacks what another one needs from it
    raise ImportError(
        "the compiled modules of the kernel do not belong to its source: run `make setup`"
    ) from error

__all__ = [
    "COMPILED",
    "HEADER_SIZE",
    "NOT_PAIRS",
    "REASONS",
    "RECORD_OVERHEAD_MAX",
    "BinaryColumn",
    "ColumnBuilder",
    "HeaderColumn",
    "JsonField",
    "JsonType",
    "OffsetMap",
    "OpenBatches",
    "QueuedRecord",
    "Record",
    "RecordAppender",
    "RecordQueue",
    "RecordReader",
    "RecordRef",
    "TimestampColumn",
    "check_records",
    "copy_retained",
    "count_records",
    "encode_rows",
    "find_invalid_records",
    "find_oversized_row",
    "mark_retained",
    "murmur2",
    "not_bytes_error",
    "parse_json_objects",
    "partitions",
    "read_record_tuples",
    "read_varint",
    "read_varlong",
    "scan_batch_headers",
    "split_batches",
    "write_varint",
    "write_varlong",
]
