"""Coordinator records: unknown types are skipped, corrupt records are rejected."""

import struct
from typing import Any

import pytest

from cases import each_case
from ottla.errors import ProtocolViolation
from ottla.protocol import offsets_topic, transactions_topic
from ottla.protocol.coordinator_records import CoordinatorRecordTypes
from ottla.protocol.message import Message
from ottla.protocol.offsets_topic import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.transactions_topic import TransactionLogKey
from protocol_values import STORED, example

OFFSETS = offsets_topic.TYPES
TRANSACTIONS = transactions_topic.TYPES

# The numbers of CoordinatorRecordType in Kafka's group coordinator.
NUMBERS = {
    "OffsetCommit": 1,
    "GroupMetadata": 2,
    "ConsumerGroupMetadata": 3,
    "ConsumerGroupPartitionMetadata": 4,
    "ConsumerGroupMemberMetadata": 5,
    "ConsumerGroupTargetAssignmentMetadata": 6,
    "ConsumerGroupTargetAssignmentMember": 7,
    "ConsumerGroupCurrentMemberAssignment": 8,
    "ConsumerGroupRegularExpression": 16,
    "TransactionLog": 0,
}


def pair(name: str) -> tuple[type[Message], type[Message], CoordinatorRecordTypes]:
    by_name = {cls.__name__: cls for cls in STORED}
    topic = TRANSACTIONS if name == "TransactionLog" else OFFSETS
    return by_name[f"{name}Key"], by_name[f"{name}Value"], topic


@each_case("name", NUMBERS)
def test_keys_and_values_round_trip(name: str) -> None:
    key_class, value_class, topic = pair(name)
    key = example(key_class, 0)
    raw = topic.encode_key(key)
    assert raw == struct.pack(">h", NUMBERS[name]) + key.encode(0)
    assert topic.decode_key(raw) == key
    assert topic.decode_key(memoryview(raw)) == key
    for version in value_class.VERSIONS:
        value = example(value_class, version)
        data = topic.encode_value(value, version)
        assert data == struct.pack(">h", version) + value.encode(version)
        assert topic.decode_value(key, data) == value
        assert topic.decode_value(key, bytearray(data)) == value


def test_every_stored_pair_has_its_number() -> None:
    names = {cls.__name__.removesuffix("Key") for cls in STORED if cls.__name__.endswith("Key")}
    assert names == set(NUMBERS)


def test_record_type_0_is_read_but_not_written() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    assert OFFSETS.decode_key(b"\0\0" + key.encode(0)) == key
    assert OFFSETS.encode_key(key)[:2] == b"\0\1"


@each_case("number", [9, 15, 17, 24, 32_767, -1])
def test_key_of_unknown_type_is_none(number: int) -> None:
    assert OFFSETS.decode_key(struct.pack(">h", number) + b"whatever") is None
    assert OFFSETS.decode_key(struct.pack(">h", number)) is None
    assert TRANSACTIONS.decode_key(struct.pack(">h", number)) is None


@each_case("raw", [b"", b"\0", b"\0\2", b"\0\2\0\5abc", b"\0\2\0\1ab", b"\0\2\xff\xff"])
def test_corrupt_key_is_rejected(raw: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        OFFSETS.decode_key(raw)


@each_case("version", [5, 6, 32_767, -1, -32_768])
def test_value_of_unknown_version_is_rejected(version: int) -> None:
    key = GroupMetadataKey(group="g")
    with pytest.raises(ProtocolViolation, match=f"not {version}"):
        OFFSETS.decode_value(key, struct.pack(">h", version) + bytes(100))


def test_corrupt_value_is_rejected() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    value = OffsetCommitValue(offset=1, metadata="", commit_timestamp=2)
    raw = OFFSETS.encode_value(value, 4)
    for end in range(len(raw)):
        with pytest.raises(ProtocolViolation):
            OFFSETS.decode_value(key, raw[:end])
    with pytest.raises(ProtocolViolation):
        OFFSETS.decode_value(key, raw + b"\0")


def test_value_type_follows_its_key() -> None:
    raw = OFFSETS.encode_value(example(OffsetCommitValue, 3), 3)
    with pytest.raises(ProtocolViolation):
        OFFSETS.decode_value(ConsumerGroupMetadataKey(group_id="g"), raw)


def test_key_of_another_topic_raises() -> None:
    key: Any = TransactionLogKey(transactional_id="t")
    with pytest.raises(KeyError):
        OFFSETS.encode_key(key)
