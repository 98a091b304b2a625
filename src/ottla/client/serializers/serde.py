"""Serializers, deserializers and their errors.

Invariant: None becomes null and null becomes None without a call, so a function gets only values.
Whatever a function raises becomes one of two errors that say where it happened; the cause and the
bytes are kept.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar, final

from ottla.errors import ErrorCode, RequestError
from ottla.records import NOT_PAIRS, not_bytes_error

T = TypeVar("T")

Part: TypeAlias = Literal["key", "value"]

Serializer: TypeAlias = Callable[[str, T], bytes | None]
"""A function of topic and value that returns bytes, or None for null."""

Deserializer: TypeAlias = Callable[[str, bytes], T]
"""A function of topic and bytes that returns a value."""


@final
@dataclass(frozen=True, slots=True)
class Serde(Generic[T]):
    """Both directions of one format."""

    serialize: Serializer[T]
    deserialize: Deserializer[T]


class SerializationFailed(RequestError):
    """A key or value could not be serialized; nothing was sent. The cause is chained."""

    def __init__(self, topic: str, part: Part, reason: str) -> None:
        message = f"the {part} of a record for topic {topic!r} cannot be serialized: {reason}"
        super().__init__(ErrorCode.INVALID_RECORD, message)
        self.topic = topic
        self.part: Part = part
        self.reason = reason

    def __reduce__(self) -> tuple[type["SerializationFailed"], tuple[str, Part, str]]:
        return SerializationFailed, (self.topic, self.part, self.reason)

    @property
    def hint(self) -> str:
        """How to fix it."""
        return (
            "Nothing was sent. Correct the value, or give the producer a serializer for its type."
        )


class DeserializationFailed(RequestError):
    """A key or value could not be deserialized; the application may skip the record or stop.

    `data` has the bytes of the record, to inspect or for a dead letter topic.
    """

    def __init__(
        self, topic: str, partition: int, offset: int, part: Part, data: bytes, reason: str
    ) -> None:
        where = f"topic {topic!r}, partition {partition}, offset {offset}"
        message = f"the {part} at {where} cannot be deserialized: {reason}"
        super().__init__(ErrorCode.INVALID_RECORD, message)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.part: Part = part
        self.data = data
        self.reason = reason

    def __reduce__(
        self,
    ) -> tuple[type["DeserializationFailed"], tuple[str, int, int, Part, bytes, str]]:
        place = (self.topic, self.partition, self.offset)
        return DeserializationFailed, (*place, self.part, self.data, self.reason)

    @property
    def hint(self) -> str:
        """How to fix it."""
        return (
            "Skip the record, or read it with the deserializer of the format in which it was "
            "written."
        )


def serializer_of(given: Serde[T] | Serializer[T]) -> Serializer[T]:
    """Return the serializer function of what the user gave."""
    if isinstance(given, Serde):
        return given.serialize
    return _function(given, "a serializer", "topic and value")


def deserializer_of(given: Serde[T] | Deserializer[T]) -> Deserializer[T]:
    """Return the deserializer function of what the user gave."""
    if isinstance(given, Serde):
        return given.deserialize
    return _function(given, "a deserializer", "topic and bytes")


def serialize(serializer: Serializer[T], topic: str, part: Part, value: T | None) -> bytes | None:
    """Serialize a key or value; None for null."""
    if value is None:
        return None
    try:
        data = serializer(topic, value)
    # A user's function may raise anything.
    except Exception as cause:
        raise SerializationFailed(topic, part, _reason(cause)) from cause
    # A function that forgot to encode is reported here, not by the batch.
    if data is not None and not isinstance(data, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        reason = f"the serializer returned {type(data).__name__}, not bytes"
        raise SerializationFailed(topic, part, reason)
    return data


def deserialize(
    deserializer: Deserializer[T],
    topic: str,
    partition: int,
    offset: int,
    part: Part,
    data: bytes | None,
) -> T | None:
    """Deserialize a key or value; None for null."""
    if data is None:
        return None
    try:
        return deserializer(topic, data)
    # A user's function may raise anything.
    except Exception as cause:
        reason = _reason(cause)
        raise DeserializationFailed(topic, partition, offset, part, data, reason) from cause


def check_parts(key: object, value: object, headers: object) -> None:
    """Refuse a record that no batch accepts."""
    parts = [key, value]
    if not isinstance(headers, Iterable):
        raise TypeError(f"{NOT_PAIRS}, not {type(headers).__name__}")
    for pair in headers:  # pyright: ignore[reportUnknownVariableType]
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:  # pyright: ignore[reportUnknownArgumentType]
            raise TypeError(NOT_PAIRS)
        if not isinstance(pair[0], str):
            kind = type(pair[0]).__name__  # pyright: ignore[reportUnknownArgumentType]
            raise TypeError(f"the name of a record header must be a str, not {kind}")
        parts.append(pair[1])  # pyright: ignore[reportUnknownArgumentType]
    for part in parts:
        if part is not None and not isinstance(part, bytes | bytearray | memoryview):
            raise not_bytes_error(part)


def check_kind(value: object, kind: type) -> None:
    """Refuse a value of another class."""
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, not {type(value).__name__}")


F = TypeVar("F")


def _function(given: F, what: str, arguments: str) -> F:
    if not callable(given):
        kind = type(given).__name__
        raise TypeError(f"{what} must be a function of {arguments}, or a Serde, not {kind}")
    return given


def _reason(cause: Exception) -> str:
    return f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
