# C declarations of column_builder.py. Python can read the `readonly` fields only.

from ottla.records._kernel.buffers cimport (
    bytes_at,
    clear_bit,
    copy_bytes,
    is_utf8,
    pointer,
    put32,
    put64,
    reserve,
    reserve_bits,
    resize,
    store_bytes,
)
from ottla.records._kernel.constants cimport (
    BAD_COUNT,
    BAD_OFFSET,
    BAD_TAIL,
    COMPRESSION_MASK,
    CONTROL,
    CRC_END,
    HEADER_SIZE,
    INT32_MAX,
    LOG_APPEND_TIME,
    RECORD_SIZE_MIN,
)
from ottla.records._kernel.parser cimport (
    RecordParser,
    count_is_possible,
    parse_header,
    parse_record,
    raise_corrupt,
)
from ottla.records._kernel.integers cimport add64

cdef class ColumnBuilder:
    cdef readonly Py_ssize_t rows, key_nulls, value_nulls
    cdef readonly Py_ssize_t headers, header_value_nulls
    cdef Py_ssize_t key_size, value_size, header_key_size, header_value_size
    cdef readonly bytearray offsets, timestamps
    cdef readonly bytearray key_offsets, key_data, key_validity
    cdef readonly bytearray value_offsets, value_data, value_validity
    cdef readonly bytearray header_offsets
    cdef readonly bytearray header_key_offsets, header_key_data
    cdef readonly bytearray header_value_offsets, header_value_data, header_value_validity
