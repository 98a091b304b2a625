"""Unsigned varints and tagged fields.

Invariant: only canonical encodings are accepted. A varint with redundant bytes or with more than 32
bits raises ProtocolViolation.
"""

from struct import Struct as Layout
from typing import Final, TypeAlias

from ottla.errors import ProtocolViolation

Buffer: TypeAlias = bytes | bytearray | memoryview


# Varints of one byte, and packers for two and three bytes, which cover most values.
ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))
_pack_two: Final = Layout("BB").pack
_pack_three: Final = Layout("BBB").pack


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint: seven bits per byte, lowest first."""
    if value < 0x80:
        return ONE_BYTE[value]
    if value < 0x4000:
        return _pack_two(value & 0x7F | 0x80, value >> 7)
    if value < 0x20_0000:
        return _pack_three(value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """Return the varint at a position, and the position after it."""
    first = data[position]
    if first < 0x80:
        return first, position + 1
    return read_uvarint_rest(first, data, position + 1)


def read_uvarint_rest(first: int, data: Buffer, position: int) -> tuple[int, int]:
    """Return the varint whose first byte was read and has the continuation bit."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0:
                raise ProtocolViolation("varint is longer than necessary")
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise ProtocolViolation("varint has more than 32 bits")


def skip_tags(data: Buffer, position: int, count: int, budget: int) -> tuple[int, int]:
    """Skip unknown tagged fields.

    `count` is the first byte of their number. Each field costs one object of `budget`. Returns the
    position after the fields and the remaining budget.
    """
    end = len(data)
    if count >= 0x80:
        count, position = read_uvarint_rest(count, data, position)
    # Tag and size take at least one byte each, so a wrong count is detected here.
    if count * 2 > end - position:
        raise ProtocolViolation(f"{count} tagged fields do not fit in {end - position} bytes")
    if count > budget:
        raise ProtocolViolation(f"{count} tagged fields exceed the limit of objects of a message")
    last = -1
    for _ in range(count):
        tag, position = read_uvarint(data, position)
        if tag <= last:
            raise ProtocolViolation(f"tag {tag} is not in order after tag {last}")
        last = tag
        size, position = read_uvarint(data, position)
        position += size
        if position > end:
            raise ProtocolViolation(f"tag {tag} ends {position - end} bytes after the message")
    return position, budget - count
