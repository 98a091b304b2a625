# C declarations of batch_headers.py, with the bodies of the functions that other modules inline. The
# Python versions of these functions are in batch_headers.py.

from ottla.records._kernel.buffers cimport BufferView
from ottla.records._kernel.constants cimport HEADER_SIZE, LENGTH_END

cdef inline long long big_endian(const unsigned char* p, Py_ssize_t at, int size) noexcept:
    cdef long long value = (p[at] ^ 0x80) - 0x80
    cdef int index
    for index in range(1, size):
        value = value * 256 + p[at + index]
    return value

cdef inline long long unsigned32(const unsigned char* p, Py_ssize_t at) noexcept:
    cdef long long value = p[at]
    return value << 24 | p[at + 1] << 16 | p[at + 2] << 8 | p[at + 3]

cdef inline void put_big_endian(
    unsigned char* out, Py_ssize_t at, long long value, int size
) noexcept:
    while size > 0:
        size -= 1
        out[at + size] = value & 0xFF
        value >>= 8
