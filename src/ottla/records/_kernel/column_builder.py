"""Decodes the records of batches into Arrow columns."""

from __future__ import annotations

from ottla.records.errors import ColumnsTooLarge, CorruptRecords

try:
    import cython
except ImportError:
    from ottla.records._kernel import cython_stub as cython

if not cython.compiled:
    from ottla.records._kernel.buffers import (
        bytes_at,
        clear_bit,
        copy_bytes,
        is_utf8,
        pointer,
        put32,
        put64,
        reserve,
        reserve_bits,
        resize,
        store_bytes,
    )
    from ottla.records._kernel.constants import (
        BAD_COUNT,
        BAD_OFFSET,
        BAD_TAIL,
        COMPRESSION_MASK,
        CONTROL,
        CRC_END,
        HEADER_SIZE,
        INT32_MAX,
        LOG_APPEND_TIME,
        RECORD_SIZE_MIN,
    )
    from ottla.records._kernel.integers import add64
    from ottla.records._kernel.parser import (
        RecordParser,
        count_is_possible,
        parse_header,
        parse_record,
        raise_corrupt,
    )


@cython.final
@cython.cclass
class ColumnBuilder:
    """Builds the buffers of Arrow columns, batch by batch; `finish` completes them.

    Until then a buffer may be longer than its content. A corrupt batch leaves the columns
    unchanged.
    """

    def __init__(self):
        self.rows = self.key_nulls = self.value_nulls = 0
        self.headers = self.header_value_nulls = 0
        self.key_size = self.value_size = self.header_key_size = self.header_value_size = 0
        self.offsets = bytearray()
        self.timestamps = bytearray()
        self.key_offsets = bytearray(4)
        self.key_data = bytearray()
        self.key_validity = bytearray()
        self.value_offsets = bytearray(4)
        self.value_data = bytearray()
        self.value_validity = bytearray()
        self.header_offsets = bytearray(4)
        self.header_key_offsets = bytearray(4)
        self.header_key_data = bytearray()
        self.header_value_offsets = bytearray(4)
        self.header_value_data = bytearray()
        self.header_value_validity = bytearray()
        _reserve_rows(self, 0)

    def append_batch(
        self,
        data,
        count: cython.longlong,
        last_delta: cython.longlong,
        base_offset: cython.longlong,
        base_timestamp: cython.longlong,
        append_timestamp=None,
        from_offset: cython.longlong = 0,
        to_offset: cython.longlong = 0x7FFFFFFFFFFFFFFF,
    ):
        """Append the records of a batch whose offsets are in [from_offset, to_offset)."""
        parser: RecordParser = RecordParser(data)
        if not count_is_possible(parser, count):
            raise_corrupt(BAD_COUNT, None)
        _reserve_batch(self, count, parser.size)
        before: tuple = _sizes(self)
        append_time: cython.bint = append_timestamp is not None
        timestamp: cython.longlong = append_timestamp if append_time else 0
        offset: cython.longlong
        previous: cython.longlong = -1
        reason: cython.int = 0
        row: cython.Py_ssize_t = self.rows
        key_size: cython.Py_ssize_t = self.key_size
        value_size: cython.Py_ssize_t = self.value_size
        # These buffers do not move while the batch is read, because they have room for all of it.
        offsets: cython.p_uchar = pointer(self.offsets)
        timestamps: cython.p_uchar = pointer(self.timestamps)
        key_offsets: cython.p_uchar = pointer(self.key_offsets)
        key_data: cython.p_uchar = pointer(self.key_data)
        value_offsets: cython.p_uchar = pointer(self.value_offsets)
        value_data: cython.p_uchar = pointer(self.value_data)
        header_offsets: cython.p_uchar = pointer(self.header_offsets)
        while parser.index < count:
            reason = parse_record(parser)
            if reason == 0 and not previous < parser.offset_delta <= last_delta:
                parser.index -= 1
                reason = BAD_OFFSET
            if reason != 0:
                break
            previous = parser.offset_delta
            offset = add64(base_offset, previous)
            if offset < from_offset:
                continue
            if offset >= to_offset:
                parser.pos = parser.end
                break
            put64(offsets, row, offset)
            if not append_time:
                timestamp = add64(base_timestamp, parser.timestamp_delta)
            put64(timestamps, row, timestamp)
            if parser.key_size >= 0:
                copy_bytes(key_data, key_size, parser.at, parser.key_at, parser.key_size)
                key_size += parser.key_size
            else:
                clear_bit(pointer(self.key_validity), row)
                self.key_nulls += 1
            if parser.value_size >= 0:
                copy_bytes(value_data, value_size, parser.at, parser.value_at, parser.value_size)
                value_size += parser.value_size
            else:
                clear_bit(pointer(self.value_validity), row)
                self.value_nulls += 1
            if parser.header_count > 0:
                _append_headers(self, parser)
            row += 1
            put32(key_offsets, row, key_size)
            put32(value_offsets, row, value_size)
            put32(header_offsets, row, self.headers)
        if reason == 0 and parser.pos != parser.end:
            reason = BAD_TAIL
        if reason != 0:
            _roll_back(self, before, row + 1)
            raise_corrupt(reason, None if reason == BAD_TAIL else parser.index)
        self.rows = row
        self.key_size = key_size
        self.value_size = value_size

    def append_batches(
        self,
        batches: list,
        from_offset: cython.longlong,
        to_offset: cython.longlong,
        crc32c,
        decompressed_bytes_max: cython.longlong,
    ):
        """Append the records of batches whose offsets are in [from_offset, to_offset).

        Control batches are skipped. The CRC is checked if `crc32c` is not None. Return the flag
        LOG_APPEND_TIME of each run of batches, and its number of rows.
        """
        base_offset: cython.longlong
        last_delta: cython.longlong
        attributes: cython.longlong
        run_flag: cython.longlong = -1
        run_start: cython.Py_ssize_t = self.rows
        flag: cython.longlong
        runs: list = []
        wanted: list = []
        rows: cython.longlong = 0
        size: cython.longlong = 0
        room: cython.longlong
        count: cython.longlong
        for batch in batches:
            header = batch.header
            base_offset = header[0]
            last_delta = header[6]
            attributes = header[5]
            if (
                attributes & CONTROL
                or add64(base_offset, last_delta) < from_offset
                or base_offset >= to_offset
            ):
                continue
            wanted.append(batch)
            if not attributes & COMPRESSION_MASK:
                # The header of a batch may declare more records than its bytes can hold.
                room = len(batch.data) - HEADER_SIZE
                count = header[12]
                size += room
                rows += max(0, min(count, room // RECORD_SIZE_MIN))
        _reserve_rows(self, self.rows + rows)
        reserve(self.value_data, self.value_size + size)
        for batch in wanted:
            header = batch.header
            data = batch.data
            if crc32c is not None and crc32c(data[CRC_END:]) != header[4]:
                raise CorruptRecords(f"the batch at offset {header[0]} has a wrong CRC")
            attributes = header[5]
            flag = attributes & LOG_APPEND_TIME
            if flag != run_flag:
                if run_flag >= 0:
                    runs.append((run_flag, self.rows - run_start))
                run_flag = flag
                run_start = self.rows
            self.append_batch(
                batch.record_bytes(decompressed_bytes_max)
                if attributes & COMPRESSION_MASK
                else data[HEADER_SIZE:],
                header[12],
                header[6],
                header[0],
                header[7],
                header[8] if flag else None,
                from_offset,
                to_offset,
            )
        if run_flag >= 0:
            runs.append((run_flag, self.rows - run_start))
        return runs

    def finish(self):
        """Truncate every buffer to its content."""
        resize(self.offsets, self.rows * 8)
        resize(self.timestamps, self.rows * 8)
        resize(self.key_offsets, self.rows * 4 + 4)
        resize(self.key_data, self.key_size)
        _finish_bits(self.key_validity, self.rows)
        resize(self.value_offsets, self.rows * 4 + 4)
        resize(self.value_data, self.value_size)
        _finish_bits(self.value_validity, self.rows)
        resize(self.header_offsets, self.rows * 4 + 4)
        resize(self.header_key_offsets, self.headers * 4 + 4)
        resize(self.header_key_data, self.header_key_size)
        resize(self.header_value_offsets, self.headers * 4 + 4)
        resize(self.header_value_data, self.header_value_size)
        _finish_bits(self.header_value_validity, self.headers)


@cython.cfunc
def _reserve_rows(columns: ColumnBuilder, rows: cython.Py_ssize_t):
    reserve(columns.offsets, rows * 8)
    reserve(columns.timestamps, rows * 8)
    reserve(columns.key_offsets, rows * 4 + 4)
    reserve_bits(columns.key_validity, rows)
    reserve(columns.value_offsets, rows * 4 + 4)
    reserve_bits(columns.value_validity, rows)
    reserve(columns.header_offsets, rows * 4 + 4)


@cython.cfunc
def _reserve_batch(columns: ColumnBuilder, count: cython.Py_ssize_t, size: cython.longlong):
    """Make room for any batch of `count` records and `size` bytes."""
    room: cython.longlong = INT32_MAX - size
    if (
        columns.key_size > room
        or columns.value_size > room
        or columns.header_key_size > room - 2 * size  # a byte that is not UTF-8 becomes three
        or columns.header_value_size > room
        or columns.headers > room
    ):
        raise ColumnsTooLarge(
            "the keys, values or headers exceed the 2 GiB of an Arrow column: read fewer records"
        )
    _reserve_rows(columns, columns.rows + count)
    reserve(columns.key_data, columns.key_size + size)
    reserve(columns.value_data, columns.value_size + size)


@cython.cfunc
def _append_invalid_key(columns: ColumnBuilder, parser: RecordParser, more: cython.Py_ssize_t):
    """Append a header key that is not UTF-8; U+FFFD replaces its invalid bytes, as in a Record."""
    raw: bytes = bytes_at(parser.at, parser.header_key_at, parser.header_key_size)
    key: bytes = raw.decode("utf-8", "replace").encode("utf-8")
    size: cython.Py_ssize_t = len(key)
    reserve(columns.header_key_data, columns.header_key_size + size + more)
    store_bytes(pointer(columns.header_key_data), columns.header_key_size, key)
    columns.header_key_size += size


@cython.cfunc
def _append_headers(columns: ColumnBuilder, parser: RecordParser):
    """Append the headers of the record that was parsed last."""
    pos: cython.Py_ssize_t = parser.headers_at
    left: cython.Py_ssize_t = parser.header_count
    size: cython.Py_ssize_t = parser.pos - pos
    reserve(columns.header_key_offsets, (columns.headers + left) * 4 + 4)
    reserve(columns.header_key_data, columns.header_key_size + size)
    reserve(columns.header_value_offsets, (columns.headers + left) * 4 + 4)
    reserve(columns.header_value_data, columns.header_value_size + size)
    reserve_bits(columns.header_value_validity, columns.headers + left)
    while left > 0:
        pos = parse_header(parser, pos, parser.pos)
        if is_utf8(parser.at, parser.header_key_at, parser.header_key_size):
            copy_bytes(
                pointer(columns.header_key_data),
                columns.header_key_size,
                parser.at,
                parser.header_key_at,
                parser.header_key_size,
            )
            columns.header_key_size += parser.header_key_size
        else:
            _append_invalid_key(columns, parser, size)
        if parser.header_value_size >= 0:
            copy_bytes(
                pointer(columns.header_value_data),
                columns.header_value_size,
                parser.at,
                parser.header_value_at,
                parser.header_value_size,
            )
            columns.header_value_size += parser.header_value_size
        else:
            clear_bit(pointer(columns.header_value_validity), columns.headers)
            columns.header_value_nulls += 1
        columns.headers += 1
        put32(pointer(columns.header_key_offsets), columns.headers, columns.header_key_size)
        put32(pointer(columns.header_value_offsets), columns.headers, columns.header_value_size)
        left -= 1


@cython.cfunc
def _sizes(columns: ColumnBuilder) -> tuple:
    """Return what `_roll_back` needs to undo a batch."""
    return (
        columns.key_nulls,
        columns.value_nulls,
        columns.headers,
        columns.header_value_nulls,
        columns.header_key_size,
        columns.header_value_size,
    )


@cython.cfunc
def _roll_back(columns: ColumnBuilder, before: tuple, rows: cython.Py_ssize_t):
    """Undo a batch that wrote rows below `rows` and their headers."""
    headers: cython.Py_ssize_t = columns.headers
    columns.key_nulls, columns.value_nulls, columns.headers = before[:3]
    columns.header_value_nulls, columns.header_key_size, columns.header_value_size = before[3:]
    _set_bits(columns.key_validity, columns.rows, rows)
    _set_bits(columns.value_validity, columns.rows, rows)
    _set_bits(columns.header_value_validity, columns.headers, headers)


@cython.cfunc
def _set_bits(buffer: bytearray, bit: cython.Py_ssize_t, end: cython.Py_ssize_t):
    """Set the bits [bit, end) of a bitmap."""
    out: cython.p_uchar = pointer(buffer)
    end = min(end, len(buffer) * 8)
    while bit < end:
        out[bit >> 3] |= 1 << (bit & 7)
        bit += 1


@cython.cfunc
def _finish_bits(buffer: bytearray, bits: cython.Py_ssize_t):
    """Truncate a bitmap to `bits` bits; the unused bits of the last byte become 0."""
    resize(buffer, (bits + 7) >> 3)
    if bits & 7:
        pointer(buffer)[bits >> 3] &= (1 << (bits & 7)) - 1
