"""Identifiers have the text forms that Kafka's tools print and parse."""

import base64
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each_case
from ottla.ids import (
    ZERO_UUID,
    PartitionIndex,
    TopicPartition,
    Uuid,
    topic_name_problem,
    topic_names_collide,
)


def test_topic_partition_text_is_directory_name() -> None:
    assert str(TopicPartition("orders", PartitionIndex(0))) == "orders-0"
    assert f"{TopicPartition('a-b.c', PartitionIndex(12))}" == "a-b.c-12"


def test_topic_partitions_are_equal_hashed_and_ordered_by_value() -> None:
    first = TopicPartition("a", PartitionIndex(2))
    second = TopicPartition("a", PartitionIndex(10))
    third = TopicPartition("b", PartitionIndex(0))
    assert sorted([third, second, first]) == [first, second, third]
    assert {first: "x"}[TopicPartition("a", PartitionIndex(2))] == "x"
    assert first != second


def test_topic_partition_cannot_be_changed() -> None:
    place = TopicPartition("a", PartitionIndex(0))
    with pytest.raises(AttributeError):
        setattr(place, "topic", "b")  # noqa: B010 - a plain assignment is refused before it runs
    with pytest.raises(AttributeError):
        setattr(place, "colour", "b")  # noqa: B010


@given(st.binary(min_size=16, max_size=16))
def test_uuid_text_is_url_safe_base64_without_padding(raw: bytes) -> None:
    uuid = Uuid(raw)
    assert str(uuid) == base64.urlsafe_b64encode(raw).decode().rstrip("=")
    assert f"{uuid}" == str(uuid)
    assert len(str(uuid)) == 22
    assert Uuid.parse(str(uuid)) == uuid


@given(st.binary(min_size=16, max_size=16))
def test_uuid_is_equal_and_hashed_as_its_bytes(raw: bytes) -> None:
    uuid = Uuid(raw)
    assert uuid == raw
    assert hash(uuid) == hash(raw)
    assert {raw: 1}[uuid] == 1
    assert Uuid(bytearray(raw)) == Uuid(memoryview(raw)) == uuid
    assert type(pickle.loads(pickle.dumps(uuid))) is Uuid


@each_case("size", [0, 15, 17, 22])
def test_uuid_of_another_length_is_rejected(size: int) -> None:
    with pytest.raises(ValueError, match=f"16 bytes, not {size}"):
        Uuid(bytes(size))


@each_case(
    "text",
    [
        "",
        "A" * 21,
        "A" * 23,
        "A" * 22 + "==",
        "A" * 21 + "B",  # the last character's low bits must be zero
        "A" * 20 + "+A",
        "A" * 20 + "/A",
        "A" * 20 + " A",
        "A" * 20 + "=A",
        "AAAAAAAAAA\nAAAAAAAAAAA",
        "é" * 22,
        "00000000-0000-0000-0000-000000000000",
    ],
)
def test_text_that_is_not_a_uuid_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="invalid UUID"):
        Uuid.parse(text)


def test_known_uuids() -> None:
    assert str(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    # Kafka's reserved id of the metadata topic: fifteen zero bytes and a one.
    assert str(Uuid(bytes(15) + b"\x01")) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert str(Uuid(b"\xff" * 16)) == "_____________________w"
    assert repr(ZERO_UUID) == "Uuid.parse('AAAAAAAAAAAAAAAAAAAAAA')"


@each_case("name", ["a", "0", "...", "._-", "__consumer_offsets", "Orders.v1-eu", "x" * 249, "-"])
def test_valid_topic_names(name: str) -> None:
    assert topic_name_problem(name) is None


@each_case(
    ("name", "part"),
    [
        ("", "empty"),
        (".", "cannot be '.'"),
        ("..", "cannot be '..'"),
        ("x" * 250, "at most 249 characters, this one has 250"),
        ("a/b", "'/' at index 1"),
        ("a b", "' ' at index 1"),
        ("naïve", r"'\xef' at index 2"),
        ("a\n", r"'\n' at index 1"),
        ("a\x00", r"'\x00' at index 1"),
        ("٣", "index 0"),  # a digit, but not an ASCII one
        ("../etc", "'/' at index 2"),
    ],
)
def test_invalid_topic_name_is_explained(name: str, part: str) -> None:
    problem = topic_name_problem(name)
    assert problem is not None
    assert part in problem
    assert problem.endswith(".")
    assert problem.isprintable()


def test_names_that_differ_in_dots_and_underscores_collide() -> None:
    assert topic_names_collide("a.b", "a_b")
    assert topic_names_collide("a._b", "a_.b")
    assert not topic_names_collide("a.b", "a.b")
    assert not topic_names_collide("a.b", "a-b")
    assert not topic_names_collide("a.b", "a.b.c")
