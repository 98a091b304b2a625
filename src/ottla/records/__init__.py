"""Record batches: what is in them, how they are read, built and checked.

Invariant: functions and values only. No socket, file, clock or chance; bytes in, bytes out.
"""

from ottla.records._kernel import (
    COMPILED,
    NOT_PAIRS,
    RECORD_OVERHEAD_MAX,
    Record,
    RecordReader,
    RecordRef,
    count_records,
    murmur2,
    not_bytes_error,
)
from ottla.records.arrow import from_arrow, to_arrow
from ottla.records.batch import (
    DECOMPRESSED_BYTES_MAX,
    HEADER_SIZE,
    MAGIC,
    NO_TIMESTAMP,
    Batch,
    BatchHeader,
    TimestampType,
    assign_offset,
    assign_timestamp,
    batches,
    empty_batch,
    read_header,
)
from ottla.records.builder import BatchBuilder
from ottla.records.columns import (
    Column,
    Columns,
    EncodedBatch,
    Headers,
    Rows,
    decode,
    encode,
    partitions,
)
from ottla.records.compression import Compression, compress, decompress
from ottla.records.control import (
    ControlRecord,
    ControlType,
    EndTxnMarker,
    marker_batch,
    read_control,
    read_end_txn_marker,
)
from ottla.records.errors import (
    ColumnsTooLarge,
    CorruptCompression,
    CorruptRecords,
    DecompressionLimitExceeded,
    InvalidRecords,
    UnsupportedMagic,
)
from ottla.records.validation import TopicRules, ValidBatch, validate

__all__ = [
    "COMPILED",
    "DECOMPRESSED_BYTES_MAX",
    "HEADER_SIZE",
    "MAGIC",
    "NOT_PAIRS",
    "NO_TIMESTAMP",
    "RECORD_OVERHEAD_MAX",
    "Batch",
    "BatchBuilder",
    "BatchHeader",
    "Column",
    "Columns",
    "ColumnsTooLarge",
    "Compression",
    "ControlRecord",
    "ControlType",
    "CorruptCompression",
    "CorruptRecords",
    "DecompressionLimitExceeded",
    "EncodedBatch",
    "EndTxnMarker",
    "Headers",
    "InvalidRecords",
    "Record",
    "RecordReader",
    "RecordRef",
    "Rows",
    "TimestampType",
    "TopicRules",
    "UnsupportedMagic",
    "ValidBatch",
    "assign_offset",
    "assign_timestamp",
    "batches",
    "compress",
    "count_records",
    "decode",
    "decompress",
    "empty_batch",
    "encode",
    "from_arrow",
    "marker_batch",
    "murmur2",
    "not_bytes_error",
    "partitions",
    "read_control",
    "read_end_txn_marker",
    "read_header",
    "to_arrow",
    "validate",
]
