"""Types of serializers; `make check` verifies this file with pyright strict.

A line that must be rejected has an ignore comment; pyright reports an ignore comment that is not
needed.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from dataclasses import dataclass
from typing import TypedDict, assert_type
from uuid import UUID

import msgspec
import pydantic
from google.protobuf.wrappers_pb2 import StringValue

import ottla.sync
from ottla import Consumer, DeserializationFailed, Producer, Record, Serde
from ottla.client.serializers import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    FLOAT,
    INT,
    JSON,
    LONG,
    SHORT,
    STRING,
    UUID_TEXT,
    VOID,
    AvroDatum,
    Deserializer,
    Json,
    Serializer,
    avro,
    json_of,
    protobuf,
    string,
    uuid_text,
)

SETTINGS = {"bootstrap.servers": "localhost:9092"}
SCHEMA = {"type": "record", "name": "o", "fields": [{"name": "item", "type": "string"}]}


@dataclass
class Data:
    item: str


class Struct(msgspec.Struct):
    item: str


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    bones: int


class Model(pydantic.BaseModel):
    item: str


class Fields(TypedDict):
    item: str


class Numbers:
    """A user's class with a call method."""

    def __call__(self, topic: str, value: int) -> bytes:
        return str(value).encode()


class Codec:
    """A user's class with a method for each direction."""

    def write(self, topic: str, value: int) -> bytes | None:
        return str(value).encode()

    def read(self, topic: str, data: bytes) -> int:
        return int(data)


def shout(topic: str, value: str) -> bytes:
    return value.upper().encode()


def listen(topic: str, data: bytes) -> str:
    return data.decode()


def test_serde_types_follow_from_their_class() -> None:
    assert_type(STRING, Serde[str])
    assert_type(string("utf-16", strict=True), Serde[str])
    assert_type(BYTES, Serde[bytes])
    assert_type((SHORT, INT, LONG), tuple[Serde[int], Serde[int], Serde[int]])
    assert_type((FLOAT, DOUBLE), tuple[Serde[float], Serde[float]])
    assert_type(BOOLEAN, Serde[bool])
    assert_type((UUID_TEXT, uuid_text("ascii")), tuple[Serde[UUID], Serde[UUID]])
    assert_type(VOID, Serde[None])
    assert_type(JSON, Serde[Json])
    assert_type(json_of(Data), Serde[Data])
    assert_type(json_of(Struct), Serde[Struct])
    assert_type(json_of(Model), Serde[Model])
    assert_type(json_of(Fields), Serde[Fields])
    assert_type(json_of(list[Data]), Serde[list[Data]])
    assert_type(json_of(dict[str, int]), Serde[dict[str, int]])
    either: Serde[Cat | Dog] = json_of(Cat | Dog)
    for one in (Cat(9), Dog(3)):
        data = either.serialize("t", one)
        assert data is not None
        assert_type(either.deserialize("t", data), Cat | Dog)
        assert either.deserialize("t", data) == one
    assert_type(avro(SCHEMA), Serde[AvroDatum])
    assert_type(avro('"long"', read_as={"type": "long"}), Serde[AvroDatum])
    assert_type(protobuf(StringValue), Serde[StringValue])
    codec = Codec()
    assert_type(Serde(codec.write, codec.read), Serde[int])
    assert_type(Serde(shout, listen), Serde[str])


def test_producer_types_follow_from_user_serializers() -> None:
    codec = Codec()
    assert_type(Producer(SETTINGS, value_serializer=Numbers()), Producer[bytes, int])
    assert_type(Producer(SETTINGS, value_serializer=codec.write), Producer[bytes, int])
    assert_type(Producer(SETTINGS, key_serializer=shout), Producer[str, bytes])
    number: Producer[bytes, int] = Producer(
        SETTINGS, value_serializer=lambda topic, value: str(value).encode()
    )
    assert_type(number, Producer[bytes, int])
    assert_type(Producer(SETTINGS, value_serializer=json_of(Model)), Producer[bytes, Model])
    assert_type(Producer(SETTINGS, value_serializer=avro(SCHEMA)), Producer[bytes, AvroDatum])
    assert_type(
        Producer(SETTINGS, value_serializer=protobuf(StringValue)), Producer[bytes, StringValue]
    )
    waiting = ottla.sync.Producer(SETTINGS, key_serializer=shout, value_serializer=Numbers())
    assert_type(waiting, ottla.sync.Producer[str, int])


def test_consumer_types_follow_from_user_deserializers() -> None:
    codec = Codec()
    ours = Consumer(SETTINGS, key_deserializer=listen, value_deserializer=codec.read)
    assert_type(ours, Consumer[str, int])
    both = Serde(codec.write, codec.read)
    assert_type(Consumer(SETTINGS, value_deserializer=both), Consumer[bytes, int])
    assert_type(Consumer(SETTINGS, value_deserializer=json_of(Data)), Consumer[bytes, Data])
    message = Consumer(SETTINGS, value_deserializer=protobuf(StringValue))
    assert_type(message, Consumer[bytes, StringValue])
    waiting = ottla.sync.Consumer(SETTINGS, value_deserializer=json_of(list[Struct]))
    assert_type(waiting, ottla.sync.Consumer[bytes, list[Struct]])


def note(failed: DeserializationFailed) -> None:
    print(failed.topic, failed.partition, failed.offset, failed.part, failed.data)


async def sends_and_reads(
    producer: Producer[str, Model],
    consumer: Consumer[str, AvroDatum],
    any_json: Producer[bytes, Json],
) -> None:
    """Never run; only the type checker reads it."""
    await producer.send("t", Model(item="apple"), key="ann")
    await producer.send("t", Data("apple"))  # pyright: ignore[reportArgumentType]
    await any_json.send("t", {"a": [1, "b", None, {"c": 1.5}]})
    numbers = {"a": 1}
    await any_json.send("t", numbers)
    await any_json.send("t", [1, 2])
    await any_json.send("t", {"a": UUID(int=5)})  # pyright: ignore[reportArgumentType]
    async for record in consumer:
        assert_type(record, Record[str, AvroDatum])
        if isinstance(record.value, dict):
            assert_type(record.value["item"], AvroDatum)
        break
    Consumer(SETTINGS, value_deserializer=STRING, bad_record=note)
    Consumer(SETTINGS, value_deserializer=shout)  # pyright: ignore[reportArgumentType]


def user_functions(write: Serializer[Data], read: Deserializer[Data], both: Serde[Data]) -> None:
    """Never run; only the type checker reads it."""
    assert_type(Producer(SETTINGS, value_serializer=write), Producer[bytes, Data])
    assert_type(Producer(SETTINGS, value_serializer=both), Producer[bytes, Data])
    assert_type(Consumer(SETTINGS, value_deserializer=read), Consumer[bytes, Data])
    assert_type(
        ottla.sync.Consumer(SETTINGS, value_deserializer=both), ottla.sync.Consumer[bytes, Data]
    )
