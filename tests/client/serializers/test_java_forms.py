"""Values that Java's types do not allow, worked bytes, and strict text.

What Java's classes write and read is in test_kafka_java_forms.py, compared with Java.
"""

import uuid
from typing import Any

import pytest

from cases import each_case
from ottla.client.serializers import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    SHORT,
    STRING,
    UUID_TEXT,
    VOID,
    DeserializationFailed,
    Serde,
    SerializationFailed,
    deserialize,
    serialize,
    string,
)


@each_case(
    ("serde", "value", "data"),
    [
        (STRING, "größe", "6772c3b6c39f65"),
        (BYTES, b"\x00\xff", "00ff"),
        (SHORT, -2, "fffe"),
        (INT, 258, "00000102"),
        (LONG, 2**40, "0000010000000000"),
        (FLOAT, 1.5, "3fc00000"),
        (DOUBLE, -0.1, "bfb999999999999a"),
        (BOOLEAN, True, "01"),
        (UUID_TEXT, uuid.UUID(int=10), b"00000000-0000-0000-0000-00000000000a".hex()),
    ],
)
def test_worked_bytes(serde: Serde[Any], value: object, data: str) -> None:
    assert serialize(serde.serialize, "t", "value", value) == bytes.fromhex(data)
    assert deserialize(serde.deserialize, "t", 0, 0, "value", bytes.fromhex(data)) == value


@each_case(
    ("serde", "value"),
    [
        (STRING, b"bytes"),
        (STRING, 5),
        (BYTES, "text"),
        (BYTES, bytearray(b"x")),
        (SHORT, 2**15),
        (SHORT, -(2**15) - 1),
        (INT, 2**31),
        (INT, 1.0),
        (INT, "1"),
        (LONG, 2**63),
        (FLOAT, 1e39),
        (FLOAT, "1"),
        (DOUBLE, "1"),
        (DOUBLE, 10**400),
        (BOOLEAN, 1),
        (UUID_TEXT, "00000000-0000-0000-0000-00000000000a"),
        (VOID, 0),
        (VOID, b""),
    ],
)
def test_out_of_range_value_is_refused(serde: Serde[Any], value: object) -> None:
    with pytest.raises(SerializationFailed):
        serialize(serde.serialize, "t", "value", value)


@each_case("serde", [SHORT, INT, LONG, FLOAT, DOUBLE])
def test_wrong_size_error_names_both_sizes(serde: Serde[Any]) -> None:
    with pytest.raises(DeserializationFailed, match=r"expected [248] bytes, not 3"):
        deserialize(serde.deserialize, "t", 0, 0, "value", b"abc")


def test_strict_text_refuses_invalid_characters() -> None:
    strict = string("latin-1", strict=True)
    with pytest.raises(SerializationFailed) as raised:
        serialize(strict.serialize, "t", "value", "5 €")
    assert isinstance(raised.value.__cause__, UnicodeEncodeError)
    with pytest.raises(DeserializationFailed) as unread:
        deserialize(string(strict=True).deserialize, "t", 0, 0, "value", b"\xff")
    assert isinstance(unread.value.__cause__, UnicodeDecodeError)
    assert unread.value.data == b"\xff"
    assert string("latin-1").serialize("t", "5 €") == b"5 ?"
    assert STRING.deserialize("t", b"\xff") == "\ufffd"


@pytest.mark.parametrize("encoding", ["UTF-16", "UTF-16BE"])
def test_text_after_a_lone_surrogate_is_kept(encoding: str) -> None:
    assert string(encoding).deserialize("t", b"\xd8\x00\x00A\x00B") == "\ufffdAB"


def test_unknown_encoding_is_refused_at_once() -> None:
    with pytest.raises(LookupError, match="klingon"):
        string("klingon")
