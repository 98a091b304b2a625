"""Arrow columns that callers pass in: the buffers of arrays of binary, lists and timestamps.

Invariant: a column has an offset and a validity bit for each of its rows; the constructors check
that. The values of the offsets may be wrong: `cell_size` checks those of a row before its bytes are
read.

The functions that other modules inline have their C bodies in columns.pxd.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from ottla.records._kernel import cython_stub as cython

if not cython.compiled:
    from ottla.records._kernel.buffers import BufferView, get32, get64

    def bit_at(bits, index):
        """Return a bit of an Arrow bitmap; the lowest bit of a byte comes first."""
        return (bits[index >> 3] >> (index & 7)) & 1 != 0

    def offset_at(offsets, row, large):
        """Load an offset, of 64 bits if the column is large."""
        return get64(offsets, row) if large else get32(offsets, row)

    def cell_begin(column, row):
        """Return the position of a row's bytes, which `cell_size` has checked."""
        return offset_at(column.offsets_at, column.start + row, column.large)

    def cell_size(column, row):
        """Return the size of a row's bytes: -1 for null, -2 if its offsets are outside the data."""
        if column is None:
            return -1
        if column.nullable and not bit_at(column.validity_at, column.start + row):
            return -1
        begin = offset_at(column.offsets_at, column.start + row, column.large)
        end = offset_at(column.offsets_at, column.start + row + 1, column.large)
        if begin < 0 or end < begin or end > column.data_size:
            return -2
        return end - begin


@cython.cfunc
def _offsets_view(
    offsets, start: cython.Py_ssize_t, length: cython.Py_ssize_t, large: cython.bint
) -> BufferView:
    """Return a view of the offsets of a column: one more than it has rows."""
    view: BufferView = BufferView(offsets)
    # A division, because the product of a large row number would overflow.
    if start < 0 or length < 0 or start > (view.size >> (3 if large else 2)) - 1 - length:
        raise ValueError(
            f"column of {length} rows from {start} on: {view.size} bytes of offsets are too few"
        )
    return view


@cython.cfunc
def _validity_view(
    validity, start: cython.Py_ssize_t, length: cython.Py_ssize_t
) -> BufferView | None:
    """Return a view of the validity bits of a column; None if it has none."""
    if validity is None:
        return None
    view: BufferView = BufferView(validity)
    if start + length > view.size * 8:
        raise ValueError(
            f"column of {length} rows from {start} on: {view.size * 8} validity bits are too few"
        )
    return view


@cython.final
@cython.cclass
class BinaryColumn:
    """The buffers of an Arrow array of binary or string, or of their large forms."""

    def __init__(
        self,
        offsets,
        data,
        validity,
        length: cython.Py_ssize_t,
        start: cython.Py_ssize_t = 0,
        large: cython.bint = False,
    ):
        self.offsets = _offsets_view(offsets, start, length, large)
        self.offsets_at = self.offsets.at
        self.data = BufferView(data)
        self.data_at = self.data.at
        self.data_size = self.data.size
        self.validity = _validity_view(validity, start, length)
        self.nullable = self.validity is not None
        if self.nullable:
            self.validity_at = self.validity.at
        self.length = length
        self.start = start
        self.large = large


@cython.final
@cython.cclass
class HeaderColumn:
    """The buffers of an Arrow array of lists of headers: a column of keys and one of values."""

    def __init__(
        self,
        offsets,
        validity,
        keys: BinaryColumn,
        values: BinaryColumn,
        length: cython.Py_ssize_t,
        start: cython.Py_ssize_t = 0,
        large: cython.bint = False,
    ):
        self.offsets = _offsets_view(offsets, start, length, large)
        self.offsets_at = self.offsets.at
        self.validity = _validity_view(validity, start, length)
        self.nullable = self.validity is not None
        if self.nullable:
            self.validity_at = self.validity.at
        self.keys = keys
        self.values = values
        self.length = length
        self.start = start
        self.large = large


@cython.final
@cython.cclass
class TimestampColumn:
    """The values of an Arrow array of 64-bit timestamps, in milliseconds."""

    def __init__(self, values, length: cython.Py_ssize_t):
        self.values = BufferView(values)
        self.length = length
        if length < 0 or length > self.values.size >> 3:
            raise ValueError(f"{self.values.size} bytes of timestamps for {length} rows")
