"""Control batches: transaction markers, and control types of other systems."""

import struct
from typing import Any, cast

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER
from aiokafka.record.control_record import ControlRecord as AiokafkaControlRecord
from kafka.record.memory_records import MemoryRecords

from cases import each_case
from ottla.records.batch import Batch, empty_batch
from ottla.records.builder import BatchBuilder
from ottla.records.control import (
    ControlRecord,
    ControlType,
    EndTxnMarker,
    marker_batch,
    read_control,
    read_end_txn_marker,
)
from ottla.records.errors import CorruptRecords


def control_batch(*pairs: tuple[bytes | None, bytes | None]) -> Batch:
    builder = BatchBuilder(1000)
    for key, value in pairs:
        builder.append(5, key, value)
    return Batch(builder.build(control=True, transactional=True, producer_id=1))


@each_case("commit", [True, False])
def test_marker_is_read_back(commit: bool) -> None:
    marker = EndTxnMarker(commit, coordinator_epoch=77)
    batch = Batch(
        marker_batch(
            marker, producer_id=9, producer_epoch=3, timestamp=5, base_offset=100, leader_epoch=2
        )
    )
    header = batch.header
    assert (header.is_control, header.is_transactional, header.record_count) == (True, True, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, -1)
    assert (header.base_offset, header.leader_epoch, header.max_timestamp) == (100, 2, 5)
    record = read_control(batch)
    assert record is not None
    assert (record.offset, record.timestamp, record.version) == (100, 5, 0)
    assert record.type is (ControlType.COMMIT if commit else ControlType.ABORT)
    assert read_end_txn_marker(record) == marker


def test_marker_has_the_bytes_of_kafka() -> None:
    batch = Batch(marker_batch(EndTxnMarker(True, 1), producer_id=9, producer_epoch=3, timestamp=5))
    (record,) = batch.records()
    assert record.key == bytes.fromhex("0000 0001")
    assert record.value == bytes.fromhex("0000 00000001")


@each_case("commit", [True, False])
def test_other_clients_read_markers(commit: bool) -> None:
    data = marker_batch(
        EndTxnMarker(commit, 1), producer_id=9, producer_epoch=3, timestamp=5, base_offset=1
    )
    (record,) = Batch(data).records()
    assert record.key is not None
    expected = COMMIT_MARKER if commit else ABORT_MARKER
    assert AiokafkaControlRecord.parse(record.key) == expected
    batch = cast("Any", MemoryRecords)(data).next_batch()
    assert batch.is_control_batch
    (theirs,) = batch
    assert (theirs.commit, theirs.abort) == (commit, not commit)


@each_case("number", [2, 3, 4, 5, 6, 7, -1])
def test_other_control_types_are_numbers(number: int) -> None:
    record = read_control(control_batch((struct.pack(">hh", 0, number), b"anything")))
    assert record is not None
    assert record.type == number
    assert isinstance(record.type, ControlType) is (number in list(ControlType))
    assert record.value == b"anything"
    assert read_end_txn_marker(record) is None


def test_later_marker_versions_are_read() -> None:
    key, value = struct.pack(">hhb", 1, 1, 9), struct.pack(">hib", 1, 4, 9)
    record = read_control(control_batch((key, value)))
    assert record is not None
    assert record.version == 1
    assert read_end_txn_marker(record) == EndTxnMarker(True, 4)


def test_removed_marker_is_none() -> None:
    batch = control_batch((struct.pack(">hh", 0, 1), b""))
    assert read_control(Batch(empty_batch(batch.header))) is None


@each_case(
    "pairs",
    [
        [(None, b"")],
        [(b"\0\0\0", b"")],
        [(struct.pack(">hh", -1, 1), b"")],
        [(struct.pack(">hh", 0, 1), b"")] * 2,
    ],
)
def test_invalid_control_record_is_corrupt(pairs: list[tuple[bytes | None, bytes | None]]) -> None:
    with pytest.raises(CorruptRecords):
        read_control(control_batch(*pairs))


@each_case("value", [None, b"", b"\0\0\0\0\0", struct.pack(">hi", -1, 0)])
def test_invalid_marker_is_corrupt(value: bytes | None) -> None:
    with pytest.raises(CorruptRecords):
        read_end_txn_marker(ControlRecord(0, 0, 0, ControlType.COMMIT, value))
