"""64-bit arithmetic that wraps as in Java, zigzag and unsigned varints.

integers.pxd has the same functions in C, which the compiled modules inline. This module is never
compiled.
"""


def add64(a, b):
    """Add two signed 64-bit integers; an overflow wraps."""
    total = (a + b) & 0xFFFF_FFFF_FFFF_FFFF
    return total - 0x1_0000_0000_0000_0000 if total >> 63 else total


def subtract64(a, b):
    """Subtract two signed 64-bit integers; an overflow wraps."""
    return add64(a, -b)


def zigzag(value):
    """Map 0, -1, 1, -2 … to 0, 1, 2, 3 … so that small numbers have short varints."""
    return (value << 1) ^ (value >> 63)


def unzigzag(value):
    """Reverse `zigzag` for a value of less than 64 bits."""
    return (value >> 1) ^ -(value & 1)


def uvarint_size(value):
    """Return the size in bytes of an unsigned varint."""
    size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


def put_uvarint(out, pos, value):
    """Write an unsigned varint at pos and return the position after it."""
    while value >= 0x80:
        out[pos] = (value & 0x7F) | 0x80
        value >>= 7
        pos += 1
    out[pos] = value & 0x7F
    return pos + 1
