"""Parses the records of one batch in place, and checks the records of a produced batch.

Invariant: the parser never reads outside its buffer. It compares a position with the end before it
reads the byte there, and a length with the bytes that are left. It never adds a length to a
position before that comparison, so that no length overflows.
"""

from __future__ import annotations

from ottla.records._kernel.constants import REASONS
from ottla.records.errors import CorruptRecords

try:
    import cython
except ImportError:
    from ottla.records._kernel import cython_stub as cython

if not cython.compiled:
    from ottla.records._kernel.buffers import BufferView
    from ottla.records._kernel.constants import (
        BAD_COUNT,
        BAD_END,
        BAD_HEADER_KEY,
        BAD_HEADER_VALUE,
        BAD_HEADERS,
        BAD_KEY,
        BAD_LENGTH,
        BAD_OFFSET,
        BAD_TAIL,
        BAD_TIMESTAMP,
        BAD_VALUE,
        HEADERS_MAX,
        NO_TIMESTAMP,
        RECORD_SIZE_MIN,
    )
    from ottla.records._kernel.integers import add64, unzigzag


@cython.cfunc
@cython.exceptval(check=False)
def _decode_long_varint(
    p: cython.p_const_uchar, pos: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.longlong:
    """Decode a varint of two bytes or more; the result is that of `decode_varint`."""
    value: cython.longlong = p[pos] & 0x7F
    byte: cython.longlong
    size: cython.int = 1
    while size < 5 and size < end - pos:
        byte = p[pos + size]
        value |= (byte & 0x7F) << (7 * size)
        size += 1
        if byte < 0x80:
            if value >> 32 != 0:
                return 0
            return unzigzag(value) * 16 + size
    return 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def decode_varint(
    p: cython.p_const_uchar, pos: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.longlong:
    """Decode the varint at pos into value * 16 + size; 0 if truncated or above 32 bits."""
    byte: cython.longlong
    if pos >= end:
        return 0
    byte = p[pos]
    if byte < 0x80:
        return unzigzag(byte) * 16 + 1
    return _decode_long_varint(p, pos, end)


@cython.cfunc
@cython.exceptval(check=False)
def varlong_size(
    p: cython.p_const_uchar, pos: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.int:
    """Return the size in bytes of the varlong at pos; 0 if truncated or above 64 bits."""
    size: cython.int = 0
    while size < end - pos:
        if p[pos + size] < 0x80:
            size += 1
            # The tenth byte has room for the last of the 64 bits only.
            return 0 if size == 10 and p[pos + 9] > 1 else size
        size += 1
        if size == 10:
            return 0
    return 0


@cython.cfunc
@cython.exceptval(check=False)
def _decode_varlong(
    p: cython.p_const_uchar, pos: cython.Py_ssize_t, size: cython.int
) -> cython.longlong:
    """Decode the varlong at pos, whose size is the result of `varlong_size`."""
    value: cython.ulonglong = 0
    byte: cython.ulonglong
    half: cython.longlong
    sign: cython.longlong
    index: cython.int
    for index in range(size):
        byte = p[pos + index]
        value |= (byte & 0x7F) << (7 * index)
    half = value >> 1
    sign = value & 1
    return half ^ -sign


@cython.cclass
class RecordParser(BufferView):
    """The position in the records of one batch, and the fields of the last record parsed."""

    def __init__(self, data):
        BufferView.__init__(self, data)
        self.index = 0
        self.pos = 0
        self.end = self.size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def parse_header(
    parser: RecordParser, pos: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Parse the header at pos; return the position after it, or the negative of a reason."""
    p: cython.p_const_uchar = parser.at
    packed: cython.longlong = decode_varint(p, pos, end)
    pos += packed & 15
    size: cython.Py_ssize_t = packed >> 4
    if packed == 0 or size < 0 or size > end - pos:
        return -BAD_HEADER_KEY
    parser.header_key_at = pos
    parser.header_key_size = size
    pos += size
    packed = decode_varint(p, pos, end)
    pos += packed & 15
    size = packed >> 4
    if packed == 0 or size < -1 or size > end - pos:
        return -BAD_HEADER_VALUE
    parser.header_value_at = pos
    parser.header_value_size = size
    return pos + (size if size > 0 else 0)


@cython.cfunc
@cython.exceptval(check=False)
def _check_headers(
    parser: RecordParser, pos: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.int:
    """Check that the headers of a record are complete and end where the record ends."""
    left: cython.longlong = parser.header_count
    # A header has at least two bytes. A count that is too large is rejected before the loop.
    if left < 0 or left > (end - pos) >> 1 or left > HEADERS_MAX:
        return BAD_HEADERS
    while left > 0:
        pos = parse_header(parser, pos, end)
        if pos < 0:
            return cython.cast(cython.int, -pos) if cython.compiled else -pos
        left -= 1
    return 0 if pos == end else BAD_END


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def parse_record(parser: RecordParser) -> cython.int:
    """Parse the next record and move past it; for a corrupt one, return a reason and stay.

    Varints of one or two bytes are decoded here and not by decode_varint: where a branch decides
    the size, the processor predicts it and starts on the next field early. That saves a third of
    the time.
    """
    p: cython.p_const_uchar = parser.at
    pos: cython.Py_ssize_t = parser.pos
    end: cython.Py_ssize_t = parser.end
    size: cython.Py_ssize_t
    packed: cython.longlong
    timestamp_size: cython.int
    reason: cython.int
    if end - pos > 1 and p[pos] < 0x80:
        size = unzigzag(p[pos])
        pos += 1
    elif end - pos > 1 and p[pos + 1] < 0x80:
        size = unzigzag((p[pos] & 0x7F) | (p[pos + 1] << 7))
        pos += 2
    else:
        packed = decode_varint(p, pos, end)
        if packed == 0:
            return BAD_LENGTH
        size = packed >> 4
        pos += packed & 15
    if size <= 0 or size > end - pos:
        return BAD_LENGTH
    end = pos + size
    pos += 1  # the record attributes: Kafka defines none and ignores the byte
    if end - pos > 1 and p[pos] < 0x80:
        parser.timestamp_delta = unzigzag(p[pos])
        pos += 1
    elif end - pos > 1 and p[pos + 1] < 0x80:
        parser.timestamp_delta = unzigzag((p[pos] & 0x7F) | (p[pos + 1] << 7))
        pos += 2
    else:
        timestamp_size = varlong_size(p, pos, end)
        if timestamp_size == 0:
            return BAD_TIMESTAMP
        parser.timestamp_delta = _decode_varlong(p, pos, timestamp_size)
        pos += timestamp_size
    if end - pos > 1 and p[pos] < 0x80:
        parser.offset_delta = unzigzag(p[pos])
        pos += 1
    elif end - pos > 1 and p[pos + 1] < 0x80:
        parser.offset_delta = unzigzag((p[pos] & 0x7F) | (p[pos + 1] << 7))
        pos += 2
    else:
        packed = decode_varint(p, pos, end)
        if packed == 0:
            return BAD_OFFSET
        parser.offset_delta = packed >> 4
        pos += packed & 15
    if end - pos > 1 and p[pos] < 0x80:
        size = unzigzag(p[pos])
        pos += 1
    else:
        packed = decode_varint(p, pos, end)
        if packed == 0:
            return BAD_KEY
        size = packed >> 4
        pos += packed & 15
    if size < -1 or size > end - pos:
        return BAD_KEY
    parser.key_at = pos
    parser.key_size = size
    if size > 0:
        pos += size
    if end - pos > 1 and p[pos] < 0x80:
        size = unzigzag(p[pos])
        pos += 1
    elif end - pos > 1 and p[pos + 1] < 0x80:
        size = unzigzag((p[pos] & 0x7F) | (p[pos + 1] << 7))
        pos += 2
    else:
        packed = decode_varint(p, pos, end)
        if packed == 0:
            return BAD_VALUE
        size = packed >> 4
        pos += packed & 15
    if size < -1 or size > end - pos:
        return BAD_VALUE
    parser.value_at = pos
    parser.value_size = size
    if size > 0:
        pos += size
    if end - pos == 1 and p[pos] == 0:  # most records have no headers
        parser.header_count = 0
        parser.headers_at = end
    else:
        packed = decode_varint(p, pos, end)
        if packed == 0:
            return BAD_HEADERS
        pos += packed & 15
        parser.header_count = packed >> 4
        parser.headers_at = pos
        reason = _check_headers(parser, pos, end)
        if reason != 0:
            return reason
    parser.pos = end
    parser.index += 1
    return 0


@cython.cfunc
def raise_corrupt(reason: cython.int, record):
    """Raise CorruptRecords; `record` is the index of the record, or None for the batch."""
    raise CorruptRecords(REASONS[reason], record)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def count_is_possible(parser: RecordParser, count: cython.longlong) -> cython.bint:
    """Check that the bytes can hold so many records, before memory is allocated for them."""
    return 0 <= count <= parser.size // RECORD_SIZE_MIN


def read_varint(data, pos: cython.Py_ssize_t = 0):
    """Read the zigzag varint of at most 32 bits at pos; return it and the position after it."""
    view: BufferView = BufferView(data)
    packed: cython.longlong = decode_varint(view.at, pos, view.size) if pos >= 0 else 0
    if packed == 0:
        raise CorruptRecords(f"varint at position {pos}: truncated or more than 32 bits")
    return packed >> 4, pos + (packed & 15)


def read_varlong(data, pos: cython.Py_ssize_t = 0):
    """Read the zigzag varint of at most 64 bits at pos; return it and the position after it."""
    view: BufferView = BufferView(data)
    size: cython.int = varlong_size(view.at, pos, view.size) if pos >= 0 else 0
    if size == 0:
        raise CorruptRecords(f"varlong at position {pos}: truncated or more than 64 bits")
    return _decode_varlong(view.at, pos, size), pos + size


def check_records(
    data,
    count: cython.longlong,
    base_timestamp: cython.longlong,
    timestamp_min: cython.longlong,
    timestamp_max: cython.longlong,
):
    """Check every record as a broker does on produce. It raises nothing for any content.

    Return (reason, record, max timestamp, record with the max timestamp, first record without a
    key, first record whose timestamp is out of bounds). The reason is 0 if all records are valid,
    otherwise `record` is the corrupt one. -1 means there is no such record. NO_TIMESTAMP is never
    out of bounds.
    """
    parser: RecordParser = RecordParser(data)
    index: cython.longlong
    reason: cython.int = 0
    timestamp: cython.longlong
    max_timestamp: cython.longlong = NO_TIMESTAMP
    max_index: cython.longlong = -1
    without_key: cython.longlong = -1
    out_of_bounds: cython.longlong = -1
    if not count_is_possible(parser, count):
        return BAD_COUNT, -1, max_timestamp, -1, -1, -1
    for index in range(count):
        reason = parse_record(parser)
        if reason == 0 and parser.offset_delta != index:
            reason = BAD_OFFSET
        if reason != 0:
            return reason, index, max_timestamp, max_index, without_key, out_of_bounds
        timestamp = add64(base_timestamp, parser.timestamp_delta)
        if timestamp > max_timestamp:
            max_timestamp = timestamp
            max_index = index
        if parser.key_size < 0 and without_key < 0:
            without_key = index
        if (
            (timestamp < timestamp_min or timestamp > timestamp_max)
            and timestamp != NO_TIMESTAMP
            and out_of_bounds < 0
        ):
            out_of_bounds = index
    if parser.pos != parser.end:
        return BAD_TAIL, -1, max_timestamp, max_index, without_key, out_of_bounds
    return 0, -1, max_timestamp, max_index, without_key, out_of_bounds


def find_invalid_records(
    data,
    count: cython.longlong,
    base_timestamp: cython.longlong,
    timestamp_min: cython.longlong,
    timestamp_max: cython.longlong,
    key_required: cython.bint,
    limit: cython.Py_ssize_t,
):
    """List at most `limit` records without a required key or with a timestamp out of bounds.

    The records must have passed `check_records`. A missing key is (record, None), a timestamp out
    of bounds is (record, timestamp). As in Kafka, a record without a key is listed once.
    """
    parser: RecordParser = RecordParser(data)
    timestamp: cython.longlong
    found: list = []
    while parser.index < count and len(found) < limit:
        if parse_record(parser) != 0:
            break
        timestamp = add64(base_timestamp, parser.timestamp_delta)
        if key_required and parser.key_size < 0:
            found.append((parser.index - 1, None))
        elif timestamp != NO_TIMESTAMP and (timestamp < timestamp_min or timestamp > timestamp_max):
            found.append((parser.index - 1, timestamp))
    return found
