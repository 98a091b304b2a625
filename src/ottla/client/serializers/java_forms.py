"""Java's built-in serializers, byte for byte: text, numbers, booleans, UUIDs, null.

Invariant: the bytes are those of Java's class of the same kind, and what Java refuses is refused. A
number out of range is refused, never truncated.
"""

import re
import uuid
from struct import Struct
from typing import Final, TypeVar

from ottla.client.serializers.serde import Serde, check_kind
from ottla.client.serializers.text import string

N = TypeVar("N", int, float)

_UUID_LENGTH_MAX: Final = 36
_UUID_FIELDS_BITS: Final = (32, 16, 16, 16, 48)
_UUID_FIELD: Final = re.compile(r"\+?[0-9a-fA-F]+")
_LONG_MAX: Final = (1 << 63) - 1
_NOT_A_NUMBER: Final = bytes.fromhex("7ff8000000000000")


def uuid_text(encoding: str = "utf-8") -> Serde[uuid.UUID]:
    """A UUID as 36 characters in an encoding; shorter fields are decoded too, as in Java."""
    text = string(encoding)

    def write(topic: str, value: uuid.UUID) -> bytes | None:
        check_kind(value, uuid.UUID)
        return text.serialize(topic, str(value))

    def read(topic: str, data: bytes) -> uuid.UUID:
        return _parse_uuid(text.deserialize(topic, data))

    return Serde(write, read)


def _parse_uuid(text: str) -> uuid.UUID:
    fields = text.split("-")
    if len(text) > _UUID_LENGTH_MAX or len(fields) != len(_UUID_FIELDS_BITS):
        raise ValueError(
            "not a UUID: expected five hexadecimal numbers separated by -, at most 36 characters"
        )
    number = 0
    for field, bits in zip(fields, _UUID_FIELDS_BITS, strict=True):
        if not _UUID_FIELD.fullmatch(field) or (value := int(field, 16)) > _LONG_MAX:
            raise ValueError("not a UUID: a field is not a hexadecimal number")
        number = number << bits | value & (1 << bits) - 1  # Java drops excess digits of a field
    return uuid.UUID(int=number)


def _number(layout: Struct) -> Serde[N]:
    pack, unpack_from, size = layout.pack, layout.unpack_from, layout.size

    def write(topic: str, value: N) -> bytes:
        return pack(value)

    def read(topic: str, data: bytes) -> N:
        if len(data) != size:
            raise ValueError(f"expected {size} bytes, not {len(data)}")
        return unpack_from(data)[0]

    return Serde(write, read)


def _write_double(topic: str, value: float) -> bytes:
    # Java has many NaNs, which are not equal to themselves, and writes one of them.
    return _DOUBLE_LAYOUT.pack(value) if value == value else _NOT_A_NUMBER


def _write_bytes(topic: str, value: bytes) -> bytes:
    check_kind(value, bytes)
    return value


def _read_bytes(topic: str, data: bytes) -> bytes:
    return data


def _write_boolean(topic: str, value: bool) -> bytes:
    check_kind(value, bool)
    return b"\x01" if value else b"\x00"


def _read_boolean(topic: str, data: bytes) -> bool:
    if data not in (b"\x00", b"\x01"):
        raise ValueError("not a boolean: expected one byte, 0 or 1")
    return data == b"\x01"


def _write_nothing(topic: str, value: None) -> None:
    raise TypeError(f"expected None, not {type(value).__name__}")


def _read_nothing(topic: str, data: bytes) -> None:
    raise ValueError(f"expected null, not {len(data)} bytes")


_DOUBLE_LAYOUT: Final = Struct(">d")

STRING: Final = string()
BYTES: Final = Serde(_write_bytes, _read_bytes)
SHORT: Final[Serde[int]] = _number(Struct(">h"))
INT: Final[Serde[int]] = _number(Struct(">i"))
LONG: Final[Serde[int]] = _number(Struct(">q"))
FLOAT: Final[Serde[float]] = _number(Struct(">f"))
_ANY_DOUBLE: Final[Serde[float]] = _number(_DOUBLE_LAYOUT)
DOUBLE: Final = Serde(_write_double, _ANY_DOUBLE.deserialize)
BOOLEAN: Final = Serde(_write_boolean, _read_boolean)
UUID_TEXT: Final = uuid_text()
VOID: Final = Serde(_write_nothing, _read_nothing)
