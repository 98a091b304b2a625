"""Message, the base class of requests and responses, and Api, the row of an API.

Invariant: `decode(encode(m, v), v) == m` for every version v and every value that it can carry.
`decode` accepts only bytes that `encode` produces, with three exceptions that Kafka has, too:
unknown tagged fields are skipped, a tagged field can hold its default, and a boolean can be any
byte.
"""

import struct
from collections.abc import Callable
from enum import Enum
from functools import cached_property
from importlib import import_module
from typing import ClassVar, Final, NamedTuple, Self, TypeAlias

from ottla.errors import ProtocolViolation
from ottla.protocol.primitives import Buffer
from ottla.protocol.reader import Reader, compile_reader, has_records
from ottla.protocol.schema import NEVER, Struct, Versions
from ottla.protocol.writer import EncodingError, Writer, compile_writer

# The maximum number of array elements and unknown tagged fields of a message. Requests in large
# clusters have far fewer; 100 MiB of elements would take gigabytes. Clients allow brokers more.
OBJECTS_MAX: Final = 200_000

_API_VERSIONS_KEY: Final = 18


class UnknownVersion(EncodingError):
    """The message does not have the requested version."""


class Use(Enum):
    """The group of an API in the reference."""

    BASIC = "Clients: produce, consume, groups and topics"
    COMMON = "Administration, transactions, authentication and KIP-848 groups"
    SPECIAL = "ACLs, quotas, credentials and share groups"
    RARE = "Rarely used"
    BROKERS = "Between brokers and controllers"


class Api:
    """One API: key, name, and versions of its request and response."""

    def __init__(
        self,
        key: int,
        name: str,
        use: Use,
        versions: str,
        *,
        flexible: str = "none",
        advertised: str | None = None,
        hot: bool = False,
    ) -> None:
        self.key: Final = key
        self.name: Final = name
        self.use: Final = use
        self.versions: Final = Versions.parse(versions)
        self.flexible: Final = Versions.parse(flexible)
        self.advertised: Final = Versions.parse(advertised or versions)
        self.hot: Final = hot

    @property
    def module(self) -> str:
        """The name of the modules with the messages and the handler of the API."""
        return "".join(f"_{c.lower()}" if c.isupper() else c for c in self.name)[1:]

    @cached_property
    def request(self) -> "type[Message]":
        """The request class. Its module is imported on first use."""
        return self._message("Request")

    @cached_property
    def response(self) -> "type[Message]":
        """The response class. Its module is imported on first use."""
        return self._message("Response")

    def _message(self, kind: str) -> "type[Message]":
        return getattr(import_module(f"ottla.protocol.messages.{self.module}"), self.name + kind)

    def request_header_version(self, version: int) -> int:
        """Return 2 if the header has tagged fields, else 1."""
        return 2 if version in self.flexible else 1

    def response_header_version(self, version: int) -> int:
        """Return 1 if the header has tagged fields, else 0.

        A client reads an ApiVersions response before it knows which versions the broker supports,
        so that response has header version 0 in every version.
        """
        return 1 if version in self.flexible and self.key != _API_VERSIONS_KEY else 0

    def __repr__(self) -> str:
        return f"<{self.name} {self.versions}>"


ReaderFactory: TypeAlias = Callable[[int, Reader], Reader]
"""Takes a version and its compiled reader; returns the reader to use in its place."""

WriterFactory: TypeAlias = Callable[[int, Writer], Writer]
"""Takes a version and its compiled writer; returns the writer to use in its place."""


class HotCodec(NamedTuple):
    """The hand-written codec of a message."""

    reader: ReaderFactory
    writer: WriterFactory


class Message(Struct):
    """A request, a response, or data embedded in one or stored in a record."""

    API: ClassVar[Api | None] = None
    VERSIONS: ClassVar[Versions] = NEVER
    FLEXIBLE: ClassVar[Versions] = NEVER
    _readers: ClassVar[dict[int, Reader]]
    _writers: ClassVar[dict[int, Writer]]
    _has_records: ClassVar[bool]
    _hot_codec: ClassVar[HotCodec | None] = None

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
        """Encode the message. Raises EncodingError if the version cannot carry a value."""
        return b"".join(self.buffers(version))

    def buffers(self, version: int) -> list[Buffer]:
        """Encode the message to a list of buffers; records are not copied."""
        writer = self._writers.get(version) or self._writer(version)
        buffers: list[Buffer] = []
        try:
            writer(self, buffers)
        except (struct.error, AttributeError, TypeError, ValueError) as error:
            raise EncodingError(f"{type(self).__name__} v{version}: {error}") from error
        return buffers

    @classmethod
    def decode(
        cls, data: Buffer, version: int, position: int = 0, objects_max: int = OBJECTS_MAX
    ) -> Self:
        """Decode the message from `position` to the end of `data`."""
        message, end = cls.decode_prefix(data, version, position, objects_max)
        if end != len(data):
            raise ProtocolViolation(
                f"{cls.__name__} v{version}: {len(data) - end} bytes after the message"
            )
        return message

    @classmethod
    def decode_prefix(
        cls, data: Buffer, version: int, position: int = 0, objects_max: int = OBJECTS_MAX
    ) -> tuple[Self, int]:
        """Decode the message at a position; return it and the position after it."""
        reader = cls._readers.get(version) or cls._reader(version)
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
    def register_codec(cls, reader: ReaderFactory, writer: WriterFactory) -> None:
        """Use a hand-written codec in the flexible versions."""
        cls._hot_codec = HotCodec(reader, writer)
        cls._readers.clear()
        cls._writers.clear()

    @classmethod
    def _reader(cls, version: int) -> Reader:
        cls._check(version)
        reader, hot = compile_reader(cls, version, cls.FLEXIBLE), cls._registered_codec(version)
        if hot is not None:
            reader = hot.reader(version, reader)
        cls._readers[version] = reader
        return reader

    @classmethod
    def _writer(cls, version: int) -> Writer:
        cls._check(version)
        writer, hot = compile_writer(cls, version, cls.FLEXIBLE), cls._registered_codec(version)
        if hot is not None:
            writer = hot.writer(version, writer)
        cls._writers[version] = writer
        return writer

    @classmethod
    def _registered_codec(cls, version: int) -> HotCodec | None:
        if version not in cls.FLEXIBLE:
            return None
        if cls.API is not None and cls.API.hot and cls._hot_codec is None:
            import_module(f"ottla.protocol.hot.{cls.API.module}")
        return cls._hot_codec

    @classmethod
    def _check(cls, version: int) -> None:
        if version not in cls.VERSIONS:
            raise UnknownVersion(f"{cls.__name__} has versions {cls.VERSIONS}, not {version}")
