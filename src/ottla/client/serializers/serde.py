"""What turns values into bytes and back, and what is raised when it cannot.

Invariant: null is no value. None becomes null and null becomes None without any function being
asked, so that a function sees what is there and nothing else. Whatever a function raises leaves
here as one of two errors that say where it happened; the cause and the bytes are kept.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar, final

from ottla.errors import ErrorCode, RequestError
from ottla.records.kernel import NOT_PAIRS, not_bytes

T = TypeVar("T")

Part: TypeAlias = Literal["key", "value"]

Serializer: TypeAlias = Callable[[str, T], bytes | None]
"""From the topic and a value to bytes; None makes it null."""

Deserializer: TypeAlias = Callable[[str, bytes], T]
"""From the topic and bytes to a value."""


@final
@dataclass(frozen=True, slots=True)
class Serde(Generic[T]):
    """Both directions of one form."""

    serialize: Serializer[T]
    deserialize: Deserializer[T]


class SerializationFailed(RequestError):
    """A key or a value could not be turned into bytes; nothing was sent. The cause is kept."""

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
        """What to do."""
        return (
            "Nothing was sent. Correct the value, or give the producer a serializer for its type."
        )


class DeserializationFailed(RequestError):
    """The bytes of a record are not what was expected; who reads may skip it or stop.

    `data` has the bytes as they are in the record, for a look or for a topic of dead letters.
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
        """What to do."""
        return "Skip the record, or read it with the deserializer of the form it was written in."


def serializer_of(given: Serde[T] | Serializer[T]) -> Serializer[T]:
    """What a producer calls, of what it was given."""
    if isinstance(given, Serde):
        return given.serialize
    return _function(given, "a serializer", "topic and value")


def deserializer_of(given: Serde[T] | Deserializer[T]) -> Deserializer[T]:
    """What a consumer calls, of what it was given."""
    if isinstance(given, Serde):
        return given.deserialize
    return _function(given, "a deserializer", "topic and bytes")


def serialize(serializer: Serializer[T], topic: str, part: Part, value: T | None) -> bytes | None:
    """The bytes of a key or a value; None for none."""
    if value is None:
        return None
    try:
        data = serializer(topic, value)
    # The function is anybody's, and so is what it raises.
    except Exception as cause:
        raise SerializationFailed(topic, part, _reason(cause)) from cause
    # One that forgot to encode is told here and not by the batch that takes the bytes.
    if data is not None and not isinstance(data, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        reason = f"the serializer returned {type(data).__name__} and not bytes"
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
    """The key or the value of a record; None for null."""
    if data is None:
        return None
    try:
        return deserializer(topic, data)
    # The function is anybody's, and so is what it raises.
    except Exception as cause:
        reason = _reason(cause)
        raise DeserializationFailed(topic, partition, offset, part, data, reason) from cause


def check_parts(key: object, value: object, headers: Iterable[object]) -> None:
    """Refuse a record that no batch takes, before there is one for it."""
    parts = [key, value]
    for pair in headers:
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:  # pyright: ignore[reportUnknownArgumentType]
            raise TypeError(NOT_PAIRS)
        parts.append(pair[1])  # pyright: ignore[reportUnknownArgumentType]
    for part in parts:
        if part is not None and not isinstance(part, bytes | bytearray | memoryview):
            raise not_bytes(part)


def check_kind(value: object, kind: type) -> None:
    """Refuse what is of another class."""
    if not isinstance(value, kind):
        raise TypeError(f"this is {type(value).__name__} and not {kind.__name__}")


F = TypeVar("F")


def _function(given: F, what: str, arguments: str) -> F:
    if not callable(given):
        kind = type(given).__name__
        raise TypeError(f"{what} is a function of {arguments}, or a Serde; this is {kind}")
    return given


def _reason(cause: Exception) -> str:
    return f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
