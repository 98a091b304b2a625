"""Encodes the records of one batch, from Python objects or from Arrow columns.

Invariant: the encoder checks the size of a record before it writes the record, so that it never
writes past its buffer. An append that fails changes nothing.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from ottla.records._kernel import cython_stub as cython

if not cython.compiled:
    from ottla.records._kernel.buffers import (
        as_bytes,
        copy_bytes,
        get64,
        is_utf8,
        pointer,
        reserve,
        resize,
        store_bytes,
    )
    from ottla.records._kernel.columns import (
        BinaryColumn,
        HeaderColumn,
        TimestampColumn,
        bit_at,
        cell_begin,
        cell_size,
        offset_at,
    )
    from ottla.records._kernel.constants import (
        HEADER_SIZE,
        INT32_MAX,
        NO_TIMESTAMP,
        RECORD_OVERHEAD_MAX,
    )
    from ottla.records._kernel.integers import put_uvarint, subtract64, uvarint_size, zigzag

    def check_timestamp(timestamp):
        """Raise OverflowError as the compiled code does when it converts the argument."""
        if not -(1 << 63) <= timestamp < 1 << 63:
            raise OverflowError(f"timestamp {timestamp} has more than 64 bits")


NOT_PAIRS = "record headers must be pairs of a name and bytes or None"


@cython.cfunc
def _headers_size(
    column: HeaderColumn, first: cython.longlong, count: cython.longlong
) -> cython.Py_ssize_t:
    """Return the encoded size of `count` headers, with their count."""
    size: cython.Py_ssize_t = uvarint_size(zigzag(count))
    keys: BinaryColumn = column.keys
    values: BinaryColumn = column.values
    row: cython.Py_ssize_t
    cell: cython.longlong
    for row in range(first, first + count):
        cell = cell_size(keys, row)
        if cell < 0 or not is_utf8(keys.data_at, cell_begin(keys, row), cell):
            raise _invalid("header", row, "key is null, not UTF-8, or outside its column")
        size += uvarint_size(zigzag(cell)) + cell
        cell = cell_size(values, row)
        if cell < -1:
            raise _invalid("header", row, "value is outside its column")
        size += uvarint_size(zigzag(cell)) + max(cell, 0)
        if size > INT32_MAX:
            raise ValueError("a record exceeds 2 GiB")
    return size


@cython.cfunc
def _invalid(what: str, row: cython.Py_ssize_t, problem: str):
    """Return the error for a row or a header that cannot be encoded."""
    return ValueError(f"{what} {row}: the {problem}")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_cell(
    out: cython.p_uchar,
    pos: cython.Py_ssize_t,
    column: BinaryColumn | None,
    row: cython.Py_ssize_t,
    size: cython.longlong,
) -> cython.Py_ssize_t:
    """Write a key or value with its length; return the position after it."""
    pos = put_uvarint(out, pos, zigzag(size))
    if size > 0:
        copy_bytes(out, pos, column.data_at, cell_begin(column, row), size)
        pos += size
    return pos


@cython.cfunc
def _put_headers(
    out: cython.p_uchar,
    pos: cython.Py_ssize_t,
    column: HeaderColumn,
    first: cython.longlong,
    count: cython.longlong,
) -> cython.Py_ssize_t:
    """Write the headers of a row; return the position after them."""
    keys: BinaryColumn = column.keys
    values: BinaryColumn = column.values
    row: cython.Py_ssize_t
    pos = put_uvarint(out, pos, zigzag(count))
    for row in range(first, first + count):
        pos = _put_cell(out, pos, keys, row, cell_size(keys, row))
        pos = _put_cell(out, pos, values, row, cell_size(values, row))
    return pos


@cython.cfunc
def _header_count(column: HeaderColumn, row: cython.Py_ssize_t) -> cython.longlong:
    """Return the number of headers of a row, after checking that their columns have them."""
    first: cython.longlong
    end: cython.longlong
    if column.nullable and not bit_at(column.validity_at, column.start + row):
        return 0
    first = offset_at(column.offsets_at, column.start + row, column.large)
    end = offset_at(column.offsets_at, column.start + row + 1, column.large)
    if not 0 <= first <= end <= column.keys.length or end > column.values.length:
        raise _invalid("row", row, "headers are outside their columns")
    return end - first


def encode_rows(
    keys: BinaryColumn | None,
    values: BinaryColumn | None,
    headers: HeaderColumn | None,
    timestamps: TimestampColumn | None,
    timestamp: cython.longlong,
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    limit: cython.Py_ssize_t,
):
    """Encode rows from `start` on while the batch has at most `limit` bytes; at least one row.

    A column that is None is all null. Without timestamps every row has `timestamp`. Return
    (buffer, next row, base timestamp, max timestamp). The buffer starts with room for a batch
    header.
    """
    if limit > INT32_MAX:
        raise ValueError(f"a batch limit of {limit} bytes exceeds 2 GiB")
    appender: RecordAppender = RecordAppender(max(0, limit))
    row: cython.Py_ssize_t = _append_rows(
        appender, keys, values, headers, timestamps, timestamp, start, stop
    )
    buffer: bytearray = appender.buffer
    resize(buffer, appender.size)
    return buffer, row, appender.base_timestamp, appender.max_timestamp


def find_oversized_row(
    keys: BinaryColumn | None,
    values: BinaryColumn | None,
    headers: HeaderColumn | None,
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    limit: cython.longlong,
):
    """Find the first row that may exceed `limit` bytes in a batch of its own.

    Return the row and that size; (stop, 0) if there is none. Raise ValueError for a row that cannot
    be encoded.
    """
    row: cython.Py_ssize_t
    size: cython.longlong
    key_size: cython.longlong
    value_size: cython.longlong
    count: cython.longlong
    overhead: cython.longlong = HEADER_SIZE + RECORD_OVERHEAD_MAX
    _check_range(start, stop)
    for column in (keys, values, headers):
        if column is not None and column.length < stop:
            raise _too_few_rows(column.length, stop)
    for row in range(start, stop):
        key_size = cell_size(keys, row)
        value_size = cell_size(values, row)
        if key_size < -1 or value_size < -1:
            raise _invalid("row", row, "key or the value is outside its column")
        size = overhead + max(key_size, 0) + max(value_size, 0)
        count = _header_count(headers, row) if headers is not None else 0
        if count > 0:
            size += _headers_size(
                headers, offset_at(headers.offsets_at, headers.start + row, headers.large), count
            )
        if size > limit:
            return row, size
    return stop, 0


@cython.cfunc
def _check_range(start: cython.Py_ssize_t, stop: cython.Py_ssize_t):
    """Raise ValueError unless [start, stop) is a range of rows."""
    if start < 0 or start > stop:
        raise ValueError(f"[{start}, {stop}) is not a range of rows")


@cython.cfunc
def _too_few_rows(length: cython.Py_ssize_t, stop: cython.Py_ssize_t):
    """Return the error for a column that is shorter than the rows to encode."""
    return ValueError(f"a column has {length} rows, {stop} are needed")


@cython.cfunc
def _append_rows(
    appender: RecordAppender,
    keys: BinaryColumn | None,
    values: BinaryColumn | None,
    headers: HeaderColumn | None,
    timestamps: TimestampColumn | None,
    timestamp: cython.longlong,
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Append rows from `start` on while they fit; return the row after the last one appended."""
    row: cython.Py_ssize_t = start
    pos: cython.Py_ssize_t = appender.size
    limit: cython.longlong = appender.limit
    delta: cython.longlong = appender.count
    base_timestamp: cython.longlong = appender.base_timestamp
    max_timestamp: cython.longlong = appender.max_timestamp
    body: cython.longlong
    total: cython.longlong
    key_size: cython.longlong
    value_size: cython.longlong
    headers_size: cython.longlong
    header_first: cython.longlong
    header_count: cython.longlong
    timestamp_zigzag: cython.ulonglong
    if appender.sealed:
        return start
    _check_range(start, stop)
    for column in (keys, values, headers, timestamps):
        if column is not None and column.length < stop:
            raise _too_few_rows(column.length, stop)
    buffer: bytearray = appender.buffer
    # An estimate that is large enough for most batches of small records.
    reserve(buffer, pos + 256 + max(0, min(limit - pos, min(stop - start, limit) * 160)))
    room: cython.Py_ssize_t = len(buffer)
    out: cython.p_uchar = pointer(buffer)
    while row < stop:
        if timestamps is not None:
            timestamp = get64(timestamps.values.at, row)
        if delta == 0:
            base_timestamp = max_timestamp = timestamp
        key_size = cell_size(keys, row)
        value_size = cell_size(values, row)
        if key_size < -1 or value_size < -1:
            raise _invalid("row", row, "key or the value is outside its column")
        header_first = 0
        headers_size = 1
        header_count = _header_count(headers, row) if headers is not None else 0
        if header_count > 0:
            header_first = offset_at(headers.offsets_at, headers.start + row, headers.large)
            headers_size = _headers_size(headers, header_first, header_count)
        timestamp_zigzag = zigzag(subtract64(timestamp, base_timestamp))
        body = 1 + uvarint_size(timestamp_zigzag) + uvarint_size(zigzag(delta))
        body += uvarint_size(zigzag(key_size)) + (key_size if key_size > 0 else 0)
        body += uvarint_size(zigzag(value_size)) + (value_size if value_size > 0 else 0)
        body += headers_size
        total = body + uvarint_size(zigzag(body))
        if pos + total > limit and delta > 0:
            break
        if pos + total > INT32_MAX:
            raise _invalid("row", row, "record exceeds 2 GiB")
        if pos + total > room:
            reserve(buffer, pos + total)
            out = pointer(buffer)
            room = len(buffer)
        pos = put_uvarint(out, pos, zigzag(body))
        out[pos] = 0
        pos = put_uvarint(out, pos + 1, timestamp_zigzag)
        pos = put_uvarint(out, pos, zigzag(delta))
        pos = _put_cell(out, pos, keys, row, key_size)
        pos = _put_cell(out, pos, values, row, value_size)
        if header_count > 0:
            pos = _put_headers(out, pos, headers, header_first, header_count)
        else:
            out[pos] = 0
            pos += 1
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        row += 1
        delta += 1
    appender.size = pos
    appender.count = delta
    appender.base_timestamp = base_timestamp
    appender.max_timestamp = max_timestamp
    return row


@cython.cclass
class RecordAppender:
    """The encoded records of one batch; `size` includes the batch header.

    An append that would exceed the limit changes nothing and returns False. The first record is
    accepted at any size. `buffer` is memory to encode into: what `release` of another appender has
    returned.
    """

    def __init__(self, limit, buffer=None):
        if not 0 <= limit <= INT32_MAX:
            raise ValueError(f"a batch limit must be between 0 and 2 GiB, not {limit}")
        self.limit = limit
        self.count = 0
        self.base_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.size = HEADER_SIZE
        self.sealed = False
        if buffer is None or len(buffer) < HEADER_SIZE:
            buffer = bytearray(min(limit, 16384) + HEADER_SIZE)
        self.buffer = buffer

    def append(self, timestamp: cython.longlong, key, value, headers=()):
        """Append a record; return False if it does not fit."""
        if not cython.compiled:
            check_timestamp(timestamp)
        pairs: list | None = header_pairs(headers) if headers else None
        return append_record(self, timestamp, as_bytes(key), as_bytes(value), pairs)

    def extend(self, timestamp: cython.longlong, key, values: list, start: cython.Py_ssize_t = 0):
        """Append a record with this key for each value from `start` on; return how many fit."""
        if not cython.compiled:
            check_timestamp(timestamp)
        if start < 0:
            raise ValueError(f"the index of a value cannot be {start}")
        key_bytes: bytes | None = as_bytes(key)
        index: cython.Py_ssize_t = start
        while index < len(values):
            if not append_record(self, timestamp, key_bytes, as_bytes(values[index]), None):
                break
            index += 1
        return index - start

    def append_rows(
        self,
        keys: BinaryColumn | None,
        values: BinaryColumn | None,
        headers: HeaderColumn | None,
        timestamps: TimestampColumn,
        start: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
    ):
        """Append rows from `start` on while they fit; return the row after the last one."""
        return _append_rows(self, keys, values, headers, timestamps, 0, start, stop)

    def encoded(self):
        """Return a copy of the encoded batch; its first 61 bytes are room for the header."""
        return self.buffer[: self.size]

    def seal_encoded(self):
        """Accept no more records; return a view of the encoded batch, without a copy."""
        self.sealed = True
        return memoryview(self.buffer)[: self.size]

    def seal(self):
        """Accept no more records: every later append returns False."""
        self.sealed = True

    def release(self):
        """Accept no more records and return the buffer; `size` and `count` keep their values."""
        buffer = self.buffer
        self.sealed = True
        self.limit = 0
        self.buffer = bytearray()
        return buffer


@cython.cclass
class RecordRef:
    """A reference to a record of a batch, by its index.

    A producer creates one per record, so it is compiled: a base class for what `send` returns.
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch, index: cython.Py_ssize_t):
        self._batch = batch
        self._index = index


@cython.cfunc
def append_record(
    appender: RecordAppender,
    timestamp: cython.longlong,
    key_bytes: bytes | None,
    value_bytes: bytes | None,
    pairs: list | None,
) -> cython.bint:
    """Append a record; return False and change nothing if it does not fit."""
    if appender.sealed:
        return False
    key_size: cython.longlong = -1 if key_bytes is None else len(key_bytes)
    value_size: cython.longlong = -1 if value_bytes is None else len(value_bytes)
    first: cython.bint = appender.count == 0
    timestamp_zigzag: cython.ulonglong = 0
    if not first:
        timestamp_zigzag = zigzag(subtract64(timestamp, appender.base_timestamp))
    body: cython.longlong = 1 + uvarint_size(timestamp_zigzag)
    body += uvarint_size(zigzag(appender.count))
    body += uvarint_size(zigzag(key_size)) + (key_size if key_size > 0 else 0)
    body += uvarint_size(zigzag(value_size)) + (value_size if value_size > 0 else 0)
    body += 1 if pairs is None else _pairs_size(pairs)
    total: cython.longlong = body + uvarint_size(zigzag(body))
    pos: cython.Py_ssize_t = appender.size
    if pos + total > appender.limit and not first:
        return False
    if pos + total > INT32_MAX:
        raise ValueError("a record exceeds 2 GiB")
    room: cython.longlong = len(appender.buffer)
    if pos + total > room:
        # Not beyond the limit by growing: the buffer is as large as a full batch in the end.
        resize(appender.buffer, max(pos + total, min(room + (room >> 1), appender.limit)))
    out: cython.p_uchar = pointer(appender.buffer)
    pos = put_uvarint(out, pos, zigzag(body))
    out[pos] = 0
    pos = put_uvarint(out, pos + 1, timestamp_zigzag)
    pos = put_uvarint(out, pos, zigzag(appender.count))
    pos = _put_bytes(out, pos, key_bytes)
    pos = _put_bytes(out, pos, value_bytes)
    if pairs is None:
        out[pos] = 0
        pos += 1
    else:
        pos = _put_pairs(out, pos, pairs)
    appender.size = pos
    appender.count += 1
    if first:
        appender.base_timestamp = timestamp
    if first or timestamp > appender.max_timestamp:
        appender.max_timestamp = timestamp
    return True


@cython.cfunc
@cython.inline
def _put_bytes(
    out: cython.p_uchar, pos: cython.Py_ssize_t, part: bytes | None
) -> cython.Py_ssize_t:
    """Write a key or value with its length; return the position after it."""
    size: cython.Py_ssize_t
    if part is None:
        out[pos] = 1  # the varint of -1
        return pos + 1
    size = len(part)
    pos = put_uvarint(out, pos, zigzag(size))
    store_bytes(out, pos, part)
    return pos + size


@cython.cfunc
def header_pairs(headers) -> list:
    """Convert headers to a list of (key, value) in bytes."""
    pairs: list = []
    for pair in headers:
        if type(pair) is str or len(pair) != 2:
            raise TypeError(NOT_PAIRS)
        pairs.append((pair[0].encode("utf-8"), as_bytes(pair[1])))
    return pairs


@cython.cfunc
def _pairs_size(pairs: list) -> cython.Py_ssize_t:
    """Return the encoded size of headers, with their count."""
    size: cython.Py_ssize_t = uvarint_size(zigzag(len(pairs)))
    part: bytes | None
    length: cython.Py_ssize_t
    for pair in pairs:
        for part in pair:
            length = -1 if part is None else len(part)
            size += uvarint_size(zigzag(length)) + max(length, 0)
    return size


@cython.cfunc
def _put_pairs(out: cython.p_uchar, pos: cython.Py_ssize_t, pairs: list) -> cython.Py_ssize_t:
    """Write headers with their count; return the position after them."""
    part: bytes | None
    pos = put_uvarint(out, pos, zigzag(len(pairs)))
    for pair in pairs:
        for part in pair:
            pos = _put_bytes(out, pos, part)
    return pos


def write_varint(value):
    """Encode a number of at most 32 bits as a zigzag varint."""
    if not -0x80000000 <= value <= 0x7FFFFFFF:
        raise OverflowError(f"{value} does not fit into a varint of 32 bits")
    return write_varlong(value)


def write_varlong(value):
    """Encode a number of at most 64 bits as a zigzag varint."""
    if not -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        raise OverflowError(f"{value} does not fit into a varlong of 64 bits")
    out: bytearray = bytearray(10)
    size: cython.Py_ssize_t = put_uvarint(pointer(out), 0, zigzag(value))
    return bytes(out[:size])
