# ruff: noqa: F821 - buffers.pxd declares the C functions.
"""Buffers that the kernel reads and writes: views of callers' bytes, and bytearrays that grow.

A C pointer `p` is, in plain Python, a memoryview, bytes or a bytearray: `p[i]` reads the same in
both. The functions that other modules inline have their C bodies in buffers.pxd.
"""

from __future__ import annotations

from struct import pack_into, unpack_from

try:
    import cython
except ImportError:
    from ottla.records._kernel import cython_stub as cython

COMPILED = cython.compiled

if not cython.compiled:

    def as_bytes(part):
        """Return bytes and None unchanged and other buffers as bytes; TypeError for the rest."""
        if part is None or type(part) is bytes:
            return part
        return copied_bytes(part)

    def is_utf8(p, at, size):
        """Check that bytes are UTF-8 as Python and Arrow define it."""
        return bytes(p[at : at + size]).isascii() or is_utf8_text(p, at, at + size)

    def pointer(buffer):
        """Return the address of a bytearray's bytes; it is valid until the next resize."""
        return buffer

    def bytes_at(p, at, size):
        """Copy `size` bytes into a bytes object."""
        return bytes(p[at : at + size])

    def bytes_or_none(p, at, size):
        """Copy `size` bytes into a bytes object; None if the size is negative."""
        return bytes(p[at : at + size]) if size >= 0 else None

    def copy_bytes(out, to, p, at, size):
        """Copy `size` bytes from p[at] to out[to]."""
        out[to : to + size] = p[at : at + size]

    def store_bytes(out, to, part):
        """Copy a bytes object to out[to]."""
        out[to : to + len(part)] = part

    def clear_bit(out, bit):
        """Clear a bit of an Arrow bitmap, in which the lowest bit of a byte comes first."""
        out[bit >> 3] &= 0xFF ^ (1 << (bit & 7))

    def put32(out, index, value):
        """Store an element of an array of 32-bit integers, in native byte order."""
        pack_into("=i", out, index * 4, value)

    def put64(out, index, value):
        """Store an element of an array of 64-bit integers, in native byte order."""
        pack_into("=q", out, index * 8, value)

    def get32(p, index):
        """Load an element of an array of 32-bit integers, in native byte order."""
        return unpack_from("=i", p, index * 4)[0]

    def get64(p, index):
        """Load an element of an array of 64-bit integers, in native byte order."""
        return unpack_from("=q", p, index * 8)[0]


@cython.cclass
class BufferView:
    """The bytes of any contiguous buffer. The buffer cannot be resized while the view exists."""

    def __init__(self, data):
        if cython.compiled:
            if self.acquired:
                raise TypeError("the view already has a buffer")
            PyObject_GetBuffer(data, cython.address(self.buffer), PyBUF_SIMPLE)
            self.acquired = True
            self.at = cython.cast(cython.p_const_uchar, self.buffer.buf)
            self.size = self.buffer.len
        else:
            view = memoryview(data)
            if not view.c_contiguous:
                raise BufferError("the buffer is not contiguous")
            self.at = view.cast("B") if view.nbytes else b""
            self.size = view.nbytes

    def __dealloc__(self):
        if cython.compiled and self.acquired:
            PyBuffer_Release(cython.address(self.buffer))


def not_bytes_error(part):
    """Return the TypeError for a key, value or header value that is not a buffer."""
    return TypeError(
        f"a record holds bytes, not {type(part).__name__}: "
        "encode it, or give the producer a serializer for it"
    )


@cython.cfunc
def copied_bytes(part) -> bytes:
    """Copy a buffer that is not a bytes object into one."""
    try:
        return bytes(memoryview(part))
    except TypeError:
        raise not_bytes_error(part) from None


@cython.cfunc
def resize(buffer: bytearray, size: cython.Py_ssize_t):
    """Truncate the buffer, or extend it with bytes of any content."""
    if cython.compiled:
        PyByteArray_Resize(buffer, size)
    elif size > len(buffer):
        buffer.extend(bytes(size - len(buffer)))
    else:
        del buffer[size:]


@cython.cfunc
def reserve(buffer: bytearray, size: cython.Py_ssize_t):
    """Make room for `size` bytes in total. A buffer that grows, grows by half at least."""
    room: cython.Py_ssize_t = len(buffer)
    if size > room:
        resize(buffer, max(size, room + (room >> 1)))


@cython.cfunc
def reserve_bits(buffer: bytearray, bits: cython.Py_ssize_t):
    """Make room for `bits` bits in total; new bits are 1, which is a valid row in Arrow."""
    room: cython.Py_ssize_t = len(buffer)
    size: cython.Py_ssize_t = (bits + 7) >> 3
    if size > room:
        size = max(size, room + (room >> 1))
        resize(buffer, size)
        if cython.compiled:
            memset(pointer(buffer) + room, 0xFF, size - room)
        else:
            buffer[room:] = b"\xff" * (size - room)


@cython.cfunc
@cython.exceptval(check=False)
def is_utf8_text(
    p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.bint:
    """Check that p[at:end] is UTF-8 in its shortest form, without surrogates."""
    byte: cython.int
    more: cython.int
    low: cython.int
    high: cython.int
    while at < end:
        byte = p[at]
        at += 1
        if byte < 0x80:
            continue
        if byte < 0xC2 or byte > 0xF4:
            return False
        more = 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
        if more > end - at:
            return False
        # After these four first bytes the second one has narrower limits.
        low = 0xA0 if byte == 0xE0 else 0x90 if byte == 0xF0 else 0x80
        high = 0x9F if byte == 0xED else 0x8F if byte == 0xF4 else 0xBF
        if p[at] < low or p[at] > high:
            return False
        at += 1
        more -= 1
        while more > 0:
            if p[at] & 0xC0 != 0x80:
                return False
            at += 1
            more -= 1
    return True
