"""The writer rejects values that a version cannot carry."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from cases import each_case
from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol.message import Message, UnknownVersion
from ottla.protocol.messages.fetch import FetchRequest, ReplicaState
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.schema import (
    INT8S,
    INT32S,
    STRINGS,
    Kind,
    Struct,
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    nullable_array,
    nullable_octets,
    nullable_string,
    nullable_struct,
    octets,
    string,
    struct,
    tagged_struct,
    uint32,
    uuid,
)
from ottla.protocol.writer import EncodingError
from protocol_values import MESSAGES, example, name_of


class Inner(Struct):
    number: int = int32("0+", default=-1)


class Everything(Message, versions="0-1", flexible="1+"):
    flag: Any = boolean("0+", default=False)
    tiny: Any = int8("0+", default=0)
    small: Any = int16("0+", default=0)
    number: Any = int32("0+", default=0)
    crc: Any = uint32("0+", default=0)
    big: Any = int64("0+", default=0)
    share: Any = float64("0+", default=0.0)
    id: Any = uuid("0+", default=ZERO_UUID)
    text: Any = string("0+", default="")
    octets: Any = octets("0+", default=b"")
    bytes_: Any = array(INT8S, "0+", default=())
    ints: Any = array(INT32S, "0+", default=())
    texts: Any = array(STRINGS, "0+", default=())
    inners: Any = array(Inner, "0+", default=())
    inner: Any = struct(Inner, "0+")


BOTH = each_case("version", [0, 1])


def everything(**values: object) -> Everything:
    return Everything(**{"inner": Inner()} | values)


def unwritable(message: Message, version: int, match: str | None = None) -> None:
    with pytest.raises(EncodingError, match=match):
        message.encode(version)
    with pytest.raises(EncodingError, match=match):
        message.buffers(version)


@BOTH
@each_case("field", Everything.FIELDS, ids=lambda field: field.name)
def test_none_is_rejected_in_non_nullable_fields(field: Any, version: int) -> None:
    everything().encode(version)
    unwritable(everything(**{field.name: None}), version, match="Everything v")


WRONG: dict[str, list[object]] = {
    "flag": ["yes", 1.0, [], 200],
    "tiny": [128, -129, 1.5, "1"],
    "small": [2**15, -(2**15) - 1, 2**70],
    "number": [2**31, -(2**31) - 1, 0.0],
    "crc": [-1, 2**32],
    "big": [2**63, -(2**63) - 1],
    "share": ["1.0", 10**400],
    "id": ["0" * 16, 7],
    "text": [b"bytes", 5, "\ud800", "x" * 32_768, "\u20ac" * 10_923],
    "octets": ["text", 5],
    "bytes_": [[128], [None], 7, [0] * 20 + [128]],
    "ints": [[2**31], ["1"], 5, [0] * 20 + [2**31], [0] * 200 + [-(2**31) - 1]],
    "texts": [[None], [b"a"], ["x" * 32_768], ["a"] * 30 + ["\udfff"]],
    "inners": [[None], [5], [Inner(number=2**31)]],
    "inner": [5, Inner(number=2**31)],
}


@BOTH
@each_case(("name", "value"), [(n, v) for n, values in WRONG.items() for v in values])
def test_values_of_the_wrong_type_or_size(name: str, value: object, version: int) -> None:
    unwritable(everything(**{name: value}), version)


def test_every_field_has_an_invalid_example() -> None:
    assert set(WRONG) == {field.name for field in Everything.FIELDS}


@BOTH
def test_longest_possible_string(version: int) -> None:
    for text in ("x" * 32_767, "\u20ac" * 10_922 + "x"):
        value = everything(text=text, texts=(text,))
        assert Everything.decode(value.encode(version), version) == value


class Ages(Message, versions="0-3", flexible="3+"):
    """Fields of some versions only: some are ignorable, others are not."""

    old: int = int32("0-1", default=7)
    old_dropped: int = int32("0-1", default=7, ignorable=True)
    text: str = string("2+", default="")
    text_set: str = string("2+", default="set")
    text_dropped: str = string("2+", default="", ignorable=True)
    nullable: str | None = nullable_string("2+", default=None)
    nullable_empty: str | None = nullable_string("2+", default="")
    octets: bytes | None = nullable_octets("2+", default=b"")
    id: Uuid = uuid("2+", default=ZERO_UUID)
    flag: bool = boolean("2+", default=True)
    ints: Sequence[int] = array(INT32S, "2+", default=())
    maybe_ints: Sequence[int] | None = nullable_array(INT32S, "2+", default=None)
    maybe_inner: Inner | None = nullable_struct(Inner, "2+", default=None)
    made_inner: Inner | None = nullable_struct(Inner, "2+", factory=Inner)
    tagged: int = int64("3+", default=-1, tag=0)
    tagged_inner: Inner | None = tagged_struct(Inner, "3+", tag=1, default=None)
    tagged_dropped: int = int64("3+", default=-1, tag=2, ignorable=True)
    tagged_inner_dropped: Inner | None = tagged_struct(
        Inner, "3+", tag=3, default=None, ignorable=True
    )


SET: dict[str, list[Any]] = {
    "old": [0],
    "old_dropped": [0],
    "text": ["x"],
    "text_set": ["", "x"],
    "text_dropped": ["x"],
    "nullable": ["", "x"],
    "nullable_empty": [None, "x"],
    "octets": [None, b"x"],
    "id": [Uuid(bytes(15) + b"\1")],
    "flag": [False],
    "ints": [(0,), [0]],
    "maybe_ints": [(), (1,)],
    "maybe_inner": [Inner(), Inner(number=1)],
    "made_inner": [None, Inner(number=1)],
    "tagged": [0],
    "tagged_inner": [Inner(number=1)],
    "tagged_dropped": [0],
    "tagged_inner_dropped": [Inner(number=1)],
}


@each_case("version", Ages.VERSIONS)
@each_case("field", Ages.FIELDS, ids=lambda field: field.name)
def test_field_missing_in_version_must_have_default(field: Any, version: int) -> None:
    nothing_set = Ages().encode(version)
    for value in SET[field.name]:
        message = Ages(**{field.name: value})
        if version in field.versions:
            read = getattr(Ages.decode(message.encode(version), version), field.name)
            assert read == (tuple(value) if field.kind is Kind.ARRAY and value else value)
        elif field.ignorable:
            assert message.encode(version) == nothing_set
        else:
            unwritable(message, version, match=f"{field.name} is set, but version {version}")


def test_structure_of_defaults_is_not_sent() -> None:
    """In a tagged field, None and a structure of defaults are encoded alike."""
    for version in Ages.VERSIONS:
        assert Ages(tagged_inner=Inner()).encode(version) == Ages().encode(version)


def test_real_message_fields_missing_in_a_version() -> None:
    fetch = FetchRequest(max_wait_ms=1, min_bytes=1, topics=(), session_id=5, rack_id="r")
    fetch.encode(4)  # both can be omitted
    fetch.replica_id = 3
    fetch.encode(14)
    unwritable(fetch, 15, match="replica_id is set")
    fetch.replica_id = -1
    fetch.replica_state = ReplicaState(replica_id=3)
    unwritable(fetch, 14, match="replica_state is set")
    assert FetchRequest.decode(fetch.encode(15), 15) == fetch
    unwritable(MetadataRequest(topics=None), 0)
    nameless = MetadataRequest(topics=[MetadataRequestTopic(name=None)])
    unwritable(nameless, 9)
    nameless.encode(10)


@each_case("cls", MESSAGES, ids=name_of)
def test_unknown_message_versions_raise(cls: type[Message]) -> None:
    message = example(cls, cls.VERSIONS.low)
    for version in (-1, cls.VERSIONS.low - 1, cls.VERSIONS.high + 1, 32_767):
        if version in cls.VERSIONS:
            continue
        unwritable(message, version, match=f"has versions {cls.VERSIONS}, not {version}")
        with pytest.raises(EncodingError):
            cls.decode(b"", version)


def test_message_can_be_encoded_after_an_error() -> None:
    message = everything(text="x" * 40_000)
    unwritable(message, 0)
    message.text = "x"
    assert Everything.decode(message.encode(0), 0) == message


def test_required_fields_are_required() -> None:
    with pytest.raises(TypeError, match="topics"):
        FetchRequest(max_wait_ms=1, min_bytes=1)  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="unexpected"):
        MetadataRequest(topics=None, color="red")  # pyright: ignore[reportCallIssue]


@each_case("raw", [b"short", bytes(17)])
def test_uuid_field_requires_16_bytes(raw: bytes) -> None:
    topic = MetadataRequestTopic(name=None, topic_id=cast("Uuid", raw))
    with pytest.raises(EncodingError, match="16 bytes"):
        MetadataRequest(topics=[topic]).encode(12)


def test_unknown_version_raises() -> None:
    with pytest.raises(UnknownVersion, match="versions 0-13, not 14"):
        MetadataRequest(topics=None).encode(14)
    with pytest.raises(UnknownVersion, match="versions 0-13, not 14"):
        MetadataRequest.decode(b"", 14)
