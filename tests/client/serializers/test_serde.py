"""Serdes: both directions, null values, errors, and inferred types."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, assert_type, cast

import pytest

from cases import each_case
from ottla.client.serializers import (
    BYTES,
    INT,
    STRING,
    VOID,
    DeserializationFailed,
    Deserializer,
    Part,
    Serde,
    SerializationFailed,
    Serializer,
    deserialize,
    deserializer_of,
    json_of,
    serialize,
    serializer_of,
)
from ottla.errors import ErrorCode, RequestError

K = TypeVar("K")
V = TypeVar("V")


@dataclass
class Order:
    id: int


class Sends(Generic[K, V]):
    """Takes the serializer arguments of a producer."""

    def __init__(self, key: Serde[K] | Serializer[K], value: Serde[V] | Serializer[V]) -> None:
        self.key = serializer_of(key)
        self.value = serializer_of(value)

    def send(self, key: K | None, value: V | None) -> tuple[bytes | None, bytes | None]:
        return serialize(self.key, "t", "key", key), serialize(self.value, "t", "value", value)


class Reads(Generic[K, V]):
    """Takes the deserializer arguments of a consumer."""

    def __init__(self, key: Serde[K] | Deserializer[K], value: Serde[V] | Deserializer[V]) -> None:
        self.key = deserializer_of(key)
        self.value = deserializer_of(value)

    def read(self, key: bytes | None, value: bytes | None) -> tuple[K | None, V | None]:
        return (
            deserialize(self.key, "t", 3, 8, "key", key),
            deserialize(self.value, "t", 3, 8, "value", value),
        )


def write_order(topic: str, order: Order) -> bytes:
    return f"{topic}/{order.id}".encode()


def read_order(topic: str, data: bytes) -> Order:
    return Order(int(data.removeprefix(f"{topic}/".encode())))


def test_types_follow_from_serdes_and_user_functions() -> None:
    sends = assert_type(Sends(STRING, json_of(Order)), Sends[str, Order])
    assert sends.send("k", Order(1)) == (b"k", b'{"id":1}')
    own = assert_type(Sends(BYTES, write_order), Sends[bytes, Order])
    assert own.send(b"k", Order(1)) == (b"k", b"t/1")
    reads = assert_type(Reads(INT, json_of(Order)), Reads[int, Order])
    assert reads.read(b"\0\0\0\5", b'{"id":1}') == (5, Order(1))
    mine = assert_type(Reads(VOID, read_order), Reads[None, Order])
    assert mine.read(None, b"t/7") == (None, Order(7))


def test_null_is_passed_without_calling_the_serializer() -> None:
    def never(topic: str, data: object) -> Any:
        raise AssertionError("asked")

    assert Sends(never, never).send(None, None) == (None, None)
    assert Reads(never, never).read(None, None) == (None, None)


def test_empty_bytes_are_not_null() -> None:
    assert Sends(STRING, BYTES).send("", b"") == (b"", b"")
    assert Reads(STRING, BYTES).read(b"", b"") == ("", b"")


def test_serializer_may_return_null() -> None:
    assert serialize(lambda topic, value: None, "t", "value", 5) is None


def failing(topic: str, given: object) -> Any:
    raise KeyError("total")


def test_serialization_error_names_topic_part_and_cause() -> None:
    with pytest.raises(SerializationFailed) as raised:
        serialize(failing, "orders", "key", 5)
    error = raised.value
    assert (error.topic, error.part) == ("orders", "key")
    assert isinstance(error.__cause__, KeyError)
    assert str(error) == (
        "INVALID_RECORD (87): the key of a record for topic 'orders' cannot be serialized: "
        "KeyError: 'total'"
    )
    assert "Nothing was sent" in error.hint


def test_deserialization_error_names_offset_cause_and_bytes() -> None:
    with pytest.raises(DeserializationFailed) as raised:
        deserialize(failing, "orders", 3, 1234, "value", b"\xff\x00")
    error = raised.value
    assert (error.topic, error.partition, error.offset) == ("orders", 3, 1234)
    assert (error.part, error.data) == ("value", b"\xff\x00")
    assert isinstance(error.__cause__, KeyError)
    assert str(error) == (
        "INVALID_RECORD (87): the value at topic 'orders', partition 3, offset 1234 cannot be "
        "deserialized: KeyError: 'total'"
    )
    assert "Skip" in error.hint


@pytest.mark.parametrize(
    "error",
    [
        SerializationFailed("t", "key", "why"),
        DeserializationFailed("t", 1, 2, "value", b"data", "why"),
    ],
)
def test_errors_are_not_retriable_and_can_be_pickled(error: RequestError) -> None:
    assert error.code is ErrorCode.INVALID_RECORD
    assert not error.retriable
    clone = pickle.loads(pickle.dumps(error))
    assert type(clone) is type(error)
    assert (str(clone), vars(clone)) == (str(error), vars(error))


@each_case("returned", ["text", 5, bytearray(b"x"), memoryview(b"x")])
def test_serializer_must_return_bytes(returned: object) -> None:
    wrong = cast("Callable[[str, int], bytes]", lambda topic, value: returned)  # pyright: ignore[reportUnknownLambdaType]
    with pytest.raises(SerializationFailed, match=r"returned .*, not bytes"):
        serialize(wrong, "t", "value", 1)


@pytest.mark.parametrize("part", ["key", "value"])
def test_cancellation_and_interrupts_pass_through(part: Part) -> None:
    def interrupted(topic: str, given: object) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        serialize(interrupted, "t", part, 1)
    with pytest.raises(KeyboardInterrupt):
        deserialize(interrupted, "t", 0, 0, part, b"1")


@pytest.mark.parametrize("given", ["string", None, 5])
def test_invalid_serializer_is_refused_at_once(given: Any) -> None:
    with pytest.raises(TypeError, match="a serializer must be a function of topic and value"):
        serializer_of(given)
    with pytest.raises(TypeError, match="a deserializer must be a function of topic and bytes"):
        deserializer_of(given)
