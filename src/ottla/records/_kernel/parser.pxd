# C declarations of parser.py.

from ottla.records._kernel.buffers cimport BufferView
from ottla.records._kernel.constants cimport (
    BAD_COUNT,
    BAD_END,
    BAD_HEADER_KEY,
    BAD_HEADER_VALUE,
    BAD_HEADERS,
    BAD_KEY,
    BAD_LENGTH,
    BAD_OFFSET,
    BAD_TAIL,
    BAD_TIMESTAMP,
    BAD_VALUE,
    HEADERS_MAX,
    NO_TIMESTAMP,
    RECORD_SIZE_MIN,
)
from ottla.records._kernel.integers cimport add64, unzigzag

cdef class RecordParser(BufferView):
    cdef Py_ssize_t pos, end
    cdef long long index
    cdef long long timestamp_delta, offset_delta, header_count
    cdef Py_ssize_t key_at, key_size, value_at, value_size, headers_at
    cdef Py_ssize_t header_key_at, header_key_size, header_value_at, header_value_size

cdef long long decode_varint(const unsigned char* p, Py_ssize_t pos, Py_ssize_t end) noexcept
cdef int varlong_size(const unsigned char* p, Py_ssize_t pos, Py_ssize_t end) noexcept
cdef Py_ssize_t parse_header(RecordParser parser, Py_ssize_t pos, Py_ssize_t end) noexcept
cdef int parse_record(RecordParser parser) noexcept
cdef bint count_is_possible(RecordParser parser, long long count) noexcept
cdef raise_corrupt(int reason, record)
