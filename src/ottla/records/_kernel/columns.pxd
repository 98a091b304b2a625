# C declarations of columns.py, with the bodies of the functions that other modules inline. The
# Python versions of these functions are in columns.py.

from ottla.records._kernel.buffers cimport BufferView, get32, get64

cdef class BinaryColumn:
    cdef readonly Py_ssize_t length
    cdef Py_ssize_t start
    cdef bint large, nullable
    cdef BufferView offsets, data, validity
    cdef const unsigned char* offsets_at
    cdef const unsigned char* data_at
    cdef const unsigned char* validity_at
    cdef Py_ssize_t data_size

cdef class HeaderColumn:
    cdef readonly Py_ssize_t length
    cdef Py_ssize_t start
    cdef bint large, nullable
    cdef BufferView offsets, validity
    cdef const unsigned char* offsets_at
    cdef const unsigned char* validity_at
    cdef BinaryColumn keys, values

cdef class TimestampColumn:
    cdef readonly Py_ssize_t length
    cdef BufferView values

cdef inline bint bit_at(const unsigned char* bits, Py_ssize_t index) noexcept:
    return (bits[index >> 3] >> (index & 7)) & 1 != 0

cdef inline long long offset_at(
    const unsigned char* offsets, Py_ssize_t row, bint large
) noexcept:
    return get64(offsets, row) if large else get32(offsets, row)

cdef inline Py_ssize_t cell_begin(BinaryColumn column, Py_ssize_t row) noexcept:
    return offset_at(column.offsets_at, column.start + row, column.large)

cdef inline long long cell_size(BinaryColumn column, Py_ssize_t row) noexcept:
    cdef long long begin, end
    if column is None:
        return -1
    if column.nullable and not bit_at(column.validity_at, column.start + row):
        return -1
    begin = offset_at(column.offsets_at, column.start + row, column.large)
    end = offset_at(column.offsets_at, column.start + row + 1, column.large)
    if begin < 0 or end < begin or end > column.data_size:
        return -2
    return end - begin
