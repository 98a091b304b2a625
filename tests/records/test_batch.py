"""Batches: the header, splitting consecutive batches, and the fields that a broker writes."""

import re
import struct
from collections.abc import Callable, Iterable

import pytest
from fastcrc import crc32
from hypothesis import given
from hypothesis import strategies as st

from cases import each_case
from ottla.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence
from ottla.records._kernel import count_records
from ottla.records.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Batch,
    BatchHeader,
    TimestampType,
    assign_offset,
    assign_timestamp,
    batches,
    complete_batches,
    empty_batch,
    read_header,
    write_header,
)
from ottla.records.builder import BatchBuilder
from ottla.records.compression import Compression
from ottla.records.errors import CorruptRecords, DecompressionLimitExceeded, UnsupportedMagic
from records.drawing import Drawn, build, damaged, drawn_batches

ONE = build([Drawn(5, b"k", b"v", ())])
THREE = build([Drawn(5 + i, b"k", b"v", ()) for i in range(3)], base_offset=10)

# A message of format 1, as written by Kafka 0.10: offset, size, crc, magic, attributes, timestamp,
# key, value. The magic is at the same position as in a batch.
LEGACY_V1 = struct.pack(">qiIbbq", 0, 22, 0, 1, 0, 5) + struct.pack(">ii", -1, -1)
LEGACY_V0 = struct.pack(">qiIbb", 0, 14, 0, 0, 0) + struct.pack(">ii", -1, -1)


def header(**fields: int) -> BatchHeader:
    return Batch(ONE).header._replace(**fields)  # pyright: ignore[reportArgumentType]


def test_header_has_the_fields_of_kafka_in_61_bytes() -> None:
    packed = HEADER.pack(1, 49, 2, 2, 0xFFFFFFFF, 3, 4, 5, 6, 7, 8, 9, 10)
    assert len(packed) == HEADER_SIZE == 61
    assert read_header(b"xy" + packed, 2) == BatchHeader(
        base_offset=Offset(1),
        length=49,
        leader_epoch=LeaderEpoch(2),
        magic=2,
        crc=0xFFFFFFFF,
        attributes=3,
        last_offset_delta=4,
        base_timestamp=5,
        max_timestamp=6,
        producer_id=ProducerId(7),
        producer_epoch=ProducerEpoch(8),
        base_sequence=Sequence(9),
        record_count=10,
    )


def test_header_properties() -> None:
    plain = header(base_offset=100, last_offset_delta=4, base_timestamp=7, max_timestamp=9)
    assert (plain.size, plain.last_offset, plain.next_offset) == (len(ONE), 104, 105)
    assert (plain.is_transactional, plain.is_control, plain.has_producer) == (False, False, False)
    assert plain.timestamp_type is TimestampType.CREATE_TIME
    assert (plain.append_timestamp, plain.delete_horizon_ms) == (None, None)
    attributes = TRANSACTIONAL | CONTROL | LOG_APPEND_TIME | DELETE_HORIZON | Compression.ZSTD
    flagged = plain._replace(attributes=attributes, producer_id=ProducerId(0))
    assert (flagged.is_transactional, flagged.is_control, flagged.has_producer) == (True,) * 3
    assert flagged.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (flagged.append_timestamp, flagged.delete_horizon_ms) == (9, 7)
    assert flagged.compression is Compression.ZSTD


def test_undefined_attribute_bits_are_ignored() -> None:
    odd = header(attributes=-0x80)
    assert (odd.is_transactional, odd.is_control, odd.delete_horizon_ms) == (False, False, None)
    assert odd.compression is Compression.NONE


@each_case("code", [5, 6, 7])
def test_unknown_codec_is_corrupt(code: int) -> None:
    with pytest.raises(CorruptRecords, match="compression"):
        _ = header(attributes=code).compression


@each_case(
    ("base", "delta", "last"),
    [(-1, 4, -1), (0, 4, 4), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 3, 9, 6)],
)
def test_sequence_wraps_to_0(base: int, delta: int, last: int) -> None:
    assert header(base_sequence=base, last_offset_delta=delta).last_sequence == last


def test_batch_does_not_copy_its_bytes() -> None:
    (batch,) = batches(memoryview(bytearray(THREE)))
    assert batch.data.obj is not None
    assert batch.data.nbytes == len(THREE)


# Splitting


def test_consecutive_batches_are_split() -> None:
    run = ONE + THREE + ONE
    found = list(batches(run))
    assert [bytes(batch.data) for batch in found] == [ONE, THREE, ONE]
    assert all(batch.crc_ok for batch in found)
    assert list(batches(b"")) == []


def test_batches_are_split_lazily() -> None:
    run = batches(ONE + b"damage")
    assert next(run).header.record_count == 1
    with pytest.raises(CorruptRecords):
        next(run)


@each_case("size", range(len(ONE)))
def test_truncated_batch_is_an_error_unless_lenient(size: int) -> None:
    run = THREE + ONE[:size]
    assert [bytes(batch.data) for batch in batches(run, lenient=True)] == [THREE]
    if size:
        with pytest.raises(CorruptRecords):
            list(batches(run))


@each_case("legacy", [LEGACY_V0, LEGACY_V1])
@each_case("lenient", [False, True])
def test_message_formats_0_and_1_are_unsupported(legacy: bytes, lenient: bool) -> None:
    for run in (legacy, legacy + bytes(100), THREE + legacy):
        with pytest.raises(UnsupportedMagic, match=f"message format {legacy[16]}"):
            list(batches(run, lenient=lenient))


@each_case("lenient", [False, True])
@each_case(
    ("at", "raw"),
    [
        pytest.param(16, b"\x03", id="magic 3"),
        pytest.param(16, b"\xff", id="magic -1"),
        pytest.param(8, struct.pack(">i", 48), id="smaller than a header"),
        pytest.param(8, struct.pack(">i", 0), id="no length"),
        pytest.param(8, struct.pack(">i", -1), id="negative length"),
        pytest.param(8, struct.pack(">i", -(2**31)), id="most negative length"),
        pytest.param(0, struct.pack(">q", -1), id="negative offset"),
        pytest.param(0, struct.pack(">q", 2**63 - 1), id="no next offset"),
        pytest.param(23, struct.pack(">i", -1), id="negative last delta"),
    ],
)
def test_invalid_header_is_an_error_in_both_modes(at: int, raw: bytes, lenient: bool) -> None:
    data = bytearray(ONE)
    data[at : at + len(raw)] = raw
    with pytest.raises(CorruptRecords) as failure:
        list(batches(data, lenient=lenient))
    assert not isinstance(failure.value, UnsupportedMagic)
    with pytest.raises(CorruptRecords, match=re.escape(str(failure.value))):
        complete_batches(THREE + data)


@given(st.lists(drawn_batches.map(build), max_size=3).map(b"".join).flatmap(damaged))
def test_batches_of_a_response_are_those_of_the_lenient_mode(data: bytes) -> None:
    def found(read: Callable[[bytes], Iterable[Batch]]) -> object:
        try:
            return [(bytes(one.data), one.header, type(one.header)) for one in read(data)]
        except CorruptRecords as error:
            return type(error), str(error)

    assert found(complete_batches) == found(lambda data: batches(data, lenient=True))


def test_length_of_2_gib_is_a_truncated_batch() -> None:
    data = bytearray(ONE)
    data[8:12] = struct.pack(">i", 2**31 - 1)
    assert list(batches(data, lenient=True)) == []
    with pytest.raises(CorruptRecords, match="truncated"):
        list(batches(data))


def test_batch_must_match_its_declared_size() -> None:
    assert Batch(ONE).header.size == len(ONE)
    for wrong in (ONE + b"x", ONE[:-1], b""):
        with pytest.raises(CorruptRecords):
            Batch(wrong)


# Records


@each_case("compression", Compression)
@given(drawn=drawn_batches)
def test_built_records_are_read_back(compression: Compression, drawn: list[Drawn]) -> None:
    batch = Batch(build(drawn, compression, base_offset=7))
    assert batch.crc_ok
    assert batch.header.compression is compression
    read = list(batch.records())
    assert [Drawn(r.timestamp, r.key, r.value, r.headers) for r in read] == drawn
    assert [r.offset for r in read] == list(range(7, 7 + len(drawn)))
    assert batch.records(from_offset=9).read_all() == read[2:]


@each_case("compression", [c for c in Compression if c])
def test_reader_limits_decompressed_bytes(compression: Compression) -> None:
    batch = Batch(build([Drawn(1, None, bytes(10_000), ())], compression))
    with pytest.raises(DecompressionLimitExceeded):
        batch.records(decompressed_bytes_max=9_999)
    assert len(list(batch.records(decompressed_bytes_max=10_100))) == 1


def test_wrong_crc_is_detected() -> None:
    for at in range(21, len(ONE)):
        data = bytearray(ONE)
        data[at] ^= 1
        assert not Batch(data).crc_ok
    for at in (0, 15):  # base offset and leader epoch
        data = bytearray(ONE)
        data[at] = 1
        assert Batch(data).crc_ok


# Patching


def test_assigning_offset_and_epoch_keeps_the_crc() -> None:
    run = bytearray(ONE + ONE)
    assign_offset(run, 2**40, 7, len(ONE))
    first, second = batches(run)
    assert bytes(first.data) == ONE
    assert (second.header.base_offset, second.header.leader_epoch) == (2**40, 7)
    assert second.crc_ok
    assert second.data[16:] == first.data[16:]


@each_case("timestamp_type", TimestampType)
@each_case("max_timestamp", [5, 77])
@each_case("position", [0, len(THREE)])
def test_assigning_timestamps_updates_the_crc(
    timestamp_type: TimestampType, max_timestamp: int, position: int
) -> None:
    buffer = bytearray(THREE[:position] + ONE + THREE)
    before = bytes(buffer)
    changed = assign_timestamp(buffer, timestamp_type, max_timestamp, position)
    assert changed is (before != buffer)
    assert changed is ((timestamp_type, max_timestamp) != (TimestampType.CREATE_TIME, 5))
    read = list(batches(buffer))
    assert all(batch.crc_ok for batch in read)
    patched = read[1 if position else 0]
    assert patched.header.timestamp_type is timestamp_type
    assert patched.header.max_timestamp == max_timestamp
    append = timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [r.timestamp for r in patched.records()] == [max_timestamp if append else 5]
    assert len(buffer) == len(before)


def test_timestamp_type_can_be_reset() -> None:
    buffer = bytearray(ONE)
    assign_timestamp(buffer, TimestampType.LOG_APPEND_TIME, 99)
    assign_timestamp(buffer, TimestampType.CREATE_TIME, 5)
    assert buffer == ONE


def test_unchanged_timestamp_does_not_compute_the_crc() -> None:
    buffer = bytearray(ONE)
    buffer[17:21] = b"\0\0\0\0"
    assert not assign_timestamp(buffer, TimestampType.CREATE_TIME, 5)
    assert buffer[17:21] == b"\0\0\0\0"


def test_memoryview_can_be_patched() -> None:
    buffer = bytearray(ONE)
    assign_offset(memoryview(buffer), 3, 1)
    assert assign_timestamp(memoryview(buffer), TimestampType.LOG_APPEND_TIME, 8)
    assert Batch(buffer).crc_ok


# Sealing


def test_crc_is_crc32c_from_the_attributes_on() -> None:
    assert Batch(ONE).header.crc == crc32.iscsi(ONE[21:])


@given(st.integers(0, 2**31 - 1), st.integers(-1, 2**31 - 1))
def test_write_header_writes_every_field(count: int, sequence: int) -> None:
    buffer = bytearray(HEADER_SIZE)
    write_header(
        buffer,
        record_count=count,
        last_offset_delta=count,
        base_timestamp=-5,
        max_timestamp=2**63 - 1,
        attributes=TRANSACTIONAL,
        base_offset=11,
        leader_epoch=12,
        producer_id=13,
        producer_epoch=14,
        base_sequence=sequence,
    )
    crc = crc32.iscsi(bytes(buffer[21:]))
    fields = (11, 49, 12, 2, crc, TRANSACTIONAL, count, -5, 2**63 - 1, 13, 14, sequence, count)
    assert tuple(read_header(buffer)) == fields


def test_empty_batch_keeps_offsets_and_producer() -> None:
    builder = BatchBuilder(1000, Compression.GZIP)
    for timestamp in (5, 9, 7):
        builder.append(timestamp, b"k", b"v")
    whole = builder.build(
        base_offset=40,
        leader_epoch=3,
        producer_id=9,
        producer_epoch=1,
        base_sequence=6,
        transactional=True,
    )
    before = Batch(whole).header
    (empty,) = batches(empty_batch(before))
    assert empty.crc_ok
    assert empty.header == before._replace(
        length=HEADER_SIZE - 12,
        crc=empty.header.crc,
        attributes=TRANSACTIONAL,
        base_timestamp=-1,
        record_count=0,
    )
    assert list(empty.records()) == []


def test_empty_batch_may_keep_its_codec() -> None:
    buffer = bytearray(HEADER_SIZE)
    write_header(
        buffer,
        record_count=0,
        last_offset_delta=2,
        base_timestamp=-1,
        max_timestamp=9,
        attributes=Compression.ZSTD,
    )
    assert list(Batch(buffer).records()) == []


def test_count_records_sums_the_headers() -> None:
    runs = [[b"a"], [b"b"] * 300, [b"c", b"d"]]
    data = b""
    for values in runs:
        builder = BatchBuilder()
        for value in values:
            builder.append(0, None, value)
        data += builder.build()
    assert count_records(data) == count_records(memoryview(data)) == 303
    assert count_records(b"") == 0
    assert count_records(b"\0" * 61) == 0  # shorter than any batch
