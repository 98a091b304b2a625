# C declarations of json_columns.py, with the bodies of the functions that have another form in
# Python. Python can read the `readonly` fields only.

from libc.string cimport memcmp, memcpy

from ottla.records._kernel.buffers cimport (
    copy_bytes,
    get32,
    is_utf8_text,
    pointer,
    put32,
    put64,
    reserve,
    resize,
)
from ottla.records._kernel.columns cimport BinaryColumn, cell_begin, cell_size
from ottla.records._kernel.constants cimport (
    INT32_MAX,
    JSON_BOOLEAN,
    JSON_DATE,
    JSON_DOUBLE,
    JSON_EXPONENT_MAX,
    JSON_INT,
    JSON_LONG,
    JSON_NUMBER_SIZE_MAX,
    JSON_OTHER,
    JSON_STRING,
    JSON_TIMESTAMP,
)

cdef extern from "Python.h":
    double PyOS_string_to_double(const char* text, char** end, object error) except? -1.0

cdef class JsonField:
    cdef int kind
    cdef bint required
    cdef bytes quoted
    cdef const unsigned char* quoted_at
    cdef Py_ssize_t quoted_size
    cdef bytearray validity, offsets, data
    cdef Py_ssize_t size
    cdef long long number

cdef inline const unsigned char* bytes_pointer(bytes part) noexcept:
    return <const unsigned char*> part

cdef inline bint has_bytes(
    const unsigned char* p, Py_ssize_t at, Py_ssize_t end, const unsigned char* part, Py_ssize_t size
) noexcept:
    return end - at >= size and memcmp(p + at, part, size) == 0

cdef inline void set_bit(unsigned char* out, Py_ssize_t bit) noexcept:
    out[bit >> 3] |= 1 << (bit & 7)

cdef inline void put_double(unsigned char* out, Py_ssize_t index, double value) noexcept:
    (<double*> out)[index] = value

cdef inline double parsed_double(const unsigned char* p, Py_ssize_t at, Py_ssize_t size) except? -1.0:
    cdef char[64] text  # JSON_NUMBER_SIZE_MAX and a NUL
    memcpy(text, p + at, size)
    text[size] = 0
    return PyOS_string_to_double(text, NULL, None)
