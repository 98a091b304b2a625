"""A simple reference decoder, which the compiled readers are compared with.

It decodes one value at a time. Besides the value it returns the deviations of the bytes from what
Ottla's writer produces.
"""

from enum import Enum
from struct import unpack
from typing import Any, Final

from ottla.ids import Uuid
from ottla.protocol.message import Message
from ottla.protocol.schema import Field, Kind, Struct

STRING_BYTES_MAX: Final = 32_767


class Refused(Exception):
    """The bytes are not a valid message of this version."""


class Liberty(Enum):
    """Accepted deviations from the bytes that Ottla writes."""

    UNKNOWN_TAG = "an unknown tagged field"
    SAID_DEFAULT = "a tagged field with its default"
    ODD_BOOLEAN = "a boolean that is neither 0 nor 1"


class Reference:
    """Reads one message."""

    def __init__(self, raw: bytes, version: int, *, flexible: bool) -> None:
        self.raw = raw
        self.position = 0
        self.version = version
        self.flexible = flexible
        self.liberties: set[Liberty] = set()

    def take(self, count: int) -> bytes:
        if count < 0 or count > len(self.raw) - self.position:
            raise Refused(f"{count} bytes at {self.position}")
        self.position += count
        return self.raw[self.position - count : self.position]

    def varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if shift and byte == 0:
                    raise Refused("an overlong varint")
                if value >= 2**32:
                    raise Refused("a varint of more than 32 bits")
                return value
        raise Refused("a varint of more than 5 bytes")

    def length(self, kind: Kind) -> int:
        if self.flexible:
            return self.varint() - 1
        wide = kind is not Kind.STRING
        return unpack(">i", self.take(4))[0] if wide else unpack(">h", self.take(2))[0]

    def structure(self, cls: type[Struct]) -> Struct:
        values: dict[str, Any] = {}
        tagged: dict[int, Field] = {}
        for field in cls.FIELDS:
            if self.version in field.tagged:
                assert field.tag is not None
                tagged[field.tag] = field
            elif self.version in field.versions:
                values[field.name] = self.field(field)
        if self.flexible:
            values |= self.tags(tagged)
        return cls(**values)

    def tags(self, known: dict[int, Field]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        last = -1
        for _ in range(self.varint()):
            tag = self.varint()
            if tag <= last:
                raise Refused(f"tag {tag} after {last}")
            last = tag
            size = self.varint()
            stop = self.position + size
            field = known.get(tag)
            if field is None:
                self.take(size)
                self.liberties.add(Liberty.UNKNOWN_TAG)
                continue
            value = values[field.name] = self.field(field)
            if self.position != stop:
                raise Refused(f"{field.name} does not end with its tag")
            if value == _unsaid(field):
                self.liberties.add(Liberty.SAID_DEFAULT)
        return values

    def field(self, field: Field) -> Any:
        nullable = self.version in field.nullable
        if field.kind is Kind.STRUCT:
            assert field.struct is not None
            if nullable and self.absent(in_tag=self.version in field.tagged):
                return None
            return self.structure(field.struct)
        if field.kind is Kind.ARRAY:
            assert field.element is not None
            count = self.length(Kind.ARRAY)
            if self.null(count, nullable=nullable):
                return None
            if count > len(self.raw) - self.position:
                raise Refused(f"{count} elements")
            return tuple(
                self.plain(field.element, nullable=False)
                if field.struct is None
                else self.structure(field.struct)
                for _ in range(count)
            )
        return self.plain(field.kind, nullable=nullable)

    def absent(self, *, in_tag: bool) -> bool:
        (marker,) = unpack(">B" if in_tag else ">b", self.take(1))
        if marker == (0 if in_tag else -1):
            return True
        if marker != 1:
            raise Refused(f"marker {marker}")
        return False

    @staticmethod
    def null(length: int, *, nullable: bool) -> bool:
        if length < -1 or (length == -1 and not nullable):
            raise Refused(f"length {length}")
        return length == -1

    def plain(self, kind: Kind, *, nullable: bool) -> Any:
        match kind:
            case Kind.STRING | Kind.BYTES | Kind.RECORDS:
                length = self.length(kind)
                if self.null(length, nullable=nullable):
                    return None
                if kind is Kind.STRING and length > STRING_BYTES_MAX:
                    raise Refused("a long string")
                raw = self.take(length)
                try:
                    return raw.decode() if kind is Kind.STRING else raw
                except UnicodeDecodeError:
                    raise Refused("no UTF-8") from None
            case Kind.UUID:
                return Uuid(self.take(16))
            case Kind.BOOL:
                (byte,) = self.take(1)
                if byte > 1:
                    self.liberties.add(Liberty.ODD_BOOLEAN)
                return byte != 0
            case _:
                size = kind.fixed_size
                assert size is not None
                return unpack(">" + kind.value, self.take(size))[0]


def _unsaid(field: Field) -> object:
    """The value of a field that is not sent."""
    if field.kind is Kind.STRUCT:
        assert field.struct is not None
        return field.struct()
    return field.default


def reference_decode(cls: type[Message], raw: bytes, version: int) -> tuple[Struct, set[Liberty]]:
    """The message in the bytes and its liberties; raises Refused if the bytes are not a message."""
    reader = Reference(raw, version, flexible=version in cls.FLEXIBLE)
    value = reader.structure(cls)
    if reader.position != len(raw):
        raise Refused(f"{len(raw) - reader.position} bytes behind the message")
    return value, reader.liberties
