# C declarations of encode.py. Python can read the `readonly` fields only.

from ottla.records._kernel.buffers cimport (
    as_bytes,
    copy_bytes,
    get64,
    is_utf8,
    pointer,
    reserve,
    resize,
    store_bytes,
)
from ottla.records._kernel.columns cimport (
    BinaryColumn,
    HeaderColumn,
    TimestampColumn,
    bit_at,
    cell_begin,
    cell_size,
    offset_at,
)
from ottla.records._kernel.constants cimport (
    HEADER_SIZE,
    INT32_MAX,
    NO_TIMESTAMP,
    RECORD_OVERHEAD_MAX,
)
from ottla.records._kernel.integers cimport put_uvarint, subtract64, uvarint_size, zigzag

cdef class RecordRef:
    cdef readonly object _batch
    cdef readonly Py_ssize_t _index

cdef class RecordAppender:
    cdef readonly long long limit, count, base_timestamp, max_timestamp
    cdef readonly Py_ssize_t size
    cdef readonly bint sealed
    cdef bytearray buffer

cdef bint append_record(
    RecordAppender appender, long long timestamp, bytes key_bytes, bytes value_bytes, list pairs
)
cdef list header_pairs(headers)
