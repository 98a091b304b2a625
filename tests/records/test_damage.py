"""Damaged batches raise only declared errors."""

import contextlib
import struct
from collections.abc import Callable
from itertools import pairwise

from fastcrc import crc32
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cases import each_case
from ottla.errors import OttlaError
from ottla.protocol.primitives import Buffer
from ottla.records.batch import Batch, batches, read_header
from ottla.records.columns import decode
from ottla.records.compression import Compression
from ottla.records.control import EndTxnMarker, marker_batch, read_control, read_end_txn_marker
from ottla.records.validation import ValidationConfig, validate
from records.drawing import Drawn, build, damaged

WHOLE = [
    Drawn(1000 + i, b"key-%d" % i, b"value" * i, ((f"h{i}", b"x"), ("n", None))) for i in range(12)
]
ONE_KB = 1024


def read_one_at_a_time(data: Buffer) -> None:
    for batch in batches(data, lenient=True):
        assert len(list(batch.records(decompressed_bytes_max=ONE_KB))) <= ONE_KB


def read_columns(data: Buffer) -> None:
    columns = decode(data, check_crc=False, lenient=True, decompressed_bytes_max=ONE_KB)
    assert columns.rows <= ONE_KB


def produce(data: Buffer) -> None:
    rules = ValidationConfig(compacted=True, decompressed_bytes_max=ONE_KB)
    validate(data, rules, now_ms=1000, produce_version=9)


def read_markers(data: Buffer) -> None:
    for batch in batches(data, lenient=True):
        if batch.header.is_control:
            record = read_control(batch)
            if record is not None:
                read_end_txn_marker(record)


READERS = [read_one_at_a_time, read_columns, produce, read_markers]


def with_crc(data: bytes) -> bytes:
    """Correct the CRC, so that the damage looks like that of a faulty or hostile client."""
    if len(data) < 21:
        return data
    return data[:17] + struct.pack(">I", crc32.iscsi(data[21:])) + data[21:]


@each_case("read", READERS)
@each_case("compression", Compression)
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damaged_batch_raises_only_declared_errors(
    read: Callable[[Buffer], None], compression: Compression, data: st.DataObject
) -> None:
    hurt = data.draw(damaged(build(WHOLE, compression)))
    for each in (hurt, with_crc(hurt)):
        with contextlib.suppress(OttlaError):
            read(each)


@each_case("read", READERS)
@given(data=st.data())
def test_damaged_marker_raises_only_declared_errors(
    read: Callable[[Buffer], None], data: st.DataObject
) -> None:
    marker = marker_batch(EndTxnMarker(True, 3), producer_id=1, producer_epoch=2, timestamp=1000)
    with contextlib.suppress(OttlaError):
        read(with_crc(data.draw(damaged(marker))))


@given(st.binary(max_size=300))
def test_any_bytes_raise_only_declared_errors(data: bytes) -> None:
    for read in (*READERS, read_header, Batch):
        with contextlib.suppress(OttlaError):
            read(data)


@each_case("read", READERS)
def test_flipped_bits_and_all_lengths_are_handled(read: Callable[[Buffer], None]) -> None:
    whole = build(WHOLE[:2])
    flipped = [bytearray(whole) for _ in range(len(whole) * 8)]
    for bit, each in enumerate(flipped):
        each[bit >> 3] ^= 1 << (bit & 7)
    for each in (*map(bytes, flipped), *(whole[:size] for size in range(len(whole)))):
        for form in (each, with_crc(each)):
            with contextlib.suppress(OttlaError):
                read(form)


@each_case("compression", Compression)
@given(data=st.data())
def test_reader_and_columns_find_the_same_error(
    compression: Compression, data: st.DataObject
) -> None:
    hurt = data.draw(damaged(build(WHOLE, compression)))
    outcomes: list[object] = []
    for read in (rows_of, values_of):
        try:
            outcomes.append(read(hurt))
        except OttlaError as error:
            outcomes.append((type(error), str(error)))
    assert outcomes[0] == outcomes[1]


def rows_of(data: bytes) -> list[bytes]:
    found = [
        record
        for batch in list(batches(data, lenient=True))
        if not batch.header.is_control and batch.header.next_offset > 0
        for record in batch.records(decompressed_bytes_max=ONE_KB).read_all()
    ]
    return [record.value or b"" for record in found]


def values_of(data: bytes) -> list[bytes]:
    columns = decode(data, check_crc=False, lenient=True, decompressed_bytes_max=ONE_KB)
    assert columns.values is not None
    bounds = memoryview(columns.values.offsets).cast("B").cast("i").tolist()
    return [bytes(columns.values.data[start:stop]) for start, stop in pairwise(bounds)]
