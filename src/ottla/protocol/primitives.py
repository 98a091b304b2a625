"""The smallest things on the wire: unsigned varints, and the errors that reading them gives.

Invariant: a reader takes the bytes that a writer would have made and no others. A varint that is
longer than it must be, or that holds more than 32 bits, is a violation like a truncated one.
"""

from struct import Struct as Layout
from typing import Final, TypeAlias

from ottla.errors import ProtocolViolation

Buffer: TypeAlias = bytes | bytearray | memoryview


# Varints of one byte, and how those of two and three are packed: most are no longer.
ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))
_pack_two: Final = Layout("BB").pack
_pack_three: Final = Layout("BBB").pack


def uvarint(value: int) -> bytes:
    """An unsigned varint: seven bits a byte, the lowest first."""
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
    """The varint at a position, and the position behind it."""
    first = data[position]
    if first < 0x80:
        return first, position + 1
    return read_uvarint_rest(first, data, position + 1)


def read_uvarint_rest(first: int, data: Buffer, position: int) -> tuple[int, int]:
    """The varint whose first byte has been read and says that more follow."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0:
                raise ProtocolViolation("a varint is longer than its value needs")
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise ProtocolViolation("a varint holds more than 32 bits")


def skip_tags(data: Buffer, position: int, count: int, budget: int) -> tuple[int, int]:
    """Go past tagged fields of which none is known.

    `count` is the first byte of their number, and each costs one of `budget`; returns the
    position behind them and what is left of it.
    """
    end = len(data)
    if count >= 0x80:
        count, position = read_uvarint_rest(count, data, position)
    # A tag and its size take a byte each at least, so a count that lies ends here.
    if count * 2 > end - position:
        raise ProtocolViolation(f"{count} tagged fields in {end - position} bytes")
    if count > budget:
        raise ProtocolViolation(f"{count} tagged fields are more than a message may have")
    last = -1
    for _ in range(count):
        tag, position = read_uvarint(data, position)
        if tag <= last:
            raise ProtocolViolation(f"tag {tag} after tag {last}")
        last = tag
        size, position = read_uvarint(data, position)
        position += size
        if position > end:
            raise ProtocolViolation(f"tag {tag} ends {position - end} bytes behind the message")
    return position, budget - count
