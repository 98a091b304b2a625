"""JSON, Avro and Protobuf: round trips, and invalid values that are refused."""

import re
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypedDict, assert_type

import msgspec
import pydantic
import pytest
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp

from cases import each_case
from ottla.client.serializers import (
    JSON,
    DeserializationFailed,
    Json,
    Serde,
    SerializationFailed,
    avro,
    deserialize,
    json_of,
    protobuf,
    serialize,
)


class OrderStruct(msgspec.Struct):
    id: int
    items: list[str] = []


@dataclass
class OrderData:
    id: int
    items: list[str]


class OrderModel(pydantic.BaseModel):
    id: int
    items: list[str] = []


class OrderDict(TypedDict):
    id: int
    items: list[str]


def write(serde: Serde[Any], value: object) -> bytes | None:
    return serialize(serde.serialize, "t", "value", value)


def read(serde: Serde[Any], data: bytes) -> object:
    return deserialize(serde.deserialize, "t", 0, 0, "value", data)


ORDER = b'{"id":1,"items":["tea"]}'


@each_case(
    ("serde", "value"),
    [
        (JSON, {"id": 1, "items": ["tea"]}),
        (json_of(OrderStruct), OrderStruct(1, ["tea"])),
        (json_of(OrderData), OrderData(1, ["tea"])),
        (json_of(OrderModel), OrderModel(id=1, items=["tea"])),
        (json_of(OrderDict), OrderDict(id=1, items=["tea"])),
    ],
)
def test_json_is_the_same_for_every_kind_of_class(serde: Serde[Any], value: object) -> None:
    assert write(serde, value) == ORDER
    assert read(serde, ORDER) == value


def test_json_of_a_list() -> None:
    serde = json_of(list[OrderStruct])
    assert write(serde, [OrderStruct(1, ["tea"])]) == b"[" + ORDER + b"]"
    assert read(serde, b"[" + ORDER + b"]") == [OrderStruct(1, ["tea"])]


def test_types_follow_from_the_class() -> None:
    assert_type(json_of(OrderStruct), Serde[OrderStruct])
    assert_type(json_of(OrderModel), Serde[OrderModel])
    assert_type(json_of(list[OrderData]), Serde[list[OrderData]])
    assert_type(JSON, Serde[Json])
    assert_type(protobuf(Timestamp), Serde[Timestamp])


@each_case("kind", [OrderStruct, OrderData, OrderModel])
@each_case("data", [b"", b"{", b'{"id":"x"}', b'{"items":[]}', b"\xff", b"null"])
def test_json_of_another_structure_is_refused(kind: type, data: bytes) -> None:
    with pytest.raises(DeserializationFailed) as raised:
        read(json_of(kind), data)
    assert raised.value.data == data


@each_case("kind", [OrderStruct, OrderData, OrderModel])
@each_case("value", [{"id": 1, "items": []}, 5, object()])
def test_another_class_than_the_one_named_is_not_written(kind: type, value: object) -> None:
    with pytest.raises(SerializationFailed, match=f"expected {kind.__name__}"):
        write(json_of(kind), value)


@each_case("data", [b"", b"{", b"nul", b"\xff", b"1 2"])
def test_invalid_json_is_refused(data: bytes) -> None:
    with pytest.raises(DeserializationFailed):
        read(JSON, data)


def test_values_that_json_cannot_hold_are_refused() -> None:
    with pytest.raises(SerializationFailed, match="TypeError"):
        write(JSON, {"id": object()})


@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
def test_nan_and_infinity_become_null(odd: float) -> None:
    assert write(JSON, [odd, 1.5]) == b"[null,1.5]"


# --- Avro -------------------------------------------------------------------------------------

SCHEMA: dict[str, object] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "name", "type": "string", "default": "?"},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
    ],
}
AT = datetime(2025, 1, 2, tzinfo=UTC)


def test_avro_is_encoded_without_a_header() -> None:
    serde = avro(SCHEMA)
    # id 1 is 02, a string of 3 letters 06, the first branch of the union 00: zigzag varints.
    assert write(serde, {"id": 1, "name": "tea", "at": None}) == b"\x02\x06tea\x00"
    assert read(serde, b"\x02\x06tea\x00") == {"id": 1, "name": "tea", "at": None}
    data = write(serde, {"id": 1, "at": AT})
    assert data is not None
    assert read(serde, data) == {"id": 1, "name": "?", "at": AT}


def test_avro_schema_may_be_text() -> None:
    serde = avro(msgspec.json.encode(SCHEMA).decode())
    assert write(serde, {"id": 1, "name": "tea", "at": None}) == b"\x02\x06tea\x00"
    assert write(avro('"string"'), "tea") == b"\x06tea"


def test_avro_reads_an_older_schema() -> None:
    fields: list[dict[str, object]] = [
        {"name": "id", "type": "long"},
        {"name": "city", "type": "string", "default": "Bree"},
    ]
    newer: dict[str, object] = {"type": "record", "name": "Order", "fields": fields}
    assert read(avro(SCHEMA, read_as=newer), b"\x02\x06tea\x00") == {"id": 1, "city": "Bree"}


@each_case(
    "value",
    [
        {"id": 1.5, "at": None},
        {"id": 2**31, "at": None},
        {"id": True, "at": None},
        {"id": "1", "at": None},
        {"name": "tea", "at": None},
        {"id": 1, "at": None, "city": "Bree"},
        {"id": 1, "name": b"tea", "at": None},
        {"id": 1, "at": "today"},
        5,
    ],
)
def test_avro_writes_complete_values_only(value: object) -> None:
    with pytest.raises(SerializationFailed):
        write(avro(SCHEMA), value)


@each_case(
    "data",
    [
        b"",
        b"\x02",
        b"\x02\x06te",
        b"\x02\x06tea",
        b"\x02\x06tea\x04",
        b"\xff" * 12,
        b"\x02\x02\xff\x00",
    ],
)
def test_truncated_or_invalid_avro_is_refused(data: bytes) -> None:
    with pytest.raises(DeserializationFailed):
        read(avro(SCHEMA), data)


def test_trailing_avro_bytes_are_refused() -> None:
    with pytest.raises(DeserializationFailed, match="2 bytes after the datum"):
        read(avro(SCHEMA), b"\x02\x06tea\x00!!")


@each_case(
    ("schema", "why"),
    [
        ({"type": "nonsense"}, 'unknown type "nonsense"'),
        ('"nonsense"', 'unknown type "nonsense"'),
        ("not json", "invalid Avro schema: 'not json' is not JSON: "),
        ("", "invalid Avro schema: '' is not JSON: "),
        ("5", "5 is not a type name"),
        ("null", "null is not a type name"),
        ("{}", "{}: 'type' must be the name of a type"),
        ("[]", "a union must have at least one type"),
        ({"type": "record", "name": "R"}, "'fields' must be a list of fields"),
        ({"type": "record", "name": "R", "fields": 3}, "'fields' must be a list of fields"),
        ({"type": "record", "name": 3, "fields": []}, "'name' must be a string"),
        ({"type": "record", "name": "R", "fields": [3]}, "Record field must be a dict"),
        ('{"type": "array", "items": []}', "a union must have"),
        ({"type": "enum", "name": "E", "symbols": [1]}, "Every symbol must match"),
        ({"type": "map", "values": {"type": "array"}}, "'items' must be a schema"),
        ({"type": "fixed", "name": "F", "size": "x"}, "'size' must be a number of bytes"),
        ({"type": "bytes", "logicalType": "decimal", "precision": "x"}, "decimal precision must"),
        ('{"type": "array", "items": ' * 1500 + '"int"' + "}" * 1500, "it is nested too deeply"),
    ],
)
def test_invalid_avro_schema_is_refused_at_once(schema: str | dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        avro(schema)
    with pytest.raises(ValueError, match=re.escape(why)):
        avro(SCHEMA, read_as=schema)


# --- Protobuf ---------------------------------------------------------------------------------


def test_protobuf_is_encoded_without_a_header() -> None:
    serde = protobuf(Timestamp)
    assert write(serde, Timestamp(seconds=1)) == b"\x08\x01"
    assert read(serde, b"\x08\x01") == Timestamp(seconds=1)
    assert read(serde, b"") == Timestamp()


def test_equal_protobuf_messages_have_equal_bytes() -> None:
    names = [f"field{number}" for number in range(50)]
    one, other = Struct(), Struct()
    one.update(dict.fromkeys(names, 1))
    other.update(dict.fromkeys(reversed(names), 1))
    assert one == other
    assert write(protobuf(Struct), one) == write(protobuf(Struct), other)


@pytest.mark.parametrize("data", [b"\x08", b"\xff", b"\x0a\x05ab"])
def test_truncated_or_invalid_protobuf_is_refused(data: bytes) -> None:
    with pytest.raises(DeserializationFailed, match="DecodeError"):
        read(protobuf(Timestamp), data)


def test_another_message_than_the_one_named_is_not_written() -> None:
    with pytest.raises(SerializationFailed, match="expected Timestamp, not Struct"):
        write(protobuf(Timestamp), Struct())


def test_protobuf_accepts_only_message_classes() -> None:
    with pytest.raises(TypeError, match="int is not a Protobuf message class"):
        protobuf(int)  # pyright: ignore[reportArgumentType]


# --- extras -----------------------------------------------------------------------------------

WITHOUT = """
import sys
for name in ("fastavro", "google", "google.protobuf", "pydantic"):
    sys.modules[name] = None
from ottla.client.serializers import JSON, avro, protobuf
assert JSON.serialize("t", [1]) == b"[1]"
for ask in (lambda: avro("{}"), lambda: protobuf(int)):
    try:
        ask()
    except ModuleNotFoundError as missing:
        print(missing)
"""


def test_missing_extra_is_named_when_used() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        f"{extra} needs a library that is not installed: install Ottla with the extra {extra} "
        f'(in a clone: pip install ".[{extra}]")'
        for extra in ("avro", "protobuf")
    ]


def test_extras_are_imported_on_use() -> None:
    code = (
        "import sys, ottla.client.serializers\n"
        "print(sorted({'fastavro', 'google.protobuf', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
