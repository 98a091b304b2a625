# ruff: noqa: F821, RET505 - what kernel.pxd names exists in the compiled kernel only, where an
# `else` after `if cython.compiled` is left out.
"""What runs once per record: varints, walking, checking, encoding, decoding, hashing.

Invariant: no input makes it read or write outside the buffers it was given. A position is
compared with its end before the byte there is used, and a length with what is left, never added
to a position first, so that no length overflows. Compiled and as plain Python it gives the same
results: what C would wrap is wrapped explicitly.

Where the two differ there is an `if cython.compiled`. A pointer `p` is, uncompiled, a memoryview
or a bytearray: `p[i]` reads the same in both. The C side of the classes is in kernel.pxd, the
types for everybody else in kernel.pyi.
"""

from __future__ import annotations

from struct import pack_into, unpack_from

from ottla.records.errors import ColumnsTooLarge, CorruptRecords

try:
    import cython
except ImportError:
    from ottla.records import plain as cython

COMPILED = cython.compiled

HEADER_SIZE = 61  # the batch header, for which the encoders leave room
RECORD_OVERHEAD_MAX = 26  # what the lengths, the deltas and the attributes of a record take at most
INT32_MAX = 0x7FFFFFFF
NOT_BYTES = "encode it, or give the producer a serializer for it"
NOT_PAIRS = "headers are pairs, each of a name and of bytes or None"
HEADERS_MAX = 0xFFFF  # of one record: two compressed bytes must not become millions of objects
NO_TIMESTAMP = -1

# Why a record is refused; REASONS has the words, at the same index.
BAD_COUNT = 1
BAD_LENGTH = 2
BAD_TIMESTAMP = 3
BAD_OFFSET = 4
BAD_KEY = 5
BAD_VALUE = 6
BAD_HEADERS = 7
BAD_HEADER_KEY = 8
BAD_HEADER_VALUE = 9
BAD_END = 10
BAD_TAIL = 11
REASONS = (
    "is in order",
    "the batch declares more records than its bytes can hold",
    "its length is malformed or reaches past the batch",
    "its timestamp is malformed",
    "its offset is malformed or out of order",
    "its key has an impossible length",
    "its value has an impossible length",
    "its number of headers is impossible",
    "a header has no key or an impossible length of it",
    "a header's value has an impossible length",
    "its fields do not fill its length",
    "bytes follow the last record",
)


# --- bytes -----------------------------------------------------------------------------------


@cython.cclass
class Held:
    """The bytes of any contiguous buffer, held in place for as long as this object lives."""

    def __init__(self, data):
        if cython.compiled:
            if self.held:
                raise TypeError("already holds a buffer")
            PyObject_GetBuffer(data, cython.address(self.buffer), PyBUF_SIMPLE)
            self.held = True
            self.at = cython.cast(cython.p_const_uchar, self.buffer.buf)
            self.size = self.buffer.len
        else:
            view = memoryview(data)
            if not view.c_contiguous:
                raise BufferError("the buffer is not contiguous")
            self.at = view.cast("B") if view.nbytes else b""
            self.size = view.nbytes

    def __dealloc__(self):
        if cython.compiled and self.held:
            PyBuffer_Release(cython.address(self.buffer))


@cython.cfunc
@cython.inline
def _bytes(p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> bytes:
    if cython.compiled:
        return PyBytes_FromStringAndSize(cython.cast(cython.p_const_char, p) + at, size)
    else:
        return bytes(p[at : at + size])


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _copy(
    out: cython.p_uchar,
    to: cython.Py_ssize_t,
    p: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> cython.void:
    if cython.compiled:
        memcpy(out + to, p + at, size)
    else:
        out[to : to + size] = p[at : at + size]


@cython.cfunc
@cython.inline
def _pointer(buffer: bytearray) -> cython.p_uchar:
    """Where the bytearray's bytes are now: until it is resized."""
    if cython.compiled:
        return cython.cast(cython.p_uchar, PyByteArray_AS_STRING(buffer))
    else:
        return buffer


@cython.cfunc
def _resize(buffer: bytearray, size: cython.Py_ssize_t):
    """Grow with bytes of any content, or cut."""
    if cython.compiled:
        PyByteArray_Resize(buffer, size)
    elif size > len(buffer):
        buffer.extend(bytes(size - len(buffer)))
    else:
        del buffer[size:]


@cython.cfunc
def _reserve(buffer: bytearray, size: cython.Py_ssize_t):
    """Make room for size bytes, and for half as many again when it has to move."""
    room: cython.Py_ssize_t = len(buffer)
    if size > room:
        _resize(buffer, max(size, room + (room >> 1)))


@cython.cfunc
def _reserve_bits(buffer: bytearray, bits: cython.Py_ssize_t):
    """Make room for so many bits, all set: a row is valid unless its bit is cleared."""
    room: cython.Py_ssize_t = len(buffer)
    size: cython.Py_ssize_t = (bits + 7) >> 3
    if size > room:
        size = max(size, room + (room >> 1))
        _resize(buffer, size)
        if cython.compiled:
            memset(_pointer(buffer) + room, 0xFF, size - room)
        else:
            buffer[room:] = b"\xff" * (size - room)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _clear_bit(out: cython.p_uchar, bit: cython.Py_ssize_t) -> cython.void:
    out[bit >> 3] &= 0xFF ^ (1 << (bit & 7))


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put32(out: cython.p_uchar, index: cython.Py_ssize_t, value: cython.Py_ssize_t) -> cython.void:
    if cython.compiled:
        cython.cast(cython.p_int, out)[index] = cython.cast(cython.int, value)
    else:
        pack_into("=i", out, index * 4, value)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put64(out: cython.p_uchar, index: cython.Py_ssize_t, value: cython.longlong) -> cython.void:
    if cython.compiled:
        cython.cast(cython.p_longlong, out)[index] = value
    else:
        pack_into("=q", out, index * 8, value)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _get32(p: cython.p_const_uchar, index: cython.Py_ssize_t) -> cython.longlong:
    if cython.compiled:
        value: cython.int = 0
        memcpy(cython.address(value), p + index * 4, 4)  # a caller's buffer may be unaligned
        return value
    else:
        return unpack_from("=i", p, index * 4)[0]


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _get64(p: cython.p_const_uchar, index: cython.Py_ssize_t) -> cython.longlong:
    if cython.compiled:
        value: cython.longlong = 0
        memcpy(cython.address(value), p + index * 8, 8)
        return value
    else:
        return unpack_from("=q", p, index * 8)[0]


# --- numbers ---------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _plus(a: cython.longlong, b: cython.longlong) -> cython.longlong:
    """Add as Java does: past the last of 64 bits it wraps."""
    if cython.compiled:
        return cython.cast(
            cython.longlong, cython.cast(cython.ulonglong, a) + cython.cast(cython.ulonglong, b)
        )
    else:
        total = (a + b) & 0xFFFF_FFFF_FFFF_FFFF
        return total - 0x1_0000_0000_0000_0000 if total >> 63 else total


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _minus(a: cython.longlong, b: cython.longlong) -> cython.longlong:
    if cython.compiled:
        return cython.cast(
            cython.longlong, cython.cast(cython.ulonglong, a) - cython.cast(cython.ulonglong, b)
        )
    else:
        return _plus(a, -b)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _zigzag(value: cython.longlong) -> cython.ulonglong:
    """Make 0, -1, 1, -2 … into 0, 1, 2, 3 … so that small numbers are short."""
    if cython.compiled:
        return (cython.cast(cython.ulonglong, value) << 1) ^ cython.cast(
            cython.ulonglong, value >> 63
        )
    else:
        return (value << 1) ^ (value >> 63)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _signed(zigzag: cython.longlong) -> cython.longlong:
    """The number that _zigzag made this of, of less than 64 bits."""
    return (zigzag >> 1) ^ -(zigzag & 1)


@cython.cfunc
@cython.exceptval(check=False)
def _long_varint(
    p: cython.p_const_uchar, pos: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.longlong:
    """A varint of two bytes or more; see _varint."""
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
            return _signed(value) * 16 + size
    return 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _varint(
    p: cython.p_const_uchar, pos: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.longlong:
    """The zigzag varint at pos as value * 16 + size; 0 when cut off or of more than 32 bits."""
    byte: cython.longlong
    if pos >= end:
        return 0
    byte = p[pos]
    if byte < 0x80:
        return _signed(byte) * 16 + 1
    return _long_varint(p, pos, end)


@cython.cfunc
@cython.exceptval(check=False)
def _varlong_size(
    p: cython.p_const_uchar, pos: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.int:
    """Bytes of the varlong at pos; 0 when it is cut off or has more than 64 bits."""
    size: cython.int = 0
    while size < end - pos:
        if p[pos + size] < 0x80:
            size += 1
            # The tenth byte has room for the last of the 64 bits and no more.
            return 0 if size == 10 and p[pos + 9] > 1 else size
        size += 1
        if size == 10:
            return 0
    return 0


@cython.cfunc
@cython.exceptval(check=False)
def _varlong_value(
    p: cython.p_const_uchar, pos: cython.Py_ssize_t, size: cython.int
) -> cython.longlong:
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


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _uvarint_size(value: cython.ulonglong) -> cython.Py_ssize_t:
    size: cython.Py_ssize_t = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_uvarint(
    out: cython.p_uchar, pos: cython.Py_ssize_t, value: cython.ulonglong
) -> cython.Py_ssize_t:
    """Write, and return where the next byte goes."""
    while value >= 0x80:
        out[pos] = (value & 0x7F) | 0x80
        value >>= 7
        pos += 1
    out[pos] = value & 0x7F
    return pos + 1


def read_varint(data, pos: cython.Py_ssize_t = 0):
    """The zigzag varint of at most 32 bits at pos, and the position after it."""
    held: Held = Held(data)
    packed: cython.longlong = _varint(held.at, pos, held.size) if pos >= 0 else 0
    if packed == 0:
        raise CorruptRecords("a varint is cut off or has more than 32 bits")
    return packed >> 4, pos + (packed & 15)


def read_varlong(data, pos: cython.Py_ssize_t = 0):
    """The zigzag varint of at most 64 bits at pos, and the position after it."""
    held: Held = Held(data)
    size: cython.int = _varlong_size(held.at, pos, held.size) if pos >= 0 else 0
    if size == 0:
        raise CorruptRecords("a varint is cut off or has more than 64 bits")
    return _varlong_value(held.at, pos, size), pos + size


def write_varint(value):
    """A number of at most 32 bits as a zigzag varint."""
    if not -0x80000000 <= value <= 0x7FFFFFFF:
        raise OverflowError("a varint has at most 32 bits")
    return write_varlong(value)


def write_varlong(value):
    """A number of at most 64 bits as a zigzag varint."""
    if not -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        raise OverflowError("a varlong has at most 64 bits")
    out: bytearray = bytearray(10)
    size: cython.Py_ssize_t = _put_uvarint(_pointer(out), 0, _zigzag(value))
    return bytes(out[:size])


# --- walking ---------------------------------------------------------------------------------


@cython.cclass
class Walk(Held):
    """A place among the records of one batch, and where the fields of the last one are."""

    def __init__(self, data):
        Held.__init__(self, data)
        self.index = 0
        self.pos = 0
        self.end = self.size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _step_header(walk: Walk, pos: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Find the header at pos; return where the next one is, or a reason, negated."""
    p: cython.p_const_uchar = walk.at
    packed: cython.longlong = _varint(p, pos, end)
    pos += packed & 15
    size: cython.Py_ssize_t = packed >> 4
    if packed == 0 or size < 0 or size > end - pos:
        return -BAD_HEADER_KEY
    walk.header_key_at = pos
    walk.header_key_size = size
    pos += size
    packed = _varint(p, pos, end)
    pos += packed & 15
    size = packed >> 4
    if packed == 0 or size < -1 or size > end - pos:
        return -BAD_HEADER_VALUE
    walk.header_value_at = pos
    walk.header_value_size = size
    return pos + (size if size > 0 else 0)


@cython.cfunc
@cython.exceptval(check=False)
def _step_headers(walk: Walk, pos: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
    """Check that the headers of one record are whole and end where it ends."""
    left: cython.longlong = walk.header_count
    # A header has two bytes at least: a lying count is found before anything is looped over.
    if left < 0 or left > (end - pos) >> 1 or left > HEADERS_MAX:
        return BAD_HEADERS
    while left > 0:
        pos = _step_header(walk, pos, end)
        if pos < 0:
            return cython.cast(cython.int, -pos) if cython.compiled else -pos
        left -= 1
    return 0 if pos == end else BAD_END


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _step(walk: Walk) -> cython.int:
    """Find the fields of the next record and go past it; or return a reason and stay.

    Numbers of one or two bytes are read here, not by _varint: where a branch tells how long they
    are, the processor goes on to the next before it has this one. That is a third of the time.
    """
    p: cython.p_const_uchar = walk.at
    pos: cython.Py_ssize_t = walk.pos
    end: cython.Py_ssize_t = walk.end
    size: cython.Py_ssize_t
    packed: cython.longlong
    varlong_size: cython.int
    reason: cython.int
    if end - pos > 1 and p[pos] < 0x80:
        size = _signed(p[pos])
        pos += 1
    elif end - pos > 1 and p[pos + 1] < 0x80:
        size = _signed((p[pos] & 0x7F) | (p[pos + 1] << 7))
        pos += 2
    else:
        packed = _varint(p, pos, end)
        if packed == 0:
            return BAD_LENGTH
        size = packed >> 4
        pos += packed & 15
    if size <= 0 or size > end - pos:
        return BAD_LENGTH
    end = pos + size
    pos += 1  # the attributes of a record: Kafka defines none and ignores the byte
    if end - pos > 1 and p[pos] < 0x80:
        walk.timestamp_delta = _signed(p[pos])
        pos += 1
    elif end - pos > 1 and p[pos + 1] < 0x80:
        walk.timestamp_delta = _signed((p[pos] & 0x7F) | (p[pos + 1] << 7))
        pos += 2
    else:
        varlong_size = _varlong_size(p, pos, end)
        if varlong_size == 0:
            return BAD_TIMESTAMP
        walk.timestamp_delta = _varlong_value(p, pos, varlong_size)
        pos += varlong_size
    if end - pos > 1 and p[pos] < 0x80:
        walk.offset_delta = _signed(p[pos])
        pos += 1
    elif end - pos > 1 and p[pos + 1] < 0x80:
        walk.offset_delta = _signed((p[pos] & 0x7F) | (p[pos + 1] << 7))
        pos += 2
    else:
        packed = _varint(p, pos, end)
        if packed == 0:
            return BAD_OFFSET
        walk.offset_delta = packed >> 4
        pos += packed & 15
    if end - pos > 1 and p[pos] < 0x80:
        size = _signed(p[pos])
        pos += 1
    else:
        packed = _varint(p, pos, end)
        if packed == 0:
            return BAD_KEY
        size = packed >> 4
        pos += packed & 15
    if size < -1 or size > end - pos:
        return BAD_KEY
    walk.key_at = pos
    walk.key_size = size
    if size > 0:
        pos += size
    if end - pos > 1 and p[pos] < 0x80:
        size = _signed(p[pos])
        pos += 1
    elif end - pos > 1 and p[pos + 1] < 0x80:
        size = _signed((p[pos] & 0x7F) | (p[pos + 1] << 7))
        pos += 2
    else:
        packed = _varint(p, pos, end)
        if packed == 0:
            return BAD_VALUE
        size = packed >> 4
        pos += packed & 15
    if size < -1 or size > end - pos:
        return BAD_VALUE
    walk.value_at = pos
    walk.value_size = size
    if size > 0:
        pos += size
    if end - pos == 1 and p[pos] == 0:  # no headers, as most records
        walk.header_count = 0
        walk.headers_at = end
    else:
        packed = _varint(p, pos, end)
        if packed == 0:
            return BAD_HEADERS
        pos += packed & 15
        walk.header_count = packed >> 4
        walk.headers_at = pos
        reason = _step_headers(walk, pos, end)
        if reason != 0:
            return reason
    walk.pos = end
    walk.index += 1
    return 0


@cython.cfunc
def _refuse(reason: cython.int, record=None):
    raise CorruptRecords(REASONS[reason], record)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _count_fits(walk: Walk, count: cython.longlong) -> cython.bint:
    """Whether so many records can be there: found out before anything is made for them."""
    # Seven: length, attributes, timestamp, offset, key, value and headers, a byte each.
    return 0 <= count <= walk.size // 7


# --- checking --------------------------------------------------------------------------------


def count_records(data):
    """How many records a run of whole batches has, as their headers say; nothing is checked."""
    held: Held = Held(data)
    pos: cython.Py_ssize_t = 0
    length: cython.longlong
    count: cython.longlong = 0
    while pos + 61 <= held.size:
        length = _big32(held.at, pos + 8)
        if length < 49:  # with the 12 bytes before it, a header
            break
        count += _big32(held.at, pos + 57)
        pos += 12 + length
    return count


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _big32(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.longlong:
    value: cython.longlong = p[at]
    return value << 24 | p[at + 1] << 16 | p[at + 2] << 8 | p[at + 3]


def check(
    data,
    count: cython.longlong,
    base_timestamp: cython.longlong,
    timestamp_min: cython.longlong,
    timestamp_max: cython.longlong,
):
    """Walk every record as a broker does on produce; never raises for what the bytes are.

    Returns (reason, record, max timestamp, record that has it, first record without a key, first
    record whose timestamp is out of bounds): reason 0 when all is in order, otherwise the record
    at fault; -1 for a record that there is none of. A timestamp of -1 is never out of bounds.
    """
    walk: Walk = Walk(data)
    index: cython.longlong
    reason: cython.int = 0
    timestamp: cython.longlong
    max_timestamp: cython.longlong = NO_TIMESTAMP
    max_index: cython.longlong = -1
    without_key: cython.longlong = -1
    out_of_bounds: cython.longlong = -1
    if not _count_fits(walk, count):
        return BAD_COUNT, -1, max_timestamp, -1, -1, -1
    for index in range(count):
        reason = _step(walk)
        if reason == 0 and walk.offset_delta != index:
            reason = BAD_OFFSET
        if reason != 0:
            return reason, index, max_timestamp, max_index, without_key, out_of_bounds
        timestamp = _plus(base_timestamp, walk.timestamp_delta)
        if timestamp > max_timestamp:
            max_timestamp = timestamp
            max_index = index
        if walk.key_size < 0 and without_key < 0:
            without_key = index
        if (
            (timestamp < timestamp_min or timestamp > timestamp_max)
            and timestamp != NO_TIMESTAMP
            and out_of_bounds < 0
        ):
            out_of_bounds = index
    if walk.pos != walk.end:
        return BAD_TAIL, -1, max_timestamp, max_index, without_key, out_of_bounds
    return 0, -1, max_timestamp, max_index, without_key, out_of_bounds


def offenders(
    data,
    count: cython.longlong,
    base_timestamp: cython.longlong,
    timestamp_min: cython.longlong,
    timestamp_max: cython.longlong,
    key_required: cython.bint,
    most: cython.Py_ssize_t,
):
    """List the records that `check` found fault with, at most so many of them.

    Of sound records only: (record, None) for a missing key, (record, timestamp) for one out of
    bounds. A record without a key is listed for that alone, as Kafka does.
    """
    walk: Walk = Walk(data)
    timestamp: cython.longlong
    found: list = []
    while walk.index < count and len(found) < most:
        if _step(walk) != 0:
            break
        timestamp = _plus(base_timestamp, walk.timestamp_delta)
        if key_required and walk.key_size < 0:
            found.append((walk.index - 1, None))
        elif timestamp != NO_TIMESTAMP and (timestamp < timestamp_min or timestamp > timestamp_max):
            found.append((walk.index - 1, timestamp))
    return found


# --- one at a time ---------------------------------------------------------------------------


@cython.final
@cython.no_gc
@cython.freelist(256)
@cython.cclass
class Record:
    """One record as a reader sees it; a value, never changed.

    The compiled one is out of the garbage collector's sight, which is safe because the
    constructor admits only what cannot refer back to it: bytes, and pairs of str and bytes.
    """

    __slots__ = ("headers", "key", "offset", "timestamp", "value")

    def __init__(self, offset, timestamp, key=None, value=None, headers=()):
        headers = tuple(headers)
        for part in (key, value):
            if part is not None and type(part) is not bytes:
                raise TypeError("a record's key and value are bytes or None")
        for header in headers:
            if (
                type(header) is not tuple
                or len(header) != 2
                or type(header[0]) is not str
                or (header[1] is not None and type(header[1]) is not bytes)
            ):
                raise TypeError("a record's headers are pairs of str and bytes or None")
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers

    def __eq__(self, other):
        if type(other) is not Record:
            return NotImplemented
        return _fields(self) == _fields(other)

    def __hash__(self):
        return hash(_fields(self))

    def __reduce__(self):
        return Record, _fields(self)

    def __repr__(self):
        return (
            f"Record(offset={self.offset}, timestamp={self.timestamp}, key={self.key!r}, "
            f"value={self.value!r}, headers={self.headers!r})"
        )


@cython.cfunc
def _fields(record: Record) -> tuple:
    return record.offset, record.timestamp, record.key, record.value, record.headers


@cython.cfunc
def _headers(walk: Walk) -> tuple:
    """The headers of the record that was just stepped over."""
    pos: cython.Py_ssize_t = walk.headers_at
    left: cython.longlong = walk.header_count
    raw: bytes
    value: bytes | None
    headers: list = []
    while left > 0:
        pos = _step_header(walk, pos, walk.pos)
        raw = _bytes(walk.at, walk.header_key_at, walk.header_key_size)
        value = None
        if walk.header_value_size >= 0:
            value = _bytes(walk.at, walk.header_value_at, walk.header_value_size)
        # As Java does: a producer that writes no UTF-8 must not stop the consumers.
        headers.append((raw.decode("utf-8", "replace"), value))
        left -= 1
    return tuple(headers)


@cython.final
@cython.cclass
class RecordReader(Walk):
    """Iterates over the records of one batch, from an offset on.

    Offsets must rise and stay within the batch: compaction leaves gaps, nothing reorders.
    """

    def __init__(
        self,
        data,
        count: cython.longlong,
        last_delta: cython.longlong,
        base_offset: cython.longlong,
        base_timestamp: cython.longlong,
        append_timestamp=None,
        from_offset: cython.longlong = 0,
    ):
        Walk.__init__(self, data)
        self.count = count
        self.previous = -1
        self.last_delta = last_delta
        self.base_offset = base_offset
        self.base_timestamp = base_timestamp
        self.append_time = append_timestamp is not None
        self.append_timestamp = 0 if append_timestamp is None else append_timestamp
        self.from_offset = from_offset
        if not _count_fits(self, count):
            _stop_reading(self, BAD_COUNT, None)

    def __iter__(self):
        return self

    def __next__(self):
        record: Record | None = _take(self)
        if record is None:
            raise StopIteration
        return record

    def read_all(self):
        """The records that are left, as a list."""
        records: list = []
        record: Record | None = _take(self)
        while record is not None:
            records.append(record)
            record = _take(self)
        return records


@cython.cfunc
def _stop_reading(reader: RecordReader, reason: cython.int, record):
    """Refuse, and make the iterator one that is finished."""
    reader.count = 0
    reader.pos = reader.end
    _refuse(reason, record)


@cython.cfunc
def _take(reader: RecordReader) -> Record | None:
    """The next record from from_offset on; None after the last."""
    record: Record
    reason: cython.int
    offset: cython.longlong
    while reader.index < reader.count:
        reason = _step(reader)
        if reason == 0 and not reader.previous < reader.offset_delta <= reader.last_delta:
            reason = BAD_OFFSET
            reader.index -= 1
        if reason != 0:
            _stop_reading(reader, reason, reader.index)
        reader.previous = reader.offset_delta
        offset = _plus(reader.base_offset, reader.offset_delta)
        if offset < reader.from_offset:
            continue
        record = Record.__new__(Record)
        record.offset = offset
        if reader.append_time:
            record.timestamp = reader.append_timestamp
        else:
            record.timestamp = _plus(reader.base_timestamp, reader.timestamp_delta)
        if reader.key_size >= 0:
            record.key = _bytes(reader.at, reader.key_at, reader.key_size)
        else:
            record.key = None
        if reader.value_size >= 0:
            record.value = _bytes(reader.at, reader.value_at, reader.value_size)
        else:
            record.value = None
        record.headers = _headers(reader) if reader.header_count > 0 else ()
        return record
    if reader.pos != reader.end:
        _stop_reading(reader, BAD_TAIL, None)
    return None


# --- columns out of records ------------------------------------------------------------------


@cython.cfunc
@cython.exceptval(check=False)
def _is_utf8(
    p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.bint:
    """Whether the bytes are UTF-8 as Python and Arrow define it: shortest form, no surrogates."""
    end: cython.Py_ssize_t = at + size
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
        # Only the second byte has narrower limits, after these four first bytes.
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


@cython.final
@cython.cclass
class ColumnWriter:
    """Arrow's buffers, filled batch by batch. They are whole after `finish`.

    Each buffer is a bytearray that may be longer than what is in use. A batch that is refused
    leaves the columns as they were.
    """

    def __init__(self, rows_expected: cython.Py_ssize_t = 0, bytes_expected: cython.Py_ssize_t = 0):
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
        _reserve_rows(self, rows_expected)
        _reserve(self.value_data, bytes_expected)

    def add(
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
        walk: Walk = Walk(data)
        if not _count_fits(walk, count):
            _refuse(BAD_COUNT)
        _reserve_batch(self, count, walk.size)
        before: tuple = _sizes(self)
        append_time: cython.bint = append_timestamp is not None
        timestamp: cython.longlong = append_timestamp if append_time else 0
        offset: cython.longlong
        previous: cython.longlong = -1
        reason: cython.int = 0
        row: cython.Py_ssize_t = self.rows
        key_size: cython.Py_ssize_t = self.key_size
        value_size: cython.Py_ssize_t = self.value_size
        # No buffer of these moves while the batch is read: there is room for all of it.
        offsets: cython.p_uchar = _pointer(self.offsets)
        timestamps: cython.p_uchar = _pointer(self.timestamps)
        key_offsets: cython.p_uchar = _pointer(self.key_offsets)
        key_data: cython.p_uchar = _pointer(self.key_data)
        value_offsets: cython.p_uchar = _pointer(self.value_offsets)
        value_data: cython.p_uchar = _pointer(self.value_data)
        header_offsets: cython.p_uchar = _pointer(self.header_offsets)
        while walk.index < count:
            reason = _step(walk)
            if reason == 0 and not previous < walk.offset_delta <= last_delta:
                walk.index -= 1
                reason = BAD_OFFSET
            if reason != 0:
                break
            previous = walk.offset_delta
            offset = _plus(base_offset, previous)
            if offset < from_offset:
                continue
            if offset >= to_offset:
                walk.pos = walk.end
                break
            _put64(offsets, row, offset)
            if not append_time:
                timestamp = _plus(base_timestamp, walk.timestamp_delta)
            _put64(timestamps, row, timestamp)
            if walk.key_size >= 0:
                _copy(key_data, key_size, walk.at, walk.key_at, walk.key_size)
                key_size += walk.key_size
            else:
                _clear_bit(_pointer(self.key_validity), row)
                self.key_nulls += 1
            if walk.value_size >= 0:
                _copy(value_data, value_size, walk.at, walk.value_at, walk.value_size)
                value_size += walk.value_size
            else:
                _clear_bit(_pointer(self.value_validity), row)
                self.value_nulls += 1
            if walk.header_count > 0:
                _add_headers(self, walk)
            row += 1
            _put32(key_offsets, row, key_size)
            _put32(value_offsets, row, value_size)
            _put32(header_offsets, row, self.headers)
        if reason == 0 and walk.pos != walk.end:
            reason = BAD_TAIL
        if reason != 0:
            _roll_back(self, before, row + 1)
            _refuse(reason, None if reason == BAD_TAIL else walk.index)
        self.rows = row
        self.key_size = key_size
        self.value_size = value_size

    def finish(self):
        """Cut every buffer to what is in use."""
        _resize(self.offsets, self.rows * 8)
        _resize(self.timestamps, self.rows * 8)
        _resize(self.key_offsets, self.rows * 4 + 4)
        _resize(self.key_data, self.key_size)
        _finish_bits(self.key_validity, self.rows)
        _resize(self.value_offsets, self.rows * 4 + 4)
        _resize(self.value_data, self.value_size)
        _finish_bits(self.value_validity, self.rows)
        _resize(self.header_offsets, self.rows * 4 + 4)
        _resize(self.header_key_offsets, self.headers * 4 + 4)
        _resize(self.header_key_data, self.header_key_size)
        _resize(self.header_value_offsets, self.headers * 4 + 4)
        _resize(self.header_value_data, self.header_value_size)
        _finish_bits(self.header_value_validity, self.headers)


@cython.cfunc
def _reserve_rows(columns: ColumnWriter, rows: cython.Py_ssize_t):
    _reserve(columns.offsets, rows * 8)
    _reserve(columns.timestamps, rows * 8)
    _reserve(columns.key_offsets, rows * 4 + 4)
    _reserve_bits(columns.key_validity, rows)
    _reserve(columns.value_offsets, rows * 4 + 4)
    _reserve_bits(columns.value_validity, rows)
    _reserve(columns.header_offsets, rows * 4 + 4)


@cython.cfunc
def _reserve_batch(columns: ColumnWriter, count: cython.Py_ssize_t, size: cython.longlong):
    """Make room for a batch of so many records and bytes, whatever is in it."""
    room: cython.longlong = INT32_MAX - size
    if (
        columns.key_size > room
        or columns.value_size > room
        or columns.header_key_size > room - 2 * size  # a byte that is not UTF-8 becomes three
        or columns.header_value_size > room
        or columns.headers > room
    ):
        raise ColumnsTooLarge(
            "more than 2 GiB of keys, values or headers do not fit a column: read fewer records"
        )
    _reserve_rows(columns, columns.rows + count)
    _reserve(columns.key_data, columns.key_size + size)
    _reserve(columns.value_data, columns.value_size + size)


@cython.cfunc
def _add_mended_key(columns: ColumnWriter, walk: Walk, more: cython.Py_ssize_t):
    """Append a header's key that is not UTF-8, with its bad bytes replaced as _headers does."""
    raw: bytes = _bytes(walk.at, walk.header_key_at, walk.header_key_size)
    mended: bytes = raw.decode("utf-8", "replace").encode("utf-8")
    size: cython.Py_ssize_t = len(mended)
    _reserve(columns.header_key_data, columns.header_key_size + size + more)
    if cython.compiled:
        memcpy(
            _pointer(columns.header_key_data) + columns.header_key_size,
            PyBytes_AS_STRING(mended),
            size,
        )
    else:
        columns.header_key_data[columns.header_key_size : columns.header_key_size + size] = mended
    columns.header_key_size += size


@cython.cfunc
def _add_headers(columns: ColumnWriter, walk: Walk):
    """Append the headers of the record that was just stepped over."""
    pos: cython.Py_ssize_t = walk.headers_at
    left: cython.Py_ssize_t = walk.header_count
    size: cython.Py_ssize_t = walk.pos - pos
    _reserve(columns.header_key_offsets, (columns.headers + left) * 4 + 4)
    _reserve(columns.header_key_data, columns.header_key_size + size)
    _reserve(columns.header_value_offsets, (columns.headers + left) * 4 + 4)
    _reserve(columns.header_value_data, columns.header_value_size + size)
    _reserve_bits(columns.header_value_validity, columns.headers + left)
    while left > 0:
        pos = _step_header(walk, pos, walk.pos)
        if _is_utf8(walk.at, walk.header_key_at, walk.header_key_size):
            _copy(
                _pointer(columns.header_key_data),
                columns.header_key_size,
                walk.at,
                walk.header_key_at,
                walk.header_key_size,
            )
            columns.header_key_size += walk.header_key_size
        else:
            _add_mended_key(columns, walk, size)
        if walk.header_value_size >= 0:
            _copy(
                _pointer(columns.header_value_data),
                columns.header_value_size,
                walk.at,
                walk.header_value_at,
                walk.header_value_size,
            )
            columns.header_value_size += walk.header_value_size
        else:
            _clear_bit(_pointer(columns.header_value_validity), columns.headers)
            columns.header_value_nulls += 1
        columns.headers += 1
        _put32(_pointer(columns.header_key_offsets), columns.headers, columns.header_key_size)
        _put32(_pointer(columns.header_value_offsets), columns.headers, columns.header_value_size)
        left -= 1


@cython.cfunc
def _sizes(columns: ColumnWriter) -> tuple:
    return (
        columns.key_nulls,
        columns.value_nulls,
        columns.headers,
        columns.header_value_nulls,
        columns.header_key_size,
        columns.header_value_size,
    )


@cython.cfunc
def _roll_back(columns: ColumnWriter, before: tuple, rows: cython.Py_ssize_t):
    """Undo a batch of which some rows and headers were written, up to but not including rows."""
    headers: cython.Py_ssize_t = columns.headers
    columns.key_nulls, columns.value_nulls, columns.headers = before[:3]
    columns.header_value_nulls, columns.header_key_size, columns.header_value_size = before[3:]
    _set_bits(columns.key_validity, columns.rows, rows)
    _set_bits(columns.value_validity, columns.rows, rows)
    _set_bits(columns.header_value_validity, columns.headers, headers)


@cython.cfunc
def _set_bits(buffer: bytearray, bit: cython.Py_ssize_t, end: cython.Py_ssize_t):
    out: cython.p_uchar = _pointer(buffer)
    end = min(end, len(buffer) * 8)
    while bit < end:
        out[bit >> 3] |= 1 << (bit & 7)
        bit += 1


@cython.cfunc
def _finish_bits(buffer: bytearray, bits: cython.Py_ssize_t):
    """Cut to so many bits; those that fill the last byte are zero."""
    _resize(buffer, (bits + 7) >> 3)
    if bits & 7:
        _pointer(buffer)[bits >> 3] &= (1 << (bits & 7)) - 1


# --- records out of columns ------------------------------------------------------------------


@cython.cfunc
def _hold_offsets(
    offsets, start: cython.Py_ssize_t, length: cython.Py_ssize_t, wide: cython.bint
) -> Held:
    """The offsets of a column: one more than it has rows, of 32 or 64 bits."""
    held: Held = Held(offsets)
    # Divided, not multiplied: a row number can be too large to be made a position.
    if start < 0 or length < 0 or start > (held.size >> (3 if wide else 2)) - 1 - length:
        raise ValueError("a column has fewer offsets than rows")
    return held


@cython.cfunc
def _hold_validity(validity, start: cython.Py_ssize_t, length: cython.Py_ssize_t) -> Held | None:
    if validity is None:
        return None
    held: Held = Held(validity)
    if start + length > held.size * 8:
        raise ValueError("a column has fewer validity bits than rows")
    return held


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_valid(validity: Held | None, row: cython.Py_ssize_t) -> cython.bint:
    if validity is None:
        return True
    return (validity.at[row >> 3] >> (row & 7)) & 1 != 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _offset(held: Held, row: cython.Py_ssize_t, wide: cython.bint) -> cython.longlong:
    return _get64(held.at, row) if wide else _get32(held.at, row)


@cython.final
@cython.cclass
class BinaryColumn:
    """Rows of bytes as Arrow lays them out: offsets into data, and a bit per row that has any."""

    def __init__(
        self,
        offsets,
        data,
        validity,
        length: cython.Py_ssize_t,
        start: cython.Py_ssize_t = 0,
        wide: cython.bint = False,
    ):
        self.offsets = _hold_offsets(offsets, start, length, wide)
        self.data = Held(data)
        self.validity = _hold_validity(validity, start, length)
        self.length = length
        self.start = start
        self.wide = wide


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _begin(column: BinaryColumn, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Where a row's bytes begin, which _cell_size has found to be within the data."""
    return _offset(column.offsets, column.start + row, column.wide)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _cell_size(column: BinaryColumn | None, row: cython.Py_ssize_t) -> cython.longlong:
    """The length of a row's bytes: -1 for null, -2 when its offsets are outside the data."""
    begin: cython.longlong
    end: cython.longlong
    if column is None or not _is_valid(column.validity, column.start + row):
        return -1
    begin = _offset(column.offsets, column.start + row, column.wide)
    end = _offset(column.offsets, column.start + row + 1, column.wide)
    if begin < 0 or end < begin or end > column.data.size:
        return -2
    return end - begin


@cython.final
@cython.cclass
class HeaderColumn:
    """Lists of headers: per row, a range of rows in a column of keys and in one of values."""

    def __init__(
        self,
        offsets,
        validity,
        keys: BinaryColumn,
        values: BinaryColumn,
        length: cython.Py_ssize_t,
        start: cython.Py_ssize_t = 0,
        wide: cython.bint = False,
    ):
        self.offsets = _hold_offsets(offsets, start, length, wide)
        self.validity = _hold_validity(validity, start, length)
        self.keys = keys
        self.values = values
        self.length = length
        self.start = start
        self.wide = wide


@cython.final
@cython.cclass
class TimestampColumn:
    """A row of 64 bits each: milliseconds."""

    def __init__(self, values, length: cython.Py_ssize_t):
        self.values = Held(values)
        self.length = length
        if length < 0 or length > self.values.size >> 3:
            raise ValueError("the timestamps are fewer than the rows")


@cython.cfunc
def _headers_size(
    column: HeaderColumn, first: cython.longlong, count: cython.longlong
) -> cython.Py_ssize_t:
    """The bytes that so many headers take, with their count."""
    size: cython.Py_ssize_t = _uvarint_size(_zigzag(count))
    row: cython.Py_ssize_t
    cell: cython.longlong
    for row in range(first, first + count):
        cell = _cell_size(column.keys, row)
        if cell < 0 or not _is_utf8(column.keys.data.at, _begin(column.keys, row), cell):
            raise ValueError("a header's key is null, not UTF-8, or outside its column")
        size += _uvarint_size(_zigzag(cell)) + cell
        cell = _cell_size(column.values, row)
        if cell < -1:
            raise ValueError("a header's value is outside its column")
        size += _uvarint_size(_zigzag(cell)) + max(cell, 0)
        if size > INT32_MAX:
            raise ValueError("a record has more than 2 GiB")
    return size


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
    pos = _put_uvarint(out, pos, _zigzag(size))
    if size > 0:
        _copy(out, pos, column.data.at, _begin(column, row), size)
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
    row: cython.Py_ssize_t
    pos = _put_uvarint(out, pos, _zigzag(count))
    for row in range(first, first + count):
        pos = _put_cell(out, pos, column.keys, row, _cell_size(column.keys, row))
        pos = _put_cell(out, pos, column.values, row, _cell_size(column.values, row))
    return pos


@cython.cfunc
def _header_count(column: HeaderColumn, row: cython.Py_ssize_t) -> cython.longlong:
    """How many headers a row has, all of which are in their columns."""
    first: cython.longlong
    end: cython.longlong
    if not _is_valid(column.validity, column.start + row):
        return 0
    first = _offset(column.offsets, column.start + row, column.wide)
    end = _offset(column.offsets, column.start + row + 1, column.wide)
    if not 0 <= first <= end <= column.keys.length or end > column.values.length:
        raise ValueError("the headers of a row are outside their columns")
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
    """Encode rows from start on, while the batch has at most limit bytes; the first row always.

    A column that is None is all null; without timestamps every row has the one given. Returns
    (buffer, next row, timestamp of the first record, largest timestamp). The buffer begins with
    room for a batch header.
    """
    if limit > INT32_MAX:
        raise ValueError("rows or limit out of range")
    appender: RecordAppender = RecordAppender(max(0, limit))
    row: cython.Py_ssize_t = _append_rows(
        appender, keys, values, headers, timestamps, timestamp, start, stop
    )
    buffer: bytearray = appender.buffer
    _resize(buffer, appender.size)
    return buffer, row, appender.base_timestamp, appender.max_timestamp


def larger_row(
    keys: BinaryColumn | None,
    values: BinaryColumn | None,
    headers: HeaderColumn | None,
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    limit: cython.longlong,
):
    """The first row that may take more than limit bytes in a batch of its own, and how many.

    (stop, 0) when there is none. ValueError for rows that cannot be encoded.
    """
    row: cython.Py_ssize_t
    size: cython.longlong
    key_size: cython.longlong
    value_size: cython.longlong
    count: cython.longlong
    overhead: cython.longlong = HEADER_SIZE + RECORD_OVERHEAD_MAX
    if start < 0 or start > stop:
        raise ValueError("rows out of range")
    for column in (keys, values, headers):
        if column is not None and column.length < stop:
            raise ValueError("a column has fewer rows than are to be encoded")
    for row in range(start, stop):
        key_size = _cell_size(keys, row)
        value_size = _cell_size(values, row)
        if key_size < -1 or value_size < -1:
            raise ValueError("a key or value is outside its column")
        size = overhead + max(key_size, 0) + max(value_size, 0)
        count = _header_count(headers, row) if headers is not None else 0
        if count > 0:
            size += _headers_size(
                headers, _offset(headers.offsets, headers.start + row, headers.wide), count
            )
        if size > limit:
            return row, size
    return stop, 0


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
    """Append rows while they fit; the row behind them. What raises changes nothing."""
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
    if start < 0 or start > stop:
        raise ValueError("rows or limit out of range")
    for column in (keys, values, headers, timestamps):
        if column is not None and column.length < stop:
            raise ValueError("a column has fewer rows than are to be encoded")
    buffer: bytearray = appender.buffer
    # A guess that most batches of small records do not outgrow.
    _reserve(buffer, pos + 256 + max(0, min(limit - pos, min(stop - start, limit) * 160)))
    room: cython.Py_ssize_t = len(buffer)
    out: cython.p_uchar = _pointer(buffer)
    while row < stop:
        if timestamps is not None:
            timestamp = _get64(timestamps.values.at, row)
        if delta == 0:
            base_timestamp = max_timestamp = timestamp
        key_size = _cell_size(keys, row)
        value_size = _cell_size(values, row)
        if key_size < -1 or value_size < -1:
            raise ValueError("a key or value is outside its column")
        header_first = 0
        headers_size = 1
        header_count = _header_count(headers, row) if headers is not None else 0
        if header_count > 0:
            header_first = _offset(headers.offsets, headers.start + row, headers.wide)
            headers_size = _headers_size(headers, header_first, header_count)
        timestamp_zigzag = _zigzag(_minus(timestamp, base_timestamp))
        body = 1 + _uvarint_size(timestamp_zigzag) + _uvarint_size(_zigzag(delta))
        body += _uvarint_size(_zigzag(key_size)) + (key_size if key_size > 0 else 0)
        body += _uvarint_size(_zigzag(value_size)) + (value_size if value_size > 0 else 0)
        body += headers_size
        total = body + _uvarint_size(_zigzag(body))
        if pos + total > limit and delta > 0:
            break
        if pos + total > INT32_MAX:
            raise ValueError("a record has more than 2 GiB")
        if pos + total > room:
            _reserve(buffer, pos + total)
            out = _pointer(buffer)
            room = len(buffer)
        pos = _put_uvarint(out, pos, _zigzag(body))
        out[pos] = 0
        pos = _put_uvarint(out, pos + 1, timestamp_zigzag)
        pos = _put_uvarint(out, pos, _zigzag(delta))
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
    """Records of one batch, appended one at a time; `size` counts the header too.

    An append that would make the batch larger than its limit changes nothing and returns False;
    the first record is taken whatever its size.
    """

    def __init__(self, limit):
        if not 0 <= limit <= INT32_MAX:
            raise ValueError("a batch has less than 2 GiB")
        self.limit = limit
        self.count = 0
        self.base_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.size = HEADER_SIZE
        self.buffer = bytearray(min(limit, 16384) + HEADER_SIZE)

    def append(self, timestamp: cython.longlong, key, value, headers=()):
        """Append a record; False when it does not fit any more."""
        if not cython.compiled and not -(1 << 63) <= timestamp < 1 << 63:
            raise OverflowError("a timestamp has at most 64 bits")
        pairs: list | None = _header_pairs(headers) if headers else None
        return _append(self, timestamp, _as_bytes(key), _as_bytes(value), pairs)

    def extend(self, timestamp: cython.longlong, key, values: list, start: cython.Py_ssize_t = 0):
        """Append a record with this key for each value from `start` on; how many fitted."""
        if not cython.compiled and not -(1 << 63) <= timestamp < 1 << 63:
            raise OverflowError("a timestamp has at most 64 bits")
        if start < 0:
            raise ValueError("values are counted from 0")
        key_bytes: bytes | None = _as_bytes(key)
        index: cython.Py_ssize_t = start
        while index < len(values):
            if not _append(self, timestamp, key_bytes, _as_bytes(values[index]), None):
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
        """Append rows from start on; the row behind the last that fitted."""
        return _append_rows(self, keys, values, headers, timestamps, 0, start, stop)

    def encoded(self):
        """The batch so far, with room for its header in front; a copy."""
        return self.buffer[: self.size]

    def let_go(self):
        """Free the memory and take no more records; `size` and `count` stay."""
        self.limit = 0
        self.buffer = bytearray()


@cython.cclass
class RecordOfBatch:
    """A record of a batch that somebody has, by its number; one is made for each that is sent."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch, index: cython.Py_ssize_t):
        self._batch = batch
        self._index = index


@cython.cfunc
def _append(
    appender: RecordAppender,
    timestamp: cython.longlong,
    key_bytes: bytes | None,
    value_bytes: bytes | None,
    pairs: list | None,
) -> cython.bint:
    """Append a record; False, and nothing is changed, when it does not fit any more."""
    key_size: cython.longlong = -1 if key_bytes is None else len(key_bytes)
    value_size: cython.longlong = -1 if value_bytes is None else len(value_bytes)
    first: cython.bint = appender.count == 0
    timestamp_zigzag: cython.ulonglong = 0
    if not first:
        timestamp_zigzag = _zigzag(_minus(timestamp, appender.base_timestamp))
    body: cython.longlong = 1 + _uvarint_size(timestamp_zigzag)
    body += _uvarint_size(_zigzag(appender.count))
    body += _uvarint_size(_zigzag(key_size)) + (key_size if key_size > 0 else 0)
    body += _uvarint_size(_zigzag(value_size)) + (value_size if value_size > 0 else 0)
    body += 1 if pairs is None else _pairs_size(pairs)
    total: cython.longlong = body + _uvarint_size(_zigzag(body))
    pos: cython.Py_ssize_t = appender.size
    if pos + total > appender.limit and not first:
        return False
    if pos + total > INT32_MAX:
        raise ValueError("a batch has less than 2 GiB")
    _reserve(appender.buffer, pos + total)
    out: cython.p_uchar = _pointer(appender.buffer)
    pos = _put_uvarint(out, pos, _zigzag(body))
    out[pos] = 0
    pos = _put_uvarint(out, pos + 1, timestamp_zigzag)
    pos = _put_uvarint(out, pos, _zigzag(appender.count))
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
def _as_bytes(part) -> bytes | None:
    """Bytes as they are, other buffers copied, None as it is; anything else is a TypeError."""
    if part is None or type(part) is bytes:
        return part
    return _copied(part)


def not_bytes(part):
    """What to raise for a key, a value or a header's value of another type."""
    return TypeError(f"a record holds bytes, and not {type(part).__name__}: {NOT_BYTES}")


@cython.cfunc
def _copied(part) -> bytes:
    try:
        return bytes(memoryview(part))
    except TypeError:
        raise not_bytes(part) from None


@cython.cfunc
@cython.inline
def _put_bytes(
    out: cython.p_uchar, pos: cython.Py_ssize_t, part: bytes | None
) -> cython.Py_ssize_t:
    size: cython.Py_ssize_t
    if part is None:
        out[pos] = 1  # the varint of -1
        return pos + 1
    size = len(part)
    pos = _put_uvarint(out, pos, _zigzag(size))
    if cython.compiled:
        memcpy(out + pos, PyBytes_AS_STRING(part), size)
    else:
        out[pos : pos + size] = part
    return pos + size


@cython.cfunc
def _header_pairs(headers) -> list:
    """Keys encoded and both sides made bytes."""
    pairs: list = []
    for pair in headers:
        if type(pair) is str or len(pair) != 2:
            raise TypeError(NOT_PAIRS)
        pairs.append((pair[0].encode("utf-8"), _as_bytes(pair[1])))
    return pairs


@cython.cfunc
def _pairs_size(pairs: list) -> cython.Py_ssize_t:
    size: cython.Py_ssize_t = _uvarint_size(_zigzag(len(pairs)))
    part: bytes | None
    length: cython.Py_ssize_t
    for pair in pairs:
        for part in pair:
            length = -1 if part is None else len(part)
            size += _uvarint_size(_zigzag(length)) + max(length, 0)
    return size


@cython.cfunc
def _put_pairs(out: cython.p_uchar, pos: cython.Py_ssize_t, pairs: list) -> cython.Py_ssize_t:
    part: bytes | None
    pos = _put_uvarint(out, pos, _zigzag(len(pairs)))
    for pair in pairs:
        for part in pair:
            pos = _put_bytes(out, pos, part)
    return pos


# --- hashing ---------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _times(value: cython.uint) -> cython.uint:
    """Multiply by murmur2's constant, in 32 bits."""
    if cython.compiled:
        return value * 0x5BD1E995
    else:
        return (value * 0x5BD1E995) & 0xFFFFFFFF


@cython.cfunc
@cython.exceptval(check=False)
def _murmur2(
    p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.uint:
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


def murmur2(data):
    """Java's murmur2 of a key, as the signed number that Java has."""
    held: Held = Held(_as_bytes(data))
    hashed: cython.longlong = _murmur2(held.at, 0, held.size)
    return hashed - 0x100000000 if hashed >> 31 else hashed


def partitions(keys: BinaryColumn, count: cython.longlong):
    """The partition of each row's key, as 32-bit numbers; -1 for a row without a key."""
    row: cython.Py_ssize_t
    size: cython.longlong
    hashed: cython.longlong
    if not 0 < count <= INT32_MAX:
        raise ValueError("a topic has at least one partition")
    found: bytearray = bytearray(keys.length * 4)
    out: cython.p_uchar = _pointer(found)
    for row in range(keys.length):
        size = _cell_size(keys, row)
        if size < -1:
            raise ValueError("a key is outside its column")
        if size < 0:
            _put32(out, row, -1)
        else:
            hashed = _murmur2(keys.data.at, _begin(keys, row), size) & 0x7FFFFFFF
            _put32(out, row, hashed % count)
    return found


# --- compaction ------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _add64(a: cython.ulonglong, b: cython.ulonglong) -> cython.ulonglong:
    if cython.compiled:
        return a + b
    else:
        return (a + b) & 0xFFFF_FFFF_FFFF_FFFF


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _rotated(value: cython.ulonglong, bits: cython.int) -> cython.ulonglong:
    if cython.compiled:
        return (value << bits) | (value >> (64 - bits))
    else:
        return ((value << bits) | (value >> (64 - bits))) & 0xFFFF_FFFF_FFFF_FFFF


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _little64(
    p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.ulonglong:
    """At most eight bytes as a number, the lowest first."""
    value: cython.ulonglong = 0
    byte: cython.ulonglong
    while size > 0:
        size -= 1
        byte = p[at + size]
        value = (value << 8) | byte
    return value


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _word64(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.ulonglong:
    """Eight bytes as a number; written out, a compiler makes one load of it."""
    low: cython.uint
    high: cython.uint
    byte: cython.uint
    value: cython.ulonglong
    byte = p[at + 3]
    low = p[at] | (p[at + 1] << 8) | (p[at + 2] << 16) | (byte << 24)
    byte = p[at + 7]
    high = p[at + 4] | (p[at + 5] << 8) | (p[at + 6] << 16) | (byte << 24)
    value = high
    return (value << 32) | low


@cython.cfunc
@cython.exceptval(check=False)
def _hash_key(
    keys: KeyMap, p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.void:
    """SipHash-2-4 with 128 bits: who does not know the secret cannot make two keys collide."""
    v0: cython.ulonglong = keys.secret_low ^ 0x736F6D6570736575
    v1: cython.ulonglong = keys.secret_high ^ 0x646F72616E646F6D ^ 0xEE
    v2: cython.ulonglong = keys.secret_low ^ 0x6C7967656E657261
    v3: cython.ulonglong = keys.secret_high ^ 0x7465646279746573
    word: cython.ulonglong = 0
    length: cython.ulonglong = size & 0xFF
    words: cython.Py_ssize_t = size >> 3
    turn: cython.Py_ssize_t
    rounds: cython.int
    # The whole words, the rest with the length, and a turn for each half of the hash.
    for turn in range(words + 3):
        rounds = 2
        if turn < words:
            word = _word64(p, at + 8 * turn)
        elif turn == words:
            word = _little64(p, at + 8 * words, size & 7) | (length << 56)
        elif turn == words + 1:
            word = 0
            v2 ^= 0xEE
            rounds = 4
        else:
            v1 ^= 0xDD
            rounds = 4
        v3 ^= word
        while rounds > 0:
            rounds -= 1
            v0 = _add64(v0, v1)
            v1 = _rotated(v1, 13) ^ v0
            v0 = _rotated(v0, 32)
            v2 = _add64(v2, v3)
            v3 = _rotated(v3, 16) ^ v2
            v0 = _add64(v0, v3)
            v3 = _rotated(v3, 21) ^ v0
            v2 = _add64(v2, v1)
            v1 = _rotated(v1, 17) ^ v2
            v2 = _rotated(v2, 32)
        v0 ^= word
        if turn == words + 1:
            keys.hash_low = v0 ^ v1 ^ v2 ^ v3
    keys.hash_high = v0 ^ v1 ^ v2 ^ v3


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _find_slot(
    keys: KeyMap, p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Where a key is or would be; there is always a free slot, so this ends."""
    low: cython.longlong
    high: cython.longlong
    slot: cython.Py_ssize_t
    table: cython.p_uchar = _pointer(keys.table)
    _hash_key(keys, p, at, size)
    low = _plus(keys.hash_low, 0)  # signed, as numbers in the table are
    high = _plus(keys.hash_high, 0)
    slot = keys.hash_low % keys.slots_unsigned
    while _get64(table, 3 * slot + 2) != 0:
        if _get64(table, 3 * slot) == low and _get64(table, 3 * slot + 1) == high:
            return slot
        slot += 1
        if slot == keys.slots:
            slot = 0
    return slot


@cython.final
@cython.cclass
class KeyMap:
    """The last offset of each key, in a table that never grows.

    An entry has 24 bytes: the key's hash of 16 under a secret of 16, and the offset plus one, so
    that 0 is a free slot. `limit` is how many keys it takes: a table that is nearly full is slow.
    """

    def __init__(self, size, load_factor, secret):
        slots = size // 24
        if len(secret) != 16:
            raise ValueError("the secret has 16 bytes")
        if not 0 < load_factor <= 1 or slots < 2:
            raise ValueError("no room for a key: more bytes, or a load factor up to 1")
        self.slots = self.slots_unsigned = slots
        self.limit = min(max(int(slots * load_factor), 1), slots - 1)
        self.count = 0
        held: Held = Held(secret)
        self.secret_low = _little64(held.at, 0, 8)
        self.secret_high = _little64(held.at, 8, 8)
        self.table = bytearray(slots * 24)

    def add(
        self,
        data,
        count: cython.longlong,
        last_delta: cython.longlong,
        base_offset: cython.longlong,
        from_offset: cython.longlong,
    ):
        """Note the keys of a batch from an offset on; return how far it came.

        That is behind the batch's last offset, or at the record whose key does not fit any more.
        """
        walk: Walk = Walk(data)
        previous: cython.longlong = -1
        reason: cython.int
        offset: cython.longlong
        slot: cython.Py_ssize_t
        table: cython.p_uchar = _pointer(self.table)
        if not _count_fits(walk, count):
            _refuse(BAD_COUNT)
        while walk.index < count:
            reason = _step_compacted(walk, previous, last_delta)
            if reason != 0:
                _refuse(reason, walk.index)
            previous = walk.offset_delta
            offset = _plus(base_offset, walk.offset_delta)
            if walk.key_size < 0 or offset < from_offset:
                continue
            slot = _find_slot(self, walk.at, walk.key_at, walk.key_size)
            if _get64(table, 3 * slot + 2) == 0:
                if self.count == self.limit:
                    return offset
                self.count += 1
                _put64(table, 3 * slot, _plus(self.hash_low, 0))
                _put64(table, 3 * slot + 1, _plus(self.hash_high, 0))
            _put64(table, 3 * slot + 2, _plus(offset, 1))
        if walk.pos != walk.end:
            _refuse(BAD_TAIL)
        return _plus(_plus(base_offset, last_delta), 1)

    def get(self, key):
        """The last offset of a key; None when it was not noted."""
        held: Held = Held(key)
        slot: cython.Py_ssize_t = _find_slot(self, held.at, 0, held.size)
        offset: cython.longlong = _get64(_pointer(self.table), 3 * slot + 2)
        return None if offset == 0 else offset - 1

    def hash(self, key):
        """The hash of a key, 16 bytes."""
        held: Held = Held(key)
        _hash_key(self, held.at, 0, held.size)
        return self.hash_low.to_bytes(8, "little") + self.hash_high.to_bytes(8, "little")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _step_compacted(
    walk: Walk, previous: cython.longlong, last_delta: cython.longlong
) -> cython.int:
    """Go to the next record of a batch that may have gaps; or return a reason."""
    reason: cython.int = _step(walk)
    if reason == 0 and not previous < walk.offset_delta <= last_delta:
        walk.index -= 1
        return BAD_OFFSET
    return reason


def mark_kept(
    keys: KeyMap,
    data,
    count: cython.longlong,
    last_delta: cython.longlong,
    base_offset: cython.longlong,
    base_timestamp: cython.longlong,
    append_timestamp,
    mapped_until: cython.longlong,
    keep_tombstones: cython.bint,
):
    """Decide which records of a batch outlive compaction.

    A record stays if no later one below `mapped_until` has its key and it is no tombstone that
    may go; one from `mapped_until` on stays whatever it is; one without a key goes. Returns (a
    byte per record, how many stay, how many of these have no value, how many had no key, the
    timestamp of the first that stays, the largest timestamp of those).
    """
    walk: Walk = Walk(data)
    previous: cython.longlong = -1
    reason: cython.int
    offset: cython.longlong
    noted: cython.longlong
    slot: cython.Py_ssize_t
    timestamp: cython.longlong
    kept: cython.longlong = 0
    tombstones: cython.longlong = 0
    keyless: cython.longlong = 0
    first: cython.longlong = NO_TIMESTAMP
    latest: cython.longlong = NO_TIMESTAMP
    stays: cython.bint
    append_time: cython.bint = append_timestamp is not None
    appended: cython.longlong = 0 if append_timestamp is None else append_timestamp
    table: cython.p_uchar = _pointer(keys.table)
    if not _count_fits(walk, count):
        _refuse(BAD_COUNT)
    marks: bytearray = bytearray(count)
    out: cython.p_uchar = _pointer(marks)
    while walk.index < count:
        reason = _step_compacted(walk, previous, last_delta)
        if reason != 0:
            _refuse(reason, walk.index)
        previous = walk.offset_delta
        offset = _plus(base_offset, walk.offset_delta)
        if offset >= mapped_until:
            stays = True
        elif walk.key_size < 0:
            stays = False
            keyless += 1
        elif walk.value_size < 0 and not keep_tombstones:
            stays = False
        else:
            slot = _find_slot(keys, walk.at, walk.key_at, walk.key_size)
            noted = _get64(table, 3 * slot + 2)
            stays = offset >= _minus(noted, 1)
        if stays:
            timestamp = appended if append_time else _plus(base_timestamp, walk.timestamp_delta)
            if kept == 0:
                first = timestamp
            if timestamp > latest:
                latest = timestamp
            if walk.value_size < 0:
                tombstones += 1
            kept += 1
            out[walk.index - 1] = 1
    if walk.pos != walk.end:
        _refuse(BAD_TAIL)
    return marks, kept, tombstones, keyless, first, latest


def copy_kept(
    data,
    marks: bytearray,
    base_timestamp: cython.longlong,
    append_timestamp,
    new_base_timestamp: cython.longlong,
):
    """The records that are marked, with room for a header in front.

    Offset deltas stay; timestamps are counted from another base.
    """
    walk: Walk = Walk(data)
    count: cython.Py_ssize_t = len(marks)
    chosen: cython.p_uchar = _pointer(marks)
    append_time: cython.bint = append_timestamp is not None
    appended: cython.longlong = 0 if append_timestamp is None else append_timestamp
    same: cython.bint = not append_time and base_timestamp == new_base_timestamp
    start: cython.Py_ssize_t
    rest: cython.Py_ssize_t
    size: cython.Py_ssize_t
    body: cython.Py_ssize_t
    timestamp: cython.longlong
    delta: cython.ulonglong
    attributes: cython.uchar
    reason: cython.int
    pos: cython.Py_ssize_t = HEADER_SIZE
    buffer: bytearray = bytearray()
    _resize(buffer, HEADER_SIZE + walk.size)
    out: cython.p_uchar = _pointer(buffer)
    while walk.index < count:
        start = walk.pos
        reason = _step(walk)
        if reason != 0:
            _refuse(reason, walk.index)
        if chosen[walk.index - 1] == 0:
            continue
        if same:
            # What stays is never more than what was there.
            size = walk.pos - start
            _copy(out, pos, walk.at, start, size)
            pos += size
            continue
        rest = start + (_varint(walk.at, start, walk.pos) & 15)
        attributes = walk.at[rest]
        rest += 1
        rest += _varlong_size(walk.at, rest, walk.pos)
        timestamp = appended if append_time else _plus(base_timestamp, walk.timestamp_delta)
        delta = _zigzag(_minus(timestamp, new_base_timestamp))
        size = walk.pos - rest
        body = 1 + _uvarint_size(delta) + size
        if pos + body + 5 > INT32_MAX:
            raise ValueError("a batch has less than 2 GiB")
        _reserve(buffer, pos + body + 5)
        out = _pointer(buffer)
        pos = _put_uvarint(out, pos, _zigzag(body))
        out[pos] = attributes
        pos = _put_uvarint(out, pos + 1, delta)
        _copy(out, pos, walk.at, rest, size)
        pos += size
    _resize(buffer, pos)
    return buffer


# --- batches ---------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _big(p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.int) -> cython.longlong:
    """The signed number of so many bytes, the largest first."""
    value: cython.longlong = p[at] - 256 if p[at] & 0x80 else p[at]
    index: cython.int
    for index in range(1, size):
        value = value * 256 + p[at + index]
    return value


def right_batches(
    data,
    at: cython.Py_ssize_t,
    expected: cython.longlong,
    limit: cython.longlong,
    header,
    crc32c,
):
    """The headers of the batches from a place on that need no second look, and where they end.

    Each is whole, begins at the offset behind the one before it, the first at the one expected,
    ends below a limit, and has the right CRC. `header` is the type to make, of a batch's fields.
    """
    held: Held = Held(data)
    view = memoryview(data)
    p: cython.p_const_uchar = held.at
    length: cython.longlong
    delta: cython.longlong
    crc: cython.longlong
    found: list = []
    # So that neither the difference below nor the next offset overflows.
    if expected < 0 or limit < expected:
        return found, at
    while 0 <= at <= held.size - HEADER_SIZE:
        length = _big(p, at + 8, 4)
        delta = _big(p, at + 23, 4)
        if (
            p[at + 16] != 2
            or length < HEADER_SIZE - 12
            or length > held.size - at - 12
            or _big(p, at, 8) != expected
            or delta < 0
            or delta >= limit - expected
        ):
            break
        crc = _big(p, at + 17, 4) & 0xFFFFFFFF
        if crc32c(view[at + 21 : at + 12 + length]) != crc:
            break
        fields: tuple = (
            expected,
            length,
            _big(p, at + 12, 4),
            2,
            crc,
            _big(p, at + 21, 2),
            delta,
            _big(p, at + 27, 8),
            _big(p, at + 35, 8),
            _big(p, at + 43, 8),
            _big(p, at + 51, 2),
            _big(p, at + 53, 4),
            _big(p, at + 57, 4),
        )
        found.append(tuple.__new__(header, fields))
        at += 12 + length
        expected += delta + 1
    return found, at
