"""Malformed bytes are rejected and allocate nothing."""

import struct
import tracemalloc
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import pytest

from cases import each_case
from ottla.errors import ProtocolViolation
from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol.conversation import RESPONSE_OBJECTS_MAX
from ottla.protocol.headers import HEADER_TAGS_MAX
from ottla.protocol.message import OBJECTS_MAX, Message
from ottla.protocol.primitives import read_uvarint, skip_tags, uvarint
from ottla.protocol.schema import (
    INT8S,
    INT32S,
    INT64S,
    STRINGS,
    Struct,
    array,
    boolean,
    int8,
    int32,
    nullable_array,
    nullable_octets,
    nullable_records,
    nullable_string,
    nullable_struct,
    octets,
    string,
    tagged_struct,
    uuid,
)
from protocol_reference import Liberty, reference_decode
from protocol_values import MESSAGES, example, name_of, varint

CLASSIC: Final = 0
FLEXIBLE: Final = 1
BOTH: Final = (CLASSIC, FLEXIBLE)

every_message = each_case("cls", MESSAGES, ids=name_of)


def refused(cls: type[Message], raw: bytes, version: int, match: str | None = None) -> None:
    with pytest.raises(ProtocolViolation, match=match):
        cls.decode(raw, version)
    with pytest.raises(ProtocolViolation, match=match):
        cls.decode(memoryview(raw), version)


@every_message
def test_truncated_message_is_rejected(cls: type[Message]) -> None:
    for version in cls.VERSIONS:
        raw = example(cls, version).encode(version)
        for end in range(len(raw)):
            with pytest.raises(ProtocolViolation):
                cls.decode(raw[:end], version)


@every_message
def test_extra_bytes_after_message_are_rejected(cls: type[Message]) -> None:
    for version in cls.VERSIONS:
        raw = example(cls, version).encode(version)
        for more in (b"\0", b"\xff", raw):
            if more:
                refused(cls, raw + more, version, match="after the message")
        assert cls.decode_prefix(raw + b"\0", version)[1] == len(raw)


class Text(Message, versions="0-1", flexible="1+"):
    text: str = string("0+")


class NullableText(Message, versions="0-1", flexible="1+"):
    text: str | None = nullable_string("0+")


class Octets(Message, versions="0-1", flexible="1+"):
    octets: bytes = octets("0+")


class NullableOctets(Message, versions="0-1", flexible="1+"):
    octets: bytes | None = nullable_octets("0+")


class Records(Message, versions="0-1", flexible="1+"):
    """Records are a memoryview, and so are the fields next to them."""

    text: str = string("0+")
    octets: bytes = octets("0+")
    records: object = nullable_records("0+")


class Bytes(Message, versions="0-1", flexible="1+"):
    items: Sequence[int] = array(INT8S, "0+")


class Ints(Message, versions="0-1", flexible="1+"):
    items: Sequence[int] = array(INT32S, "0+")


class NullableInts(Message, versions="0-1", flexible="1+"):
    items: Sequence[int] | None = nullable_array(INT32S, "0+")


class Longs(Message, versions="0-1", flexible="1+"):
    items: Sequence[int] = array(INT64S, "0+")


class Texts(Message, versions="0-1", flexible="1+"):
    items: Sequence[str] = array(STRINGS, "0+")


class Pair(Struct):
    name: str = string("0+")
    value: int = int32("0+")


class Pairs(Message, versions="0-1", flexible="1+"):
    items: Sequence[Pair] = array(Pair, "0+")


class NullablePairs(Message, versions="0-1", flexible="1+"):
    items: Sequence[Pair] | None = nullable_array(Pair, "0+")


class Nothing(Struct):
    """An element without bytes in version 0."""

    later: int = int8("1+", default=0)


class Nothings(Message, versions="0-1", flexible="1+"):
    items: Sequence[Nothing] = array(Nothing, "0+")


ARRAYS: Final = (Bytes, Ints, NullableInts, Longs, Texts, Pairs, NullablePairs)
LENGTHS_OF_TWO: Final = (Text, NullableText)
LENGTHS_OF_FOUR: Final = (Octets, NullableOctets, *ARRAYS, Nothings)
NULLABLE: Final = (NullableText, NullableOctets, NullableInts, NullablePairs)


def length(cls: type[Message], value: int) -> bytes:
    return struct.pack(">h" if cls in LENGTHS_OF_TWO else ">i", value)


@each_case("cls", LENGTHS_OF_TWO + LENGTHS_OF_FOUR, ids=name_of)
def test_null_is_accepted_only_in_nullable_fields(cls: type[Message]) -> None:
    classic, flexible = length(cls, -1), b"\0\0"
    if cls in NULLABLE:
        name = cls.FIELDS[0].name
        assert getattr(cls.decode(classic, CLASSIC), name) is None
        assert getattr(cls.decode(flexible, FLEXIBLE), name) is None
    else:
        refused(cls, classic, CLASSIC, match="null or has a negative length")
        refused(cls, flexible, FLEXIBLE, match="null or has a negative length")


@each_case("cls", LENGTHS_OF_TWO + LENGTHS_OF_FOUR, ids=name_of)
@each_case("value", [-2, -3, -128, -32_768])
def test_length_below_minus_one_is_rejected(cls: type[Message], value: int) -> None:
    refused(cls, length(cls, value) + bytes(64), CLASSIC, match="negative length")


@each_case("cls", LENGTHS_OF_FOUR, ids=name_of)
def test_lowest_length_is_rejected(cls: type[Message]) -> None:
    refused(cls, length(cls, -(2**31)), CLASSIC, match="negative length")


@each_case("cls", [Text, Octets, *ARRAYS], ids=name_of)
@each_case("version", BOTH)
def test_length_past_the_end_is_rejected(cls: type[Message], version: int) -> None:
    """Also by a single array element, for every count around the fast paths."""
    for count in (1, 15, 16, 17, 18, 130):
        item = bytes(16)  # no element is larger
        claimed = length(cls, count) if version == CLASSIC else varint(count + 1)
        body = item * (count + 1)
        for cut in range(1, len(body)):
            try:
                value = cls.decode(claimed + body[:cut], version)
            except ProtocolViolation:
                continue
            assert len(getattr(value, cls.FIELDS[0].name)) == count
            assert value.encode(version) == claimed + body[:cut]


def peak_of_refusing(cls: type[Message], raw: bytes, version: int) -> int:
    refused(cls, raw, version)  # compile the reader before the measurement
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolViolation):
            cls.decode(raw, version)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@each_case("cls", LENGTHS_OF_FOUR, ids=name_of)
@each_case("count", [2**31 - 1, 2**30, 10**7])
def test_wrong_count_allocates_nothing(cls: type[Message], count: int) -> None:
    if cls is Nothings:
        count = OBJECTS_MAX + 1  # only the object budget limits these
    assert peak_of_refusing(cls, length(cls, count) + bytes(200), CLASSIC) < 50_000


@each_case("cls", LENGTHS_OF_TWO + LENGTHS_OF_FOUR, ids=name_of)
@each_case("count", [2**32 - 1, 2**31, 2**31 - 1, 10**7])
def test_wrong_varint_allocates_nothing(cls: type[Message], count: int) -> None:
    assert peak_of_refusing(cls, varint(count) + bytes(200), FLEXIBLE) < 50_000


@each_case("left", [0, 1, 100, 5_999])
def test_count_is_checked_with_minimum_element_size(left: int) -> None:
    """1,000 pairs take at least 6,000 bytes in either encoding."""
    for version, claimed in ((CLASSIC, struct.pack(">i", 1_000)), (FLEXIBLE, varint(1_001))):
        refused(Pairs, claimed + bytes(left), version, match="length 1000 but")
    for cls, size in ((Texts, 2), (Longs, 8)):
        short = bytes(1_000 * size - 1)
        refused(cls, struct.pack(">i", 1_000) + short, CLASSIC, match="length 1000 but")


@each_case("cls", MESSAGES, ids=name_of)
def test_huge_count_anywhere_allocates_nothing(cls: type[Message]) -> None:
    """Put the largest count at every position."""
    version = cls.VERSIONS.high
    raw = example(cls, version).encode(version)
    huge = varint(2**32 - 1) if version in cls.FLEXIBLE else struct.pack(">i", 2**31 - 1)
    tracemalloc.start()
    try:
        for at in range(0, len(raw), len(raw) // 200 + 1):
            with suppress(ProtocolViolation):
                cls.decode(raw[:at] + huge + raw[at + len(huge) :], version)
        assert tracemalloc.get_traced_memory()[1] < 3_000_000  # includes the compiled reader
    finally:
        tracemalloc.stop()


class Budget(Message, versions="0"):
    pairs: Sequence[Pair] = array(Pair, "0")
    ints: Sequence[int] = array(INT32S, "0")
    nothings: Sequence[Nothing] = array(Nothing, "0")


def budget(pairs: int, ints: int, nothings: int) -> bytes:
    return Budget(
        pairs=[Pair(name="a", value=1)] * pairs,
        ints=[7] * ints,
        nothings=[Nothing()] * nothings,
    ).encode(0)


@each_case(("pairs", "ints", "nothings"), [(100, 0, 0), (0, 100, 0), (0, 0, 100), (40, 40, 20)])
def test_object_budget(pairs: int, ints: int, nothings: int) -> None:
    raw = budget(pairs, ints, nothings)
    Budget.decode(raw, 0, objects_max=100)
    with pytest.raises(ProtocolViolation, match="number of objects"):
        Budget.decode(raw, 0, objects_max=99)
    with pytest.raises(ProtocolViolation, match="number of objects"):
        Budget.decode(raw, 0, objects_max=0)


def test_object_budget_limits_elements_without_bytes() -> None:
    """The number of remaining bytes does not limit their count."""
    raw = bytes(8) + struct.pack(">i", OBJECTS_MAX + 1)
    with pytest.raises(ProtocolViolation, match="number of objects"):
        Budget.decode(raw, 0)


def test_flexible_strings_have_the_same_maximum_length() -> None:
    most, more = b"x" * 32_767, b"x" * 32_768
    assert Text.decode(varint(32_768) + most + b"\0", FLEXIBLE).text == most.decode()
    refused(Text, varint(32_769) + more + b"\0", FLEXIBLE, match="32768 bytes; at most 32767")
    refused(Texts, b"\2" + varint(32_769) + more + b"\0", FLEXIBLE, match="at most 32767")
    assert Octets.decode(varint(32_769) + more + b"\0", FLEXIBLE).octets == more


LONG_VARINTS: Final = {
    "a zero of two bytes": b"\x80\x00",
    "a one of two bytes": b"\x81\x00",
    "a one of five bytes": b"\x81\x80\x80\x80\x00",
    "six bytes": b"\x81\x80\x80\x80\x80\x00",
    "six bytes that say much": b"\xff\xff\xff\xff\xff\x01",
    "33 bits": b"\xff\xff\xff\xff\x1f",
    "35 bits": b"\xff\xff\xff\xff\x7f",
    "no end": b"\xff" * 16,
}


@each_case("raw", LONG_VARINTS.values(), ids=[*LONG_VARINTS])
def test_overlong_varints(raw: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="varint"):
        read_uvarint(raw + bytes(8), 0)
    for cls in LENGTHS_OF_TWO + LENGTHS_OF_FOUR:
        refused(cls, raw + bytes(64), FLEXIBLE, match="varint")
    # As the number of tags, as a tag and as a tag size.
    refused(Text, b"\1" + raw + bytes(64), FLEXIBLE, match="varint")
    refused(Text, b"\1\1" + raw + bytes(64), FLEXIBLE, match="varint")
    refused(Text, b"\1\1\5" + raw + bytes(64), FLEXIBLE, match="varint")
    refused(Tagged, raw + bytes(64), FLEXIBLE, match="varint")
    refused(Tagged, b"\1" + raw + bytes(64), FLEXIBLE, match="varint")
    refused(Tagged, b"\1\5" + raw + bytes(64), FLEXIBLE, match="varint")


@each_case("bits", range(33))
def test_varints_of_every_size(bits: int) -> None:
    for value in {0, 2**bits - 1, min(2**bits, 2**32 - 1)}:
        raw = varint(value)
        assert uvarint(value) == raw
        assert read_uvarint(b"??" + raw + b"!", 2) == (value, 2 + len(raw))
        for end in range(len(raw)):
            with pytest.raises(IndexError):
                read_uvarint(raw[:end], 0)


class Inner(Struct):
    number: int = int32("0+", default=-1)


class Tagged(Message, versions="0-1", flexible="1+"):
    name: str | None = nullable_string("1+", default=None, tag=0)
    number: int = int32("1+", default=5, tag=1)
    inner: Inner | None = tagged_struct(Inner, "1+", tag=3, default=None)
    id: Uuid = uuid("1+", default=ZERO_UUID, tag=200)
    flag: bool = boolean("1+", default=False, tag=201)


def tag(number: int, content: bytes, size: int | None = None) -> bytes:
    return varint(number) + varint(len(content) if size is None else size) + content


NAME: Final = tag(0, b"\3ab")
NUMBER: Final = tag(1, b"\0\0\0\7")
INNER: Final = tag(3, b"\0\0\0\1\0")
ID: Final = tag(200, bytes(range(16)))
FLAG: Final = tag(201, b"\1")


def tags(*sections: bytes) -> bytes:
    return varint(len(sections)) + b"".join(sections)


def test_tags_in_their_order() -> None:
    raw = tags(NAME, NUMBER, INNER, ID, FLAG)
    value = Tagged.decode(raw, FLEXIBLE)
    assert value == Tagged(
        name="ab", number=7, inner=Inner(number=1), id=Uuid(bytes(range(16))), flag=True
    )
    assert value.encode(FLEXIBLE) == raw
    assert Tagged.decode(b"\0", FLEXIBLE) == Tagged()
    assert Tagged().encode(FLEXIBLE) == b"\0"


@each_case(
    "sections",
    [
        (NUMBER, NAME),
        (NAME, NAME),
        (NAME, INNER, NUMBER),
        (ID, INNER),
        (FLAG, FLAG),
        (tag(2, b""), NUMBER),
        (tag(2, b""), tag(2, b"")),
        (tag(300, b""), tag(299, b"")),
        (NAME, tag(2**32 - 1, b""), tag(2**32 - 2, b"")),
    ],
)
def test_tags_out_of_order_or_twice(sections: tuple[bytes, ...]) -> None:
    refused(Tagged, tags(*sections), FLEXIBLE, match="after tag")
    # A message without known tags rejects the same.
    refused(Text, b"\1" + tags(*sections), FLEXIBLE, match="after tag")


@each_case("claimed", [3, 5, 127])
def test_tag_size_must_match_its_field(claimed: int) -> None:
    """The field takes four bytes, even if the tag size is smaller or larger."""
    rest = bytes(200)
    refused(Tagged, b"\1" + varint(1) + varint(claimed) + b"\0\0\0\7" + rest, FLEXIBLE)
    refused(Tagged, tags(tag(0, b"\3ab", claimed + 1)) + rest, FLEXIBLE, match="size of its tag")
    refused(Tagged, tags(tag(3, b"\0\0\0\1\0", claimed + 1)) + rest, FLEXIBLE, match="size of its")


def test_tag_past_the_end_is_rejected() -> None:
    for cls, head in ((Tagged, b""), (Text, b"\1")):
        refused(cls, head + tags(tag(9, b"1234", 5)), FLEXIBLE)
        refused(cls, head + tags(tag(9, b"", 2**32 - 1)), FLEXIBLE)
        refused(cls, head + tags(tag(0, b"\3ab", 2**32 - 1)), FLEXIBLE)


@each_case("count", [2, 100, 127, 128, 2**31 - 1, 2**32 - 1])
def test_too_many_tags_are_rejected(count: int) -> None:
    raw = varint(count) + tag(5, b"")
    assert peak_of_refusing(Tagged, raw, FLEXIBLE) < 50_000
    assert peak_of_refusing(Text, b"\1" + raw, FLEXIBLE) < 50_000


def test_unknown_tags_must_end_within_the_message() -> None:
    """Even if the end position is not checked afterwards."""
    assert skip_tags(b"\5\2ab!", 0, 1, 7) == (4, 6)
    with pytest.raises(ProtocolViolation, match="ends 1 bytes after the message"):
        skip_tags(b"\5\2a", 0, 1, 7)
    with pytest.raises(ProtocolViolation, match="2 tagged fields do not fit in 3 bytes"):
        skip_tags(b"\5\1a", 0, 2, 7)
    with pytest.raises(ProtocolViolation, match="4294967295 tagged fields do not fit in 3 bytes"):
        skip_tags(b"\xff\xff\xff\x0f\5\1a", 0, 0xFF, 7)


@each_case("message", [Tagged, Text])
def test_unknown_tags_are_charged_to_the_budget(message: type[Message]) -> None:
    prefix = b"" if message is Tagged else b"\1"
    unknown = b"".join(tag(number, b"") for number in range(50, 60))
    raw = prefix + varint(10) + unknown
    message.decode(raw, FLEXIBLE, objects_max=10)
    with pytest.raises(ProtocolViolation, match="tag"):
        message.decode(raw, FLEXIBLE, objects_max=9)


def test_unknown_tags_are_skipped() -> None:
    unknown = [tag(2, b"xyz"), tag(4, b""), tag(199, b"\xff" * 300), tag(2**32 - 1, b"!")]
    raw = tags(NAME, unknown[0], INNER, *unknown[1:3], ID, FLAG, unknown[3])
    known = tags(NAME, INNER, ID, FLAG)
    assert Tagged.decode(raw, FLEXIBLE).encode(FLEXIBLE) == known
    assert reference_decode(Tagged, raw, FLEXIBLE)[1] == {Liberty.UNKNOWN_TAG}
    many = [tag(number, b"") for number in range(1000, 1300)]
    assert Tagged.decode(tags(*many), FLEXIBLE) == Tagged()
    assert Text.decode(b"\2a" + tags(*many), FLEXIBLE) == Text(text="a")
    assert Pairs.decode(b"\2\2a\0\0\0\1" + tags(*many) + b"\0", FLEXIBLE) == Pairs(
        items=(Pair(name="a", value=1),)
    )


def test_tagged_field_can_hold_its_default() -> None:
    said = tags(tag(0, b"\0"), tag(1, b"\0\0\0\5"), tag(200, bytes(16)), tag(201, b"\0"))
    assert Tagged.decode(said, FLEXIBLE) == Tagged()
    inner = Tagged.decode(tags(tag(3, b"\xff\xff\xff\xff\0")), FLEXIBLE)
    assert inner.inner == Inner()
    assert inner.encode(FLEXIBLE) == b"\0"


BAD_TEXTS: Final = {
    "a continuation alone": b"\x80",
    "a cut sequence": b"\xe2\x82",
    "overlong": b"\xc0\x80",
    "a surrogate": b"\xed\xa0\x80",
    "beyond Unicode": b"\xf4\x90\x80\x80",
    "never in UTF-8": b"a\xff",
}


@each_case("raw", BAD_TEXTS.values(), ids=[*BAD_TEXTS])
def test_invalid_utf8_is_rejected(raw: bytes) -> None:
    refused(Text, struct.pack(">h", len(raw)) + raw, CLASSIC, match="Text v0: ")
    refused(Text, varint(len(raw) + 1) + raw + b"\0", FLEXIBLE)
    refused(Texts, b"\2" + varint(len(raw) + 1) + raw + b"\0", FLEXIBLE)
    refused(Records, struct.pack(">h", len(raw)) + raw + bytes(8), CLASSIC)
    refused(Records, varint(len(raw) + 1) + raw + b"\1\1\0", FLEXIBLE)
    refused(Tagged, tags(tag(0, varint(len(raw) + 1) + raw)), FLEXIBLE)


class Optional(Message, versions="0-1", flexible="1+"):
    inner: Inner | None = nullable_struct(Inner, "0+", default=None)
    behind: int = int8("0+")


class OptionalInTag(Message, versions="0", flexible="0+"):
    inner: Inner | None = nullable_struct(Inner, "0+", factory=Inner, tag=0)


@each_case("marker", sorted(set(range(256)) - {1, 255}))
def test_markers_of_structures(marker: int) -> None:
    refused(Optional, bytes([marker]) + b"\0\0\0\7\1", CLASSIC, match="invalid null marker")
    refused(Optional, bytes([marker]) + b"\0\0\0\7\0\1\0", FLEXIBLE, match="invalid null marker")
    if marker:
        raw = tags(tag(0, bytes([marker]) + b"\0\0\0\7\0"))
        refused(OptionalInTag, raw, 0, match="invalid null marker")


def test_structures_that_may_be_null() -> None:
    there = Optional(inner=Inner(number=7), behind=1)
    absent = Optional(inner=None, behind=1)
    assert there.encode(CLASSIC) == b"\1\0\0\0\7\1"
    assert absent.encode(CLASSIC) == b"\xff\1"
    assert there.encode(FLEXIBLE) == b"\1\0\0\0\7\0\1\0"
    assert absent.encode(FLEXIBLE) == b"\xff\1\0"
    for version in BOTH:
        assert Optional.decode(there.encode(version), version) == there
        assert Optional.decode(absent.encode(version), version) == absent
    assert OptionalInTag(inner=None).encode(0) == b"\1\0\1\0"
    assert OptionalInTag(inner=Inner()).encode(0) == b"\0"
    assert OptionalInTag(inner=Inner(number=7)).encode(0) == b"\1\0\6\1\0\0\0\7\0"
    for inner in (None, Inner(), Inner(number=7)):
        raw = OptionalInTag(inner=inner).encode(0)
        assert OptionalInTag.decode(raw, 0).inner == inner


def test_boolean_can_be_any_byte() -> None:
    class Flag(Message, versions="0"):
        flag: bool = boolean("0")

    for byte in range(256):
        assert Flag.decode(bytes([byte]), 0).flag is (byte != 0)
    assert Flag(flag=True).encode(0) == b"\1"
    assert Flag(flag=False).encode(0) == b"\0"


@every_message
def test_empty_and_random_bytes_are_rejected(cls: type[Message]) -> None:
    for version in cls.VERSIONS:
        nothing_in_it = not example(cls, version).encode(version)
        for raw in (b"", b"\xff" * 300, b"\x80" * 300):
            if nothing_in_it and not raw:
                assert cls.decode(raw, version).encode(version) == b""
            else:
                refused(cls, raw, version, match=f"^{cls.__name__} v{version}: ")


def test_default_limits() -> None:
    assert OBJECTS_MAX == 200_000
    assert RESPONSE_OBJECTS_MAX == 4_000_000
    assert HEADER_TAGS_MAX == 1000


@each_case("short", [1, 16, 17])
def test_elements_of_short_arrays_are_charged_too(short: int) -> None:
    raw = Ints(items=tuple(range(short))).encode(FLEXIBLE)
    Ints.decode(raw, FLEXIBLE, objects_max=short)
    with pytest.raises(ProtocolViolation, match="objects"):
        Ints.decode(raw, FLEXIBLE, objects_max=short - 1)


def test_default_object_budget() -> None:
    raw = Ints(items=(0,) * OBJECTS_MAX).encode(FLEXIBLE)
    Ints.decode(raw, FLEXIBLE)
    with pytest.raises(ProtocolViolation, match="objects"):
        Ints.decode(Ints(items=(0,) * (OBJECTS_MAX + 1)).encode(FLEXIBLE), FLEXIBLE)
