"""Messages: structures that stand alone on the wire, with their range of versions.

Invariant: `decode(encode(m, v), v) == m` for every version that a message has and every value
that the version can carry, and decode accepts nothing that encode could not have made, with three
exceptions that Kafka makes too: tagged fields that the table does not know are skipped, a tagged
field may be sent though it holds its default, and a boolean may be any byte.
"""

import struct
from typing import ClassVar, Final, Self

from ottla.errors import ProtocolViolation
from ottla.protocol.apis import Api
from ottla.protocol.hot import hot_reader, hot_writer
from ottla.protocol.primitives import Buffer
from ottla.protocol.reader import Reader, compile_reader, has_records
from ottla.protocol.schema import NEVER, Struct, Versions
from ottla.protocol.writer import Unwritable, Writer, compile_writer

# How many elements of arrays and unknown tags one message may have. Requests of large clusters
# stay far below; 100 MiB of elements would become gigabytes. Whoever trusts the other end allows
# more.
OBJECTS_MAX: Final = 200_000


class UnknownVersion(Unwritable):
    """A message was to be read or written in a version that it does not have."""


class Message(Struct):
    """A request, a response, or data that is embedded in one or in a topic."""

    API: ClassVar[Api | None] = None
    VERSIONS: ClassVar[Versions] = NEVER
    FLEXIBLE: ClassVar[Versions] = NEVER
    _readers: ClassVar[dict[int, Reader]]
    _writers: ClassVar[dict[int, Writer]]
    _has_records: ClassVar[bool]

    def __init_subclass__(
        cls, *, api: Api | None = None, versions: str = "none", flexible: str = "none"
    ) -> None:
        cls.API = api
        cls.VERSIONS = api.versions if api else Versions.parse(versions)
        cls.FLEXIBLE = api.flexible if api else Versions.parse(flexible)
        cls._readers = {}
        cls._writers = {}
        cls._has_records = has_records(cls)

    def encode(self, version: int) -> bytes:
        """The bytes of this message in a version; Unwritable when the version lacks a field."""
        return b"".join(self.buffers(version))

    def buffers(self, version: int) -> list[Buffer]:
        """The same bytes as buffers to be written one after the other, records not copied."""
        writer = self._writers.get(version)
        if writer is None:
            self._check(version)
            compiled = compile_writer(type(self), version, self.FLEXIBLE)
            writer = self._writers[version] = hot_writer(type(self), version, compiled)
        buffers: list[Buffer] = []
        try:
            writer(self, buffers)
        except (struct.error, AttributeError, TypeError, ValueError) as error:
            raise Unwritable(f"{type(self).__name__} v{version}: {error}") from error
        return buffers

    @classmethod
    def decode(
        cls, data: Buffer, version: int, position: int = 0, objects_max: int = OBJECTS_MAX
    ) -> Self:
        """The message that fills `data` from `position` to the end."""
        message, end = cls.decode_prefix(data, version, position, objects_max)
        if end != len(data):
            raise ProtocolViolation(
                f"{cls.__name__} v{version}: {len(data) - end} bytes behind the message"
            )
        return message

    @classmethod
    def decode_prefix(
        cls, data: Buffer, version: int, position: int = 0, objects_max: int = OBJECTS_MAX
    ) -> tuple[Self, int]:
        """The message at a position, and the position behind it."""
        reader = cls._readers.get(version)
        if reader is None:
            cls._check(version)
            compiled = compile_reader(cls, version, cls.FLEXIBLE)
            reader = cls._readers[version] = hot_reader(cls, version, compiled)
        if cls._has_records:
            data = memoryview(data)
        elif type(data) is not bytes:
            data = bytes(data)
        try:
            message, end = reader(data, position, objects_max)
        except (struct.error, IndexError):
            raise ProtocolViolation(f"{cls.__name__} v{version}: truncated") from None
        except UnicodeDecodeError as error:
            raise ProtocolViolation(f"{cls.__name__} v{version}: {error.reason}") from None
        except ProtocolViolation as error:
            raise type(error)(f"{cls.__name__} v{version}: {error}") from None
        assert isinstance(message, cls)
        return message, end

    @classmethod
    def _check(cls, version: int) -> None:
        if version not in cls.VERSIONS:
            raise UnknownVersion(f"{cls.__name__} has versions {cls.VERSIONS}, not {version}")
