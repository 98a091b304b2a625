# C declarations of buffers.py, with the bodies of the functions that other modules inline. The
# Python versions of these functions are in buffers.py.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcpy, memset

cdef class BufferView:
    cdef Py_buffer buffer
    cdef bint acquired
    cdef const unsigned char* at
    cdef Py_ssize_t size

cdef bytes copied_bytes(part)
cdef bint is_utf8_text(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef resize(bytearray buffer, Py_ssize_t size)
cdef reserve(bytearray buffer, Py_ssize_t size)
cdef reserve_bits(bytearray buffer, Py_ssize_t bits)

cdef inline bytes as_bytes(part):
    if part is None or type(part) is bytes:
        return part
    return copied_bytes(part)

# Loads that overlap at the end instead of a loop over single bytes: a mispredicted branch costs more
# than all of the comparison.
cdef inline bint is_ascii(const unsigned char* p, Py_ssize_t size) noexcept:
    cdef unsigned long long word, found = 0
    cdef unsigned int half
    cdef Py_ssize_t at = 0
    if size >= 8:
        while at < size - 8:
            memcpy(&word, p + at, 8)
            found |= word
            at += 8
        memcpy(&word, p + size - 8, 8)
        found |= word
    elif size >= 4:
        memcpy(&half, p, 4)
        found = half
        memcpy(&half, p + size - 4, 4)
        found |= half
    elif size > 0:
        found = p[0] | p[size >> 1] | p[size - 1]
    return found & 0x8080808080808080ULL == 0

cdef inline bint is_utf8(const unsigned char* p, Py_ssize_t at, Py_ssize_t size) noexcept:
    return is_ascii(p + at, size) or is_utf8_text(p, at, at + size)

cdef inline unsigned char* pointer(bytearray buffer) noexcept:
    return <unsigned char*> PyByteArray_AS_STRING(buffer)

cdef inline bytes bytes_at(const unsigned char* p, Py_ssize_t at, Py_ssize_t size):
    return PyBytes_FromStringAndSize(<const char*> p + at, size)

cdef inline bytes bytes_or_none(const unsigned char* p, Py_ssize_t at, Py_ssize_t size):
    if size < 0:
        return None
    return PyBytes_FromStringAndSize(<const char*> p + at, size)

cdef inline void copy_bytes(
    unsigned char* out,
    Py_ssize_t to,
    const unsigned char* p,
    Py_ssize_t at,
    Py_ssize_t size,
) noexcept:
    memcpy(out + to, p + at, size)

cdef inline void store_bytes(unsigned char* out, Py_ssize_t to, bytes part) noexcept:
    memcpy(out + to, PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part))

cdef inline void clear_bit(unsigned char* out, Py_ssize_t bit) noexcept:
    out[bit >> 3] &= 0xFF ^ (1 << (bit & 7))

cdef inline void put32(unsigned char* out, Py_ssize_t index, Py_ssize_t value) noexcept:
    (<int*> out)[index] = <int> value

cdef inline void put64(unsigned char* out, Py_ssize_t index, long long value) noexcept:
    (<long long*> out)[index] = value

# The buffer of a caller may be unaligned, hence memcpy.

cdef inline long long get32(const unsigned char* p, Py_ssize_t index) noexcept:
    cdef int value = 0
    memcpy(&value, p + index * 4, 4)
    return value

cdef inline long long get64(const unsigned char* p, Py_ssize_t index) noexcept:
    cdef long long value = 0
    memcpy(&value, p + index * 8, 8)
    return value
