"""Subscriptions and assignments of classic groups, also between different releases."""

import struct

import pytest

from cases import each_case
from ottla.errors import ProtocolViolation
from ottla.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_embedded,
    encode_embedded,
)
from ottla.protocol.message import Message
from protocol_values import example

BOTH = each_case("cls", [ConsumerProtocolSubscription, ConsumerProtocolAssignment])


@BOTH
@each_case("version", range(4))
def test_every_version_round_trips(cls: type[Message], version: int) -> None:
    value = example(cls, version)
    raw = encode_embedded(value, version)
    assert raw == struct.pack(">h", version) + value.encode(version)
    assert decode_embedded(cls, raw) == value
    assert decode_embedded(cls, memoryview(raw)) == value


@BOTH
@each_case("version", [4, 5, 32_767])
def test_newer_version_is_read_as_newest_known(cls: type[Message], version: int) -> None:
    value = example(cls, 3)
    raw = struct.pack(">h", version) + value.encode(3)
    assert decode_embedded(cls, raw) == value
    assert decode_embedded(cls, raw + b"fields of tomorrow") == value


@BOTH
def test_negative_version_and_corruption_are_rejected(cls: type[Message]) -> None:
    raw = encode_embedded(example(cls, 3), 3)
    for bad in (b"", b"\0", b"\xff\xff" + raw[2:], b"\x80\0" + raw[2:]):
        with pytest.raises(ProtocolViolation):
            decode_embedded(cls, bad)
    for end in range(len(raw)):
        with pytest.raises(ProtocolViolation):
            decode_embedded(cls, raw[:end])


def test_older_version_omits_newer_fields() -> None:
    value = ConsumerProtocolSubscription(
        topics=("orders",),
        owned_partitions=(TopicPartition(topic="orders", partitions=(1,)),),
        generation_id=4,
        rack_id="r1",
    )
    assert value.encode(0) == ConsumerProtocolSubscription(topics=("orders",)).encode(0)
    assert ConsumerProtocolSubscription.decode(value.encode(1), 1).generation_id == -1
    assert ConsumerProtocolSubscription.decode(value.encode(2), 2).rack_id is None
    assert ConsumerProtocolSubscription.decode(value.encode(3), 3) == value
