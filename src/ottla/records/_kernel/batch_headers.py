"""Reads the headers of consecutive record batches; loads and stores big-endian integers."""

from __future__ import annotations

try:
    import cython
except ImportError:
    from ottla.records._kernel import cython_stub as cython

if not cython.compiled:
    from ottla.records._kernel.buffers import BufferView
    from ottla.records._kernel.constants import HEADER_SIZE, LENGTH_END

    def big_endian(p, at, size):
        """Load a signed big-endian integer of `size` bytes."""
        return int.from_bytes(p[at : at + size], "big", signed=True)

    def unsigned32(p, at):
        """Load an unsigned big-endian integer of 32 bits."""
        return int.from_bytes(p[at : at + 4], "big")

    def put_big_endian(out, at, value, size):
        """Store a signed big-endian integer of `size` bytes."""
        out[at : at + size] = value.to_bytes(size, "big", signed=True)


def count_records(data):
    """Sum the record counts in the headers of complete batches; nothing is checked."""
    view: BufferView = BufferView(data)
    pos: cython.Py_ssize_t = 0
    length: cython.longlong
    count: cython.longlong = 0
    while pos + HEADER_SIZE <= view.size:
        length = unsigned32(view.at, pos + 8)
        if length < HEADER_SIZE - LENGTH_END:
            break
        count += unsigned32(view.at, pos + 57)
        pos += LENGTH_END + length
    return count


@cython.cfunc
def _header_fields(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> tuple:
    """Return the fields of the batch header at a position."""
    return (
        big_endian(p, at, 8),
        big_endian(p, at + 8, 4),
        big_endian(p, at + 12, 4),
        p[at + 16],
        unsigned32(p, at + 17),
        big_endian(p, at + 21, 2),
        big_endian(p, at + 23, 4),
        big_endian(p, at + 27, 8),
        big_endian(p, at + 35, 8),
        big_endian(p, at + 43, 8),
        big_endian(p, at + 51, 2),
        big_endian(p, at + 53, 4),
        big_endian(p, at + 57, 4),
    )


def split_batches(data, kind, header):
    """Return the valid batches at the start of `data`, and the position after the last.

    A batch is valid if it is complete and its header passes the checks of `read_header`. `kind` is
    the class of batches: its objects get the attributes `data` and `header`, without a call of the
    constructor. `header` is the tuple type of headers.
    """
    view: BufferView = BufferView(data)
    window = memoryview(data)
    p: cython.p_const_uchar = view.at
    at: cython.Py_ssize_t = 0
    length: cython.longlong
    delta: cython.longlong
    base: cython.longlong
    found: list = []
    while at <= view.size - HEADER_SIZE:
        length = big_endian(p, at + 8, 4)
        base = big_endian(p, at, 8)
        delta = big_endian(p, at + 23, 4)
        if (
            p[at + 16] != 2
            or length < HEADER_SIZE - LENGTH_END
            or length > view.size - at - LENGTH_END
            or delta < 0
            or base < 0
            or base > 0x7FFFFFFFFFFFFFFE - delta
        ):
            break
        batch = kind.__new__(kind)
        batch.data = window[at : at + LENGTH_END + length]
        batch.header = tuple.__new__(header, _header_fields(p, at))
        found.append(batch)
        at += LENGTH_END + length
    return found, at


def scan_batch_headers(
    data,
    at: cython.Py_ssize_t,
    expected: cython.longlong,
    limit: cython.longlong,
    header,
    crc32c,
):
    """Read the headers of consecutive valid batches from position `at` on.

    Return the headers and the position after the last of these batches. A batch is valid if it is
    complete, its CRC matches, its base offset follows the batch before it (`expected` for the
    first), and its last offset is below `limit`. The scan stops at any other batch. `header` is the
    tuple type to create.
    """
    view: BufferView = BufferView(data)
    window = memoryview(data)
    p: cython.p_const_uchar = view.at
    length: cython.longlong
    delta: cython.longlong
    crc: cython.longlong
    found: list = []
    # So that neither the difference below nor the next offset overflows.
    if expected < 0 or limit < expected:
        return found, at
    while 0 <= at <= view.size - HEADER_SIZE:
        length = big_endian(p, at + 8, 4)
        delta = big_endian(p, at + 23, 4)
        if (
            p[at + 16] != 2
            or length < HEADER_SIZE - LENGTH_END
            or length > view.size - at - LENGTH_END
            or big_endian(p, at, 8) != expected
            or delta < 0
            or delta >= limit - expected
        ):
            break
        crc = unsigned32(p, at + 17)
        if crc32c(window[at + 21 : at + LENGTH_END + length]) != crc:
            break
        found.append(tuple.__new__(header, _header_fields(p, at)))
        at += LENGTH_END + length
        expected += delta + 1
    return found, at
