"""Records of __cluster_metadata, from bytes that Kafka writes."""

import pytest

from cases import each_case
from ottla.errors import ProtocolViolation
from ottla.ids import Uuid
from ottla.protocol.metadata_topic import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
    decode,
)

ID = Uuid(bytes(range(16)))


def test_topics_partitions_and_settings_are_read() -> None:
    assert decode(b"\x01\x02\x00\x02t" + ID + b"\x00") == TopicRecord(name="t", topic_id=ID)
    record = b"\x01\x04\x00\x02\x02t\x02a\x02b\x00"
    expected = ConfigRecord(resource_type=2, resource_name="t", name="a", value="b")
    assert decode(record) == expected
    null = decode(b"\x01\x04\x00\x02\x02t\x02a\x00\x00")
    assert isinstance(null, ConfigRecord)
    assert null.value is None


@each_case("version", [0, 1, 2, 9])
def test_partition_record_of_later_version_is_read(version: int) -> None:
    begin = bytes([1, 3, version]) + b"\x00\x00\x00\x05" + ID + b"\x03\0\0\0\x01\0\0\0\x02"
    record = decode(begin + b"whatever a version has")
    assert record == PartitionRecord(partition_id=5, topic_id=ID, replicas=(1, 2))


def test_unknown_tags_of_a_change_are_skipped() -> None:
    head = b"\x01\x05\x00\x00\x00\x00\x05" + ID
    isr, leader = b"\x00\x05\x02\0\0\0\x01", b"\x01\x04\0\0\0\x01"
    replicas = b"\x02\x05\x02\0\0\0\x07"
    record = decode(head + b"\x03" + isr + leader + replicas)
    assert isinstance(record, PartitionChangeRecord)
    assert record.replicas == (7,)
    record = decode(head + b"\x02" + isr + leader)
    assert isinstance(record, PartitionChangeRecord)
    assert record.replicas is None


def test_other_record_types_decode_to_none() -> None:
    assert decode(b"\x01\x1b\x00rest") is None


@each_case("data", [b"", b"\x01", b"\x02\x02\x00", b"\x01\x02\x07\x02t", b"\x01\x03\x00\0\0"])
def test_malformed_metadata_record_is_rejected(data: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        decode(data)
