"""Keys and values of the internal topics: data behind a number of two bytes.

Invariant: what a later release added is told apart from what is damaged. A key of an unknown type
reads as None, so that the record can be left alone; a value of an unknown version, and bytes that
do not fit their type, raise ProtocolViolation.
"""

from collections.abc import Mapping
from struct import Struct as Layout
from typing import Final, NamedTuple

from ottla.errors import ProtocolViolation
from ottla.protocol.message import Message
from ottla.protocol.primitives import Buffer

_NUMBER: Final = Layout(">h")


class CoordinatorRecordType(NamedTuple):
    """The classes of a record's key and value."""

    key: type[Message]
    value: type[Message]


class CoordinatorRecordTypes:
    """The types of records in one topic."""

    def __init__(self, types: Mapping[int, CoordinatorRecordType]) -> None:
        self._types = dict(types)
        # Of two numbers with the same key, the later is the one to write.
        self._numbers = {row.key: number for number, row in sorted(types.items())}
        self._values = {row.key: row.value for row in types.values()}

    def encode_key(self, key: Message) -> bytes:
        """The bytes of a key behind the number of its type."""
        return _NUMBER.pack(self._numbers[type(key)]) + key.encode(0)

    def decode_key(self, data: Buffer) -> Message | None:
        """The key, or None when its type is of a later release."""
        row = self._types.get(_number(data))
        return None if row is None else row.key.decode(data, 0, position=_NUMBER.size)

    def encode_value(self, value: Message, version: int) -> bytes:
        """The bytes of a value behind its version."""
        return _NUMBER.pack(version) + value.encode(version)

    def decode_value(self, key: Message, data: Buffer) -> Message:
        """The value that stands beside a key."""
        cls = self._values[type(key)]
        version = _number(data)
        if version not in cls.VERSIONS:
            raise ProtocolViolation(f"{cls.__name__} has versions {cls.VERSIONS}, not {version}")
        return cls.decode(data, version, position=_NUMBER.size)


def _number(data: Buffer) -> int:
    if len(data) < _NUMBER.size:
        raise ProtocolViolation(f"{len(data)} bytes are too few for a record of a topic")
    return _NUMBER.unpack_from(data)[0]
