"""Hashes keys to partitions as the Java producer does, with murmur2."""

from __future__ import annotations

try:
    import cython
except ImportError:
    from ottla.records._kernel import cython_stub as cython

if not cython.compiled:
    from ottla.records._kernel.buffers import BufferView, as_bytes, pointer, put32
    from ottla.records._kernel.columns import BinaryColumn, cell_begin, cell_size
    from ottla.records._kernel.constants import INT32_MAX


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _times(value: cython.uint) -> cython.uint:
    """Multiply by the constant of murmur2, in 32 bits."""
    return value * 0x5BD1E995 if cython.compiled else value * 0x5BD1E995 & 0xFFFFFFFF


@cython.cfunc
@cython.exceptval(check=False)
def _murmur2(
    p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.uint:
    """Return the unsigned murmur2 hash of p[at:at + size]."""
    end: cython.Py_ssize_t = at + (size & ~3)
    left: cython.int = size & 3
    k: cython.uint
    byte: cython.uint
    seed: cython.uint = 0x9747B28C
    h: cython.uint = seed ^ cython.cast(cython.uint, size) if cython.compiled else seed ^ size
    while at < end:
        byte = p[at + 3]
        k = p[at] | (p[at + 1] << 8) | (p[at + 2] << 16) | (byte << 24)
        k = _times(k)
        k ^= k >> 24
        h = _times(h) ^ _times(k)
        at += 4
    if left == 3:
        h ^= p[at + 2] << 16
    if left >= 2:
        h ^= p[at + 1] << 8
    if left >= 1:
        h = _times(h ^ p[at])
    h = _times(h ^ (h >> 13))
    return h ^ (h >> 15)


@cython.cfunc
def partition_of(key: bytes, count: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the partition of a key in a topic with `count` partitions."""
    hashed: cython.Py_ssize_t = _murmur2(key, 0, len(key)) & 0x7FFFFFFF
    return hashed % count


def murmur2(data):
    """Return the murmur2 hash of a key as a signed number, as in Java."""
    view: BufferView = BufferView(as_bytes(data))
    hashed: cython.longlong = _murmur2(view.at, 0, view.size)
    return hashed - 0x100000000 if hashed >> 31 else hashed


def partitions(keys: BinaryColumn, count: cython.longlong):
    """Return the partition of each key as a 32-bit number; -1 for a null key."""
    row: cython.Py_ssize_t
    size: cython.longlong
    hashed: cython.longlong
    if not 0 < count <= INT32_MAX:
        raise ValueError(f"a topic cannot have {count} partitions")
    found: bytearray = bytearray(keys.length * 4)
    out: cython.p_uchar = pointer(found)
    for row in range(keys.length):
        size = cell_size(keys, row)
        if size < -1:
            raise ValueError(f"row {row}: the key is outside its column")
        if size < 0:
            put32(out, row, -1)
        else:
            hashed = _murmur2(keys.data_at, cell_begin(keys, row), size) & 0x7FFFFFFF
            put32(out, row, hashed % count)
    return found
