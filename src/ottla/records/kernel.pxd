# What the compiled kernel needs beyond its Python source: C functions and C fields. A field that
# Python may read is `readonly`; everything else is out of its reach.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcpy, memset

cdef int BAD_COUNT, BAD_LENGTH, BAD_TIMESTAMP, BAD_OFFSET, BAD_KEY, BAD_VALUE
cdef int BAD_HEADERS, BAD_HEADER_KEY, BAD_HEADER_VALUE, BAD_END, BAD_TAIL
cdef long long INT32_MAX, HEADERS_MAX, NO_TIMESTAMP

cdef class Held:
    cdef Py_buffer buffer
    cdef bint held
    cdef const unsigned char* at
    cdef Py_ssize_t size

cdef class Walk(Held):
    cdef Py_ssize_t pos, end
    cdef long long index
    cdef long long timestamp_delta, offset_delta, header_count
    cdef Py_ssize_t key_at, key_size, value_at, value_size, headers_at
    cdef Py_ssize_t header_key_at, header_key_size, header_value_at, header_value_size

cdef class Record:
    cdef readonly long long offset
    cdef readonly long long timestamp
    cdef readonly bytes key
    cdef readonly bytes value
    cdef readonly tuple headers

cdef class RecordReader(Walk):
    cdef long long count, previous, last_delta
    cdef long long base_offset, base_timestamp, append_timestamp, from_offset
    cdef bint append_time

cdef class ColumnWriter:
    cdef readonly Py_ssize_t rows, key_nulls, value_nulls
    cdef readonly Py_ssize_t headers, header_value_nulls
    cdef Py_ssize_t key_size, value_size, header_key_size, header_value_size
    cdef readonly bytearray offsets, timestamps
    cdef readonly bytearray key_offsets, key_data, key_validity
    cdef readonly bytearray value_offsets, value_data, value_validity
    cdef readonly bytearray header_offsets
    cdef readonly bytearray header_key_offsets, header_key_data
    cdef readonly bytearray header_value_offsets, header_value_data, header_value_validity

cdef class BinaryColumn:
    cdef readonly Py_ssize_t length
    cdef Py_ssize_t start
    cdef bint wide
    cdef Held offsets, data, validity

cdef class HeaderColumn:
    cdef readonly Py_ssize_t length
    cdef Py_ssize_t start
    cdef bint wide
    cdef Held offsets, validity
    cdef BinaryColumn keys, values

cdef class TimestampColumn:
    cdef readonly Py_ssize_t length
    cdef Held values

cdef class RecordOfBatch:
    cdef readonly object _batch
    cdef readonly Py_ssize_t _index


cdef class RecordAppender:
    cdef readonly long long limit, count, base_timestamp, max_timestamp
    cdef readonly Py_ssize_t size
    cdef bytearray buffer

cdef class KeyMap:
    cdef readonly Py_ssize_t slots, limit, count
    cdef unsigned long long slots_unsigned
    cdef unsigned long long secret_low, secret_high, hash_low, hash_high
    cdef bytearray table
