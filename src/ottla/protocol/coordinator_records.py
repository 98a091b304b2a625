"""Keys and values of coordinator records: two bytes of type or version, then the data.

Invariant: a key of an unknown type, from a later release, decodes to None, so that the record can
be skipped. A value of an unknown version and malformed bytes raise ProtocolViolation.
"""

from collections.abc import Mapping
from struct import Struct as Layout
from typing import Final, NamedTuple

from ottla.errors import ProtocolViolation
from ottla.protocol.message import Message
from ottla.protocol.primitives import Buffer

_NUMBER: Final = Layout(">h")


class CoordinatorRecordType(NamedTuple):
    """The classes of key and value of a record type."""

    key: type[Message]
    value: type[Message]


class CoordinatorRecordTypes:
    """The record types of one topic."""

    def __init__(self, types: Mapping[int, CoordinatorRecordType]) -> None:
        self._types = dict(types)
        # If two types have the same key class, the higher one is written.
        self._numbers = {row.key: number for number, row in sorted(types.items())}
        self._values = {row.key: row.value for row in types.values()}

    def encode_key(self, key: Message) -> bytes:
        """Encode a key with its type."""
        return _NUMBER.pack(self._numbers[type(key)]) + key.encode(0)

    def decode_key(self, data: Buffer) -> Message | None:
        """Decode a key; None for an unknown type."""
        row = self._types.get(_number(data))
        return None if row is None else row.key.decode(data, 0, position=_NUMBER.size)

    def encode_value(self, value: Message, version: int) -> bytes:
        """Encode a value with its version."""
        return _NUMBER.pack(version) + value.encode(version)

    def decode_value(self, key: Message, data: Buffer) -> Message:
        """Decode the value of a key."""
        cls = self._values[type(key)]
        version = _number(data)
        if version not in cls.VERSIONS:
            raise ProtocolViolation(f"{cls.__name__} has versions {cls.VERSIONS}, not {version}")
        return cls.decode(data, version, position=_NUMBER.size)


def _number(data: Buffer) -> int:
    if len(data) < _NUMBER.size:
        raise ProtocolViolation(f"{len(data)} bytes are too few for a coordinator record")
    return _NUMBER.unpack_from(data)[0]
