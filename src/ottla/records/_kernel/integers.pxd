# The functions of integers.py in C, for the compiled modules to inline.

cdef inline long long add64(long long a, long long b) noexcept:
    return <long long> (<unsigned long long> a + <unsigned long long> b)

cdef inline long long subtract64(long long a, long long b) noexcept:
    return <long long> (<unsigned long long> a - <unsigned long long> b)

cdef inline unsigned long long zigzag(long long value) noexcept:
    return (<unsigned long long> value << 1) ^ <unsigned long long> (value >> 63)

cdef inline long long unzigzag(long long value) noexcept:
    return (value >> 1) ^ -(value & 1)

cdef inline Py_ssize_t uvarint_size(unsigned long long value) noexcept:
    cdef Py_ssize_t size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size

cdef inline Py_ssize_t put_uvarint(
    unsigned char* out, Py_ssize_t pos, unsigned long long value
) noexcept:
    while value >= 0x80:
        out[pos] = (value & 0x7F) | 0x80
        value >>= 7
        pos += 1
    out[pos] = value & 0x7F
    return pos + 1
