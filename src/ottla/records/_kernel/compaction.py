"""Decides which records of a batch survive compaction, and copies them.

Kafka's log cleaner has the same parts: an offset map (SkimpyOffsetMap) and a filter of records.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from ottla.records._kernel import cython_stub as cython

if not cython.compiled:
    from ottla.records._kernel.buffers import (
        BufferView,
        copy_bytes,
        get64,
        pointer,
        put64,
        reserve,
        resize,
    )
    from ottla.records._kernel.constants import (
        BAD_COUNT,
        BAD_OFFSET,
        BAD_TAIL,
        HEADER_SIZE,
        INT32_MAX,
        NO_TIMESTAMP,
    )
    from ottla.records._kernel.integers import (
        add64,
        put_uvarint,
        subtract64,
        uvarint_size,
        zigzag,
    )
    from ottla.records._kernel.parser import (
        RecordParser,
        count_is_possible,
        decode_varint,
        parse_record,
        raise_corrupt,
        varlong_size,
    )

    _MASK = 0xFFFF_FFFF_FFFF_FFFF


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _add_unsigned(a: cython.ulonglong, b: cython.ulonglong) -> cython.ulonglong:
    """Add two unsigned 64-bit integers; an overflow wraps."""
    return a + b if cython.compiled else (a + b) & _MASK


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _rotate_left(value: cython.ulonglong, bits: cython.int) -> cython.ulonglong:
    """Rotate a 64-bit integer to the left."""
    high: cython.ulonglong = value << bits if cython.compiled else value << bits & _MASK
    return high | (value >> (64 - bits))


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _little_endian(
    p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.ulonglong:
    """Load a little-endian integer of at most eight bytes."""
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
def _load_word(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.ulonglong:
    """Load a little-endian integer of eight bytes; compilers turn this form into one load."""
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
    offsets: OffsetMap, p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.void:
    """Compute the SipHash-2-4 of a key, 128 bits, into hash_low and hash_high.

    Nobody can construct keys that collide without knowing the secret.
    """
    v0: cython.ulonglong = offsets.secret_low ^ 0x736F6D6570736575
    v1: cython.ulonglong = offsets.secret_high ^ 0x646F72616E646F6D ^ 0xEE
    v2: cython.ulonglong = offsets.secret_low ^ 0x6C7967656E657261
    v3: cython.ulonglong = offsets.secret_high ^ 0x7465646279746573
    word: cython.ulonglong = 0
    length: cython.ulonglong = size & 0xFF
    words: cython.Py_ssize_t = size >> 3
    turn: cython.Py_ssize_t
    rounds: cython.int
    # The complete words, the remaining bytes with the length, and a turn per half of the hash.
    for turn in range(words + 3):
        rounds = 2
        if turn < words:
            word = _load_word(p, at + 8 * turn)
        elif turn == words:
            word = _little_endian(p, at + 8 * words, size & 7) | (length << 56)
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
            v0 = _add_unsigned(v0, v1)
            v1 = _rotate_left(v1, 13) ^ v0
            v0 = _rotate_left(v0, 32)
            v2 = _add_unsigned(v2, v3)
            v3 = _rotate_left(v3, 16) ^ v2
            v0 = _add_unsigned(v0, v3)
            v3 = _rotate_left(v3, 21) ^ v0
            v2 = _add_unsigned(v2, v1)
            v1 = _rotate_left(v1, 17) ^ v2
            v2 = _rotate_left(v2, 32)
        v0 ^= word
        if turn == words + 1:
            offsets.hash_low = v0 ^ v1 ^ v2 ^ v3
    offsets.hash_high = v0 ^ v1 ^ v2 ^ v3


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _find_slot(
    offsets: OffsetMap, p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Return the slot of a key, or the free slot where it belongs; there is always a free one."""
    low: cython.longlong
    high: cython.longlong
    slot: cython.Py_ssize_t
    table: cython.p_uchar = pointer(offsets.table)
    _hash_key(offsets, p, at, size)
    low = add64(offsets.hash_low, 0)  # signed, as the numbers in the table
    high = add64(offsets.hash_high, 0)
    slot = offsets.hash_low % offsets.slots_unsigned
    while get64(table, 3 * slot + 2) != 0:
        if get64(table, 3 * slot) == low and get64(table, 3 * slot + 1) == high:
            return slot
        slot += 1
        if slot == offsets.slots:
            slot = 0
    return slot


@cython.final
@cython.cclass
class OffsetMap:
    """The last offset of each key, in a hash table of fixed size.

    An entry has 24 bytes: 16 of the key's hash, and the offset plus one, so that 0 marks a free
    slot. `limit` is the number of keys that the map accepts, because a nearly full table is slow.

    Invariant: count <= limit < slots.
    """

    def __init__(self, size, load_factor, secret):
        slots = size // 24
        if len(secret) != 16:
            raise ValueError(f"the hash secret must have 16 bytes, not {len(secret)}")
        if not 0 < load_factor <= 1 or slots < 2:
            raise ValueError(
                f"{size} bytes with a load factor of {load_factor} have no room for a key: "
                "use at least 48 bytes and a load factor above 0 and up to 1"
            )
        self.slots = self.slots_unsigned = slots
        self.limit = min(max(int(slots * load_factor), 1), slots - 1)
        self.count = 0
        view: BufferView = BufferView(secret)
        self.secret_low = _little_endian(view.at, 0, 8)
        self.secret_high = _little_endian(view.at, 8, 8)
        self.table = bytearray(slots * 24)

    def add_batch(
        self,
        data,
        count: cython.longlong,
        last_delta: cython.longlong,
        base_offset: cython.longlong,
        from_offset: cython.longlong,
    ):
        """Add the keys of a batch from `from_offset` on; return the next offset to add.

        That is the offset after the batch, or that of the first record whose key does not fit.
        """
        parser: RecordParser = RecordParser(data)
        previous: cython.longlong = -1
        reason: cython.int
        offset: cython.longlong
        slot: cython.Py_ssize_t
        table: cython.p_uchar = pointer(self.table)
        if not count_is_possible(parser, count):
            raise_corrupt(BAD_COUNT, None)
        while parser.index < count:
            reason = _parse_next(parser, previous, last_delta)
            if reason != 0:
                raise_corrupt(reason, parser.index)
            previous = parser.offset_delta
            offset = add64(base_offset, parser.offset_delta)
            if parser.key_size < 0 or offset < from_offset:
                continue
            slot = _find_slot(self, parser.at, parser.key_at, parser.key_size)
            if get64(table, 3 * slot + 2) == 0:
                if self.count == self.limit:
                    return offset
                self.count += 1
                put64(table, 3 * slot, add64(self.hash_low, 0))
                put64(table, 3 * slot + 1, add64(self.hash_high, 0))
            put64(table, 3 * slot + 2, add64(offset, 1))
        if parser.pos != parser.end:
            raise_corrupt(BAD_TAIL, None)
        return add64(add64(base_offset, last_delta), 1)

    def get(self, key):
        """Return the last offset of a key; None if the map does not have it."""
        view: BufferView = BufferView(key)
        slot: cython.Py_ssize_t = _find_slot(self, view.at, 0, view.size)
        offset: cython.longlong = get64(pointer(self.table), 3 * slot + 2)
        return None if offset == 0 else offset - 1

    def hash(self, key):
        """Return the hash of a key, 16 bytes."""
        view: BufferView = BufferView(key)
        _hash_key(self, view.at, 0, view.size)
        return self.hash_low.to_bytes(8, "little") + self.hash_high.to_bytes(8, "little")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _parse_next(
    parser: RecordParser, previous: cython.longlong, last_delta: cython.longlong
) -> cython.int:
    """Parse the next record of a batch that may have gaps; return 0 or a reason."""
    reason: cython.int = parse_record(parser)
    if reason == 0 and not previous < parser.offset_delta <= last_delta:
        parser.index -= 1
        return BAD_OFFSET
    return reason


def mark_retained(
    offsets: OffsetMap,
    data,
    count: cython.longlong,
    last_delta: cython.longlong,
    base_offset: cython.longlong,
    base_timestamp: cython.longlong,
    append_timestamp,
    map_end: cython.longlong,
    keep_tombstones: cython.bint,
):
    """Decide which records of a batch survive compaction.

    Records from the offset `map_end` on survive, because the map does not cover them. Below it a
    record survives if it has a key, no later record has that key, and it is not a tombstone (unless
    `keep_tombstones`). Return (a byte per record, number that survive, tombstones among them,
    records without a key, timestamp of the first that survives, max timestamp of them).
    """
    parser: RecordParser = RecordParser(data)
    previous: cython.longlong = -1
    reason: cython.int
    offset: cython.longlong
    stored: cython.longlong
    slot: cython.Py_ssize_t
    timestamp: cython.longlong
    retained: cython.longlong = 0
    tombstones: cython.longlong = 0
    keyless: cython.longlong = 0
    first: cython.longlong = NO_TIMESTAMP
    latest: cython.longlong = NO_TIMESTAMP
    survives: cython.bint
    append_time: cython.bint = append_timestamp is not None
    appended: cython.longlong = 0 if append_timestamp is None else append_timestamp
    table: cython.p_uchar = pointer(offsets.table)
    if not count_is_possible(parser, count):
        raise_corrupt(BAD_COUNT, None)
    marks: bytearray = bytearray(count)
    out: cython.p_uchar = pointer(marks)
    while parser.index < count:
        reason = _parse_next(parser, previous, last_delta)
        if reason != 0:
            raise_corrupt(reason, parser.index)
        previous = parser.offset_delta
        offset = add64(base_offset, parser.offset_delta)
        if offset >= map_end:
            survives = True
        elif parser.key_size < 0:
            survives = False
            keyless += 1
        elif parser.value_size < 0 and not keep_tombstones:
            survives = False
        else:
            slot = _find_slot(offsets, parser.at, parser.key_at, parser.key_size)
            stored = get64(table, 3 * slot + 2)
            survives = offset >= subtract64(stored, 1)
        if survives:
            timestamp = appended if append_time else add64(base_timestamp, parser.timestamp_delta)
            if retained == 0:
                first = timestamp
            if timestamp > latest:
                latest = timestamp
            if parser.value_size < 0:
                tombstones += 1
            retained += 1
            out[parser.index - 1] = 1
    if parser.pos != parser.end:
        raise_corrupt(BAD_TAIL, None)
    return marks, retained, tombstones, keyless, first, latest


def copy_retained(
    data,
    marks: bytearray,
    base_timestamp: cython.longlong,
    append_timestamp,
    new_base_timestamp: cython.longlong,
):
    """Copy the records that are marked into a buffer that starts with room for a batch header.

    Offset deltas do not change. Timestamp deltas become relative to the new base timestamp.
    """
    parser: RecordParser = RecordParser(data)
    count: cython.Py_ssize_t = len(marks)
    chosen: cython.p_uchar = pointer(marks)
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
    resize(buffer, HEADER_SIZE + parser.size)
    out: cython.p_uchar = pointer(buffer)
    while parser.index < count:
        start = parser.pos
        reason = parse_record(parser)
        if reason != 0:
            raise_corrupt(reason, parser.index)
        if chosen[parser.index - 1] == 0:
            continue
        if same:
            # The buffer is large enough, because the records do not grow.
            size = parser.pos - start
            copy_bytes(out, pos, parser.at, start, size)
            pos += size
            continue
        rest = start + (decode_varint(parser.at, start, parser.pos) & 15)
        attributes = parser.at[rest]
        rest += 1
        rest += varlong_size(parser.at, rest, parser.pos)
        timestamp = appended if append_time else add64(base_timestamp, parser.timestamp_delta)
        delta = zigzag(subtract64(timestamp, new_base_timestamp))
        size = parser.pos - rest
        body = 1 + uvarint_size(delta) + size
        if pos + body + 5 > INT32_MAX:
            raise ValueError("the compacted batch exceeds 2 GiB")
        reserve(buffer, pos + body + 5)
        out = pointer(buffer)
        pos = put_uvarint(out, pos, zigzag(body))
        out[pos] = attributes
        pos = put_uvarint(out, pos + 1, delta)
        copy_bytes(out, pos, parser.at, rest, size)
        pos += size
    resize(buffer, pos)
    return buffer
