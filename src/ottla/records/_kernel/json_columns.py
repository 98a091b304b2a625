"""Parses JSON objects to Arrow columns, if they have the expected fields in their usual forms.

The other objects are left to the caller, as values without an object are: all their columns are
null. They may be correct, too. They have for example a nested field, a number where a text is
expected, the same field twice, or a date in another form.

Invariant: a parsed row has the values that Spark's `from_json` returns in a session with the time
zone UTC, and `from_json` finds nothing wrong with it.
"""

from __future__ import annotations

from struct import pack_into

try:
    import cython
except ImportError:
    from ottla.records._kernel import cython_stub as cython

if not cython.compiled:
    from ottla.records._kernel.buffers import (
        copy_bytes,
        get32,
        is_utf8_text,
        pointer,
        put32,
        put64,
        reserve,
        resize,
    )
    from ottla.records._kernel.columns import BinaryColumn, cell_begin, cell_size
    from ottla.records._kernel.constants import (
        INT32_MAX,
        JSON_BOOLEAN,
        JSON_DATE,
        JSON_DOUBLE,
        JSON_EXPONENT_MAX,
        JSON_INT,
        JSON_LONG,
        JSON_NUMBER_SIZE_MAX,
        JSON_OTHER,
        JSON_STRING,
        JSON_TIMESTAMP,
    )

    def bytes_pointer(part):
        """Return the address of a bytes object."""
        return part

    def has_bytes(p, at, end, part, size):
        """Return whether p[at:end] begins with these bytes."""
        return end - at >= size and p[at : at + size] == part

    def set_bit(out, bit):
        """Set a bit of an Arrow bitmap, in which the lowest bit of a byte comes first."""
        out[bit >> 3] |= 1 << (bit & 7)

    def put_double(out, index, value):
        """Store an element of an array of doubles, in native byte order."""
        pack_into("=d", out, index * 8, value)

    def parsed_double(p, at, size):
        """Return a number that is rounded correctly."""
        return float(bytes(p[at : at + size]))


@cython.final
@cython.cclass
class JsonField:
    """A field of the objects, and the buffers of its column after the objects are parsed.

    `data` has 4 bytes a row for integers and dates, 8 for longs, doubles and timestamps (in
    microseconds), a bit for booleans, and the text of strings, to which `offsets` belong.
    """

    def __init__(self, name: bytes, kind: cython.int, required: cython.bint = False):
        self.kind = kind
        self.required = required
        self.quoted = b'"' + name + b'"'
        self.quoted_at = bytes_pointer(self.quoted)
        self.quoted_size = len(self.quoted)
        self.validity = bytearray()
        self.offsets = bytearray()
        self.data = bytearray()
        self.size = 0
        self.number = 0

    @property
    def buffers(self):
        """Return the buffers of the Arrow array."""
        if self.kind == JSON_STRING:
            return self.validity, self.offsets, self.data
        return self.validity, self.data


def parse_json_objects(
    values: BinaryColumn, rows: cython.Py_ssize_t, fields: list, skips_unknown: cython.bint
):
    """Parse the first rows of a column; return a bitmap of the parsed ones and their number.

    An object with other fields than these is parsed only with `skips_unknown`.
    """
    row: cython.Py_ssize_t
    size: cython.longlong
    at: cython.Py_ssize_t
    count: cython.Py_ssize_t = 0
    field: JsonField
    if not 0 < len(fields) <= 64:  # each has a bit of a mask
        raise ValueError(f"{len(fields)} fields: expected 1 to 64")
    if not 0 <= rows <= values.length:
        raise ValueError(f"a column of {values.length} rows does not have {rows}")
    parsed: bytearray = bytearray((rows + 7) >> 3)
    for field in fields:
        _allocate(field, rows)
    for row in range(rows):
        size = cell_size(values, row)
        if size < -1:
            raise ValueError(f"row {row}: the value is outside its column")
        at = cell_begin(values, row) if size > 0 else 0
        if size > 0 and _parse(fields, values.data_at, at, at + size, row, skips_unknown):
            set_bit(pointer(parsed), row)
            count += 1
        else:
            for field in fields:
                _clear(field, row)
        for field in fields:
            if field.kind == JSON_STRING:
                put32(pointer(field.offsets), row + 1, field.size)
    for field in fields:
        if field.kind == JSON_STRING:
            resize(field.data, field.size)
    return parsed, count


@cython.cfunc
def _allocate(field: JsonField, rows: cython.Py_ssize_t):
    kind: cython.int = field.kind
    field.size = 0
    field.validity = bytearray((rows + 7) >> 3)
    if kind == JSON_STRING:
        field.offsets = bytearray(rows * 4 + 4)
        field.data = bytearray()
    elif kind == JSON_BOOLEAN:
        field.data = bytearray((rows + 7) >> 3)
    elif kind in (JSON_INT, JSON_DATE):
        field.data = bytearray(rows * 4)
    elif kind in (JSON_LONG, JSON_DOUBLE, JSON_TIMESTAMP):
        field.data = bytearray(rows * 8)
    else:
        raise ValueError(f"there is no kind {kind} of fields")


@cython.cfunc
def _clear(field: JsonField, row: cython.Py_ssize_t):
    """Make a row null that was stored in part."""
    pointer(field.validity)[row >> 3] &= 0xFF ^ (1 << (row & 7))
    if field.kind == JSON_STRING:
        field.size = get32(pointer(field.offsets), row)


# The functions below return where they have read to, or JSON_OTHER if the object is not parsed.


@cython.cfunc
def _parse(
    fields: list,
    p: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    row: cython.Py_ssize_t,
    skips_unknown: cython.bint,
) -> cython.bint:
    """Parse an object to a row; return whether it is parsed."""
    index: cython.Py_ssize_t = 0
    found: cython.Py_ssize_t
    count: cython.Py_ssize_t = len(fields)
    seen: cython.ulonglong = 0
    stored: cython.ulonglong = 0
    bit: cython.ulonglong
    one: cython.ulonglong = 1
    field: JsonField
    if p[at] != 0x7B:  # {
        return False
    at = _skip_space(p, at + 1, end)
    while True:
        if at >= end or p[at] != 0x22:  # "
            return False
        found = -1
        for _ in range(count):  # most objects have the fields in the same order
            field = fields[index]
            if has_bytes(p, at, end, field.quoted_at, field.quoted_size):
                found = index
                break
            index = index + 1 if index + 1 < count else 0
        if found >= 0:
            at += field.quoted_size
        elif skips_unknown:
            at = _skip_string(p, at + 1, end)
            if at < 0:
                return False
        else:
            return False
        at = _skip_space(p, at, end)
        if at >= end or p[at] != 0x3A:  # :
            return False
        at = _skip_space(p, at + 1, end)
        if at >= end:
            return False
        if found < 0:
            at = _skip_value(p, at, end)
        else:
            bit = one << found
            index = index + 1 if index + 1 < count else 0
            if seen & bit:
                return False
            seen |= bit
            if p[at] == 0x6E:  # n
                at = at + 4 if has_bytes(p, at, end, b"null", 4) else JSON_OTHER
            else:
                at = _store(field, row, p, at, end)
                stored |= bit
        if at < 0:
            return False
        at = _skip_space(p, at, end)
        if at >= end:
            return False
        if p[at] == 0x7D:  # }
            break
        if p[at] != 0x2C:  # ,
            return False
        at = _skip_space(p, at + 1, end)
    if _skip_space(p, at + 1, end) != end:
        return False
    bit = one
    for field in fields:
        if field.required and not stored & bit:
            return False
        bit <<= 1
    return True


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _skip_space(
    p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    while at < end and (p[at] == 0x20 or p[at] == 0x0A or p[at] == 0x0D or p[at] == 0x09):
        at += 1
    return at


@cython.cfunc
@cython.exceptval(check=False)
def _skip_string(
    p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Skip a string without escapes, from its first character to behind its quote."""
    begin: cython.Py_ssize_t = at
    byte: cython.int
    bits: cython.int = 0
    while at < end:
        byte = p[at]
        if byte == 0x22:
            if bits >= 0x80 and not is_utf8_text(p, begin, at):
                return JSON_OTHER
            return at + 1
        if byte < 0x20 or byte == 0x5C:  # a backslash
            return JSON_OTHER
        bits |= byte
        at += 1
    return JSON_OTHER


@cython.cfunc
@cython.exceptval(check=False)
def _skip_value(
    p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Skip the value of an unknown field, unless it is an object or an array."""
    byte: cython.int = p[at]
    if byte == 0x22:
        return _skip_string(p, at + 1, end)
    if byte == 0x6E:
        return at + 4 if has_bytes(p, at, end, b"null", 4) else JSON_OTHER
    if byte == 0x74:
        return at + 4 if has_bytes(p, at, end, b"true", 4) else JSON_OTHER
    if byte == 0x66:
        return at + 5 if has_bytes(p, at, end, b"false", 5) else JSON_OTHER
    if byte == 0x2D:  # -
        at += 1
    begin: cython.Py_ssize_t = at
    at = _skip_digits(p, at, end)
    if at == begin or (p[begin] == 0x30 and at > begin + 1):
        return JSON_OTHER
    if at < end and p[at] == 0x2E:  # .
        begin = at + 1
        at = _skip_digits(p, begin, end)
        if at == begin:
            return JSON_OTHER
    return at  # an exponent is not followed by a comma


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _skip_digits(
    p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    while at < end and 0x30 <= p[at] <= 0x39:
        at += 1
    return at


@cython.cfunc
def _store(
    field: JsonField,
    row: cython.Py_ssize_t,
    p: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Store the value of a field in its column."""
    kind: cython.int = field.kind
    byte: cython.int = p[at]
    if byte == 0x22:
        if kind == JSON_STRING:
            at = _store_string(field, p, at + 1, end)
        elif kind == JSON_TIMESTAMP:
            at = _timestamp(field, p, at + 1, end)
            put64(pointer(field.data), row, field.number)
        elif kind == JSON_DATE:
            at = _date(field, p, at + 1, end)
            at = at + 1 if 0 <= at < end and p[at] == 0x22 else JSON_OTHER
            put32(pointer(field.data), row, field.number)
        else:
            return JSON_OTHER
    elif kind == JSON_BOOLEAN:
        if has_bytes(p, at, end, b"true", 4):
            set_bit(pointer(field.data), row)
            at += 4
        elif has_bytes(p, at, end, b"false", 5):
            pointer(field.data)[row >> 3] &= 0xFF ^ (1 << (row & 7))
            at += 5
        else:
            return JSON_OTHER
    elif kind == JSON_DOUBLE:
        at = _store_double(field, row, p, at, end)
    elif kind in (JSON_INT, JSON_LONG):
        at = _integer(field, p, at, end)
        if kind == JSON_LONG:
            put64(pointer(field.data), row, field.number)
        elif -INT32_MAX - 1 <= field.number <= INT32_MAX:
            put32(pointer(field.data), row, field.number)
        else:
            return JSON_OTHER
    else:
        return JSON_OTHER
    if at >= 0:
        set_bit(pointer(field.validity), row)
    return at


@cython.cfunc
def _store_string(
    field: JsonField, p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Append a string, from its first character to behind its quote."""
    begin: cython.Py_ssize_t = at
    size: cython.Py_ssize_t
    byte: cython.int = 0
    bits: cython.int = 0
    escaped: cython.bint = False
    while at < end:
        byte = p[at]
        if byte == 0x22 or byte < 0x20:
            break
        if byte == 0x5C:
            escaped = True
            at += 1  # the next character does not end the string
        bits |= byte
        at += 1
    if at >= end or byte != 0x22:
        return JSON_OTHER
    size = at - begin
    if size > INT32_MAX - field.size or (bits >= 0x80 and not is_utf8_text(p, begin, at)):
        return JSON_OTHER
    reserve(field.data, field.size + size)
    if escaped:
        return at + 1 if _append_escaped(field, p, begin, at) else JSON_OTHER
    copy_bytes(pointer(field.data), field.size, p, begin, size)
    field.size += size
    return at + 1


@cython.cfunc
@cython.exceptval(check=False)
def _append_escaped(
    field: JsonField, p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.bint:
    """Append p[at:end], with its escaped characters replaced; return whether that is possible."""
    out: cython.p_uchar = pointer(field.data)
    to: cython.Py_ssize_t = field.size
    code: cython.int
    while at < end:
        code = p[at]
        at += 1
        if code != 0x5C:
            out[to] = code
            to += 1
            continue
        code = p[at]
        at += 1
        if code == 0x75:  # u
            if end - at < 4:
                return False
            code = _hex(p, at)
            at += 4
            if code < 0 or 0xD800 <= code <= 0xDFFF:  # half of a character
                return False
        elif code == 0x6E:
            code = 0x0A
        elif code == 0x74:
            code = 0x09
        elif code == 0x72:
            code = 0x0D
        elif code == 0x62:
            code = 0x08
        elif code == 0x66:
            code = 0x0C
        elif code != 0x22 and code != 0x5C and code != 0x2F:
            return False
        if code < 0x80:
            out[to] = code
            to += 1
        elif code < 0x800:
            out[to] = 0xC0 | code >> 6
            out[to + 1] = 0x80 | code & 0x3F
            to += 2
        else:
            out[to] = 0xE0 | code >> 12
            out[to + 1] = 0x80 | code >> 6 & 0x3F
            out[to + 2] = 0x80 | code & 0x3F
            to += 3
    field.size = to
    return True


@cython.cfunc
@cython.exceptval(check=False)
def _hex(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.int:
    """Return the number of four hexadecimal digits; -1 if they are not."""
    number: cython.int = 0
    byte: cython.int
    for _ in range(4):
        byte = p[at]
        at += 1
        if 0x30 <= byte <= 0x39:
            byte -= 0x30
        elif 0x61 <= byte <= 0x66:
            byte -= 0x57
        elif 0x41 <= byte <= 0x46:
            byte -= 0x37
        else:
            return -1
        number = number << 4 | byte
    return number


@cython.cfunc
@cython.exceptval(check=False)
def _integer(
    field: JsonField, p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Read an integer of at most 18 digits."""
    negative: cython.bint = p[at] == 0x2D
    begin: cython.Py_ssize_t = at + 1 if negative else at
    number: cython.longlong = 0
    field.number = 0
    at = begin
    while at < end and 0x30 <= p[at] <= 0x39:
        if at - begin == 18:
            return JSON_OTHER
        number = number * 10 + (p[at] - 0x30)
        at += 1
    if at == begin or (p[begin] == 0x30 and at > begin + 1):
        return JSON_OTHER
    field.number = -number if negative else number
    return at


@cython.cfunc
def _store_double(
    field: JsonField,
    row: cython.Py_ssize_t,
    p: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    begin: cython.Py_ssize_t = at
    first: cython.Py_ssize_t
    negative: cython.bint = p[at] == 0x2D
    number: cython.longlong = 0
    digits: cython.Py_ssize_t = 0
    exponent: cython.int = 0
    scale: cython.double = 1.0
    value: cython.double
    exact: cython.bint = True
    at = first = at + 1 if negative else at
    while at < end and 0x30 <= p[at] <= 0x39:
        if digits < 15:
            number = number * 10 + (p[at] - 0x30)
        digits += 1
        at += 1
    if at == first or (p[first] == 0x30 and at > first + 1):
        return JSON_OTHER
    if at < end and p[at] == 0x2E:
        at += 1
        first = at
        while at < end and 0x30 <= p[at] <= 0x39:
            if digits < 15:
                number = number * 10 + (p[at] - 0x30)
                scale *= 10.0
            digits += 1
            at += 1
        if at == first:
            return JSON_OTHER
    elif negative and number == 0:
        return JSON_OTHER  # Spark reads the integer 0, which has no sign
    if at < end and (p[at] == 0x65 or p[at] == 0x45):  # e, E
        exact = False
        at += 1
        if at < end and (p[at] == 0x2B or p[at] == 0x2D):
            at += 1
        first = at
        while at < end and 0x30 <= p[at] <= 0x39 and exponent <= JSON_EXPONENT_MAX:
            exponent = exponent * 10 + (p[at] - 0x30)
            at += 1
        if at == first or exponent > JSON_EXPONENT_MAX:
            return JSON_OTHER
    if exact and digits <= 15:
        value = number / scale  # both are exact, so that only the quotient is rounded
        value = -value if negative else value
    elif at - begin <= JSON_NUMBER_SIZE_MAX:
        value = parsed_double(p, begin, at - begin)
    else:
        return JSON_OTHER
    put_double(pointer(field.data), row, value)
    return at


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _two_digits(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.int:
    """Return the number of two digits; below 0 if they are not."""
    if 0x30 <= p[at] <= 0x39 and 0x30 <= p[at + 1] <= 0x39:
        return p[at] * 10 + p[at + 1] - 0x210
    return -10000


@cython.cfunc
@cython.exceptval(check=False)
def _date(
    field: JsonField, p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Read the days since 1970 of a date such as 2026-01-31, from the years 1000 to 2999."""
    year: cython.int
    month: cython.int
    day: cython.int
    last: cython.int
    leap: cython.bint
    if end - at < 10 or p[at + 4] != 0x2D or p[at + 7] != 0x2D:
        return JSON_OTHER
    year = _two_digits(p, at) * 100 + _two_digits(p, at + 2)
    month = _two_digits(p, at + 5)
    day = _two_digits(p, at + 8)
    if not (1000 <= year <= 2999 and 1 <= month <= 12 and day >= 1):
        return JSON_OTHER
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    last = 30 if month in (4, 6, 9, 11) else 31 if month != 2 else 29 if leap else 28
    if day > last:
        return JSON_OTHER
    # The year begins in March here, so that a leap day is its last one.
    year = year - 1 if month <= 2 else year
    month = month + 9 if month <= 2 else month - 3
    day += year * 365 + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5
    field.number = day - 719469
    return at + 10


@cython.cfunc
@cython.exceptval(check=False)
def _timestamp(
    field: JsonField, p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Read the microseconds since 1970 of a time such as 2026-01-31T12:00:00.5+01:00.

    It is in UTC without a zone. Begins after the first quote and ends after the second one.
    """
    hour: cython.int
    minute: cython.int
    second: cython.int
    unit: cython.int = 1_000_000
    fraction: cython.int = 0
    zone: cython.longlong = 0
    negative: cython.bint
    at = _date(field, p, at, end)
    if at < 0 or end - at < 10:
        return JSON_OTHER
    hour = _two_digits(p, at + 1)
    minute = _two_digits(p, at + 4)
    second = _two_digits(p, at + 7)
    if (p[at] != 0x54 and p[at] != 0x20) or p[at + 3] != 0x3A or p[at + 6] != 0x3A:
        return JSON_OTHER
    if not (0 <= hour <= 23 and 0 <= minute <= 59 and 0 <= second <= 59):
        return JSON_OTHER
    at += 9
    if p[at] == 0x2E:
        at += 1
        while at < end and 0x30 <= p[at] <= 0x39:
            unit //= 10
            fraction += (p[at] - 0x30) * unit
            at += 1
            if unit == 0:  # more than microseconds
                return JSON_OTHER
        if unit == 1_000_000 or at >= end:
            return JSON_OTHER
    if p[at] == 0x5A:  # Z
        at += 1
    elif p[at] == 0x2B or p[at] == 0x2D:
        negative = p[at] == 0x2D
        if end - at < 7 or p[at + 3] != 0x3A:
            return JSON_OTHER
        zone = _two_digits(p, at + 1)
        if not (0 <= zone <= 17 and 0 <= _two_digits(p, at + 4) <= 59):
            return JSON_OTHER
        zone = zone * 60 + _two_digits(p, at + 4)
        zone = -zone if negative else zone
        at += 6
    if at >= end or p[at] != 0x22:
        return JSON_OTHER
    field.number = field.number * 86_400 + hour * 3600 + minute * 60 + second - zone * 60
    field.number = field.number * 1_000_000 + fraction
    return at + 1
