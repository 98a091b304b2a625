"""Columns equal the records that a reader returns, and can be encoded as batches again."""

import struct
from array import array
from collections.abc import Sequence
from typing import Literal, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import each_case
from ottla.protocol.primitives import Buffer
from ottla.records import _kernel as kernel
from ottla.records._kernel import RECORD_OVERHEAD_MAX
from ottla.records.batch import (
    HEADER_SIZE,
    Batch,
    TimestampType,
    assign_timestamp,
    batches,
    empty_batch,
)
from ottla.records.builder import BatchBuilder
from ottla.records.columns import Column, Columns, Headers, Rows, decode, encode, partitions
from ottla.records.compression import Compression
from ottla.records.control import EndTxnMarker, marker_batch
from ottla.records.errors import CorruptRecords, DecompressionLimitExceeded
from records.drawing import Drawn, build, drawn_batches, drawn_records
from sampling import examples

UNLIMITED = 2**31 - 1


def numbers(buffer: Buffer | None, width: Literal["i", "q"]) -> list[int]:
    assert buffer is not None
    return memoryview(buffer).cast("B").cast(width).tolist()


def cells(column: Column | None) -> list[bytes | None]:
    assert column is not None
    offsets = numbers(column.offsets, "q" if column.large else "i")[column.start :]
    data = bytes(column.data)
    found: list[bytes | None] = []
    for row in range(column.length):
        bit = column.start + row
        valid = column.validity is None or column.validity[bit >> 3] >> (bit & 7) & 1
        found.append(data[offsets[row] : offsets[row + 1]] if valid else None)
    return found


def rows(columns: Columns) -> list[kernel.Record]:
    """The columns as records."""
    assert columns.headers is not None
    pairs = list(zip(cells(columns.headers.keys), cells(columns.headers.values), strict=True))
    bounds = numbers(columns.headers.offsets, "i")
    fields = zip(
        numbers(columns.offsets, "q"),
        numbers(columns.timestamps, "q"),
        cells(columns.keys),
        cells(columns.values),
        strict=True,
    )
    found: list[kernel.Record] = []
    for row, (offset, timestamp, key, value) in enumerate(fields):
        headers = [(cast("bytes", k).decode(), v) for k, v in pairs[bounds[row] : bounds[row + 1]]]
        found.append(kernel.Record(offset, timestamp, key, value, headers))
    assert len(found) == columns.rows
    return found


def run_of(drawn: Sequence[list[Drawn]], compression: Compression = Compression.NONE) -> bytes:
    run, offset = b"", 0
    for each in drawn:
        run += build(each, compression, base_offset=offset)
        offset += len(each) + 3
    return run


runs = st.lists(drawn_batches, max_size=4)


@settings(max_examples=examples(80, usual=500))
@given(st.sampled_from(Compression), runs)
def test_columns_equal_the_records(compression: Compression, drawn: list[list[Drawn]]) -> None:
    run = run_of(drawn, compression)
    one_at_a_time = [record for batch in batches(run) for record in batch.records()]
    assert rows(decode(run)) == one_at_a_time
    assert rows(decode(batches(run))) == one_at_a_time


@given(runs, st.integers(-1, 130), st.integers(0, 130))
def test_decode_selects_a_range_of_offsets(
    drawn: list[list[Drawn]], first: int, after: int
) -> None:
    run = run_of(drawn)
    wanted = [r for batch in batches(run) for r in batch.records() if first <= r.offset < after]
    assert rows(decode(run, from_offset=first, to_offset=after)) == wanted


@given(st.lists(drawn_records, min_size=1, max_size=60), st.integers(0, 2000))
def test_encoded_columns_are_decoded_again(drawn: list[Drawn], limit: int) -> None:
    columns = decode(build(drawn))
    encoded = encode(columns, limit=limit, base_offset=0)
    assert [batch.first_row for batch in encoded] == [0, *(b.next_row for b in encoded[:-1])]
    assert encoded[-1].next_row == len(drawn)
    for batch in encoded:
        assert len(batch.data) <= limit or batch.next_row == batch.first_row + 1
    assert rows(decode(b"".join(batch.data for batch in encoded))) == rows(columns)


@given(st.lists(drawn_records, min_size=1, max_size=40), st.integers(0, 2000))
def test_encode_equals_appending_records(drawn: list[Drawn], limit: int) -> None:
    encoded = encode(decode(build(drawn)), limit=limit)
    for batch in encoded:
        own = drawn[batch.first_row : batch.next_row]
        assert bytes(batch.data) == build(own)
    appender = kernel.RecordAppender(limit)
    fitting = 0
    while fitting < len(drawn) and appender.append(*drawn[fitting]):
        fitting += 1
    assert encoded[0].next_row == fitting


@given(st.lists(drawn_records, min_size=1, max_size=40), st.integers(0, 2000), st.integers(0, 40))
def test_rows_are_appended_to_a_started_batch(drawn: list[Drawn], limit: int, before: int) -> None:
    source = Rows(decode(build(drawn)))
    one_by_one, mixed = BatchBuilder(limit), BatchBuilder(limit)
    fitting = 0
    while fitting < len(drawn) and one_by_one.append(*drawn[fitting]):
        fitting += 1
    before = min(before, fitting)
    for record in drawn[:before]:
        assert mixed.append(*record)
    assert source.append_to(mixed, before, len(drawn)) == fitting
    assert (mixed.count, mixed.size) == (one_by_one.count, one_by_one.size)
    assert mixed.build() == one_by_one.build()


@given(st.lists(drawn_records, min_size=1, max_size=20), st.integers(0, 500))
def test_oversized_row_is_found(drawn: list[Drawn], limit: int) -> None:
    source = Rows(decode(build(drawn)))
    found = source.find_oversized(0, len(drawn), limit)
    until = len(drawn) if found is None else found[0]
    sizes = [len(build([record])) for record in drawn]
    assert all(size <= limit for size in sizes[:until])
    if found is not None:
        # The bound is not below the real size, and not much above it.
        assert found[1] > limit
        assert sizes[until] <= found[1] <= sizes[until] + RECORD_OVERHEAD_MAX


def test_rows_out_of_range_are_rejected() -> None:
    source, builder = Rows(decode(build([Drawn(5, b"k", b"v", ())] * 3))), BatchBuilder()
    for start, stop in ((-1, 2), (2, 1), (0, 4)):
        with pytest.raises(ValueError, match="rows"):
            source.append_to(builder, start, stop)
        with pytest.raises(ValueError, match="rows"):
            source.find_oversized(start, stop, 1000)
    assert builder.count == 0


def test_released_builder_keeps_its_counts() -> None:
    builder = BatchBuilder()
    assert builder.append(5, b"k", b"v")
    size = builder.size
    builder.release()
    assert (builder.count, builder.size) == (1, size)
    assert not builder.append(5, b"k", b"v")


@each_case("compression", Compression)
def test_encode_compresses_batches(compression: Compression) -> None:
    drawn = [Drawn(5, b"key", b"value" * 10, ()) for _ in range(100)]
    (batch,) = encode(decode(build(drawn)), limit=UNLIMITED, compression=compression)
    assert bytes(batch.data) == build(drawn, compression)


def test_encode_continues_sequences() -> None:
    columns = decode(build([Drawn(5, b"key", b"value", ())] * 10))
    encoded = encode(
        columns,
        limit=HEADER_SIZE + 50,
        leader_epoch=4,
        producer_id=7,
        producer_epoch=2,
        base_sequence=2**31 - 3,
        transactional=True,
    )
    headers = [Batch(batch.data).header for batch in encoded]
    assert len(headers) > 2
    for batch, header in zip(encoded, headers, strict=True):
        assert header.base_sequence == (2**31 - 3 + batch.first_row) % 2**31
        assert (header.producer_id, header.producer_epoch, header.leader_epoch) == (7, 2, 4)
        assert header.is_transactional
        assert header.base_offset == 0


def test_encode_selects_a_range_of_rows() -> None:
    columns = decode(build([Drawn(i, b"%d" % i, None, ()) for i in range(10)]))
    (batch,) = encode(columns, limit=UNLIMITED, start=3, stop=5, base_offset=100)
    assert (batch.first_row, batch.next_row) == (3, 5)
    assert [(r.offset, r.key) for r in Batch(batch.data).records()] == [(100, b"3"), (101, b"4")]
    assert encode(columns, limit=UNLIMITED, start=4, stop=4) == []


def test_missing_columns_are_null() -> None:
    timestamps = array("q", [7, 8]).tobytes()
    (batch,) = encode(Columns(2, timestamps, None, None), limit=UNLIMITED)
    assert Batch(batch.data).records().read_all() == [kernel.Record(0, 7), kernel.Record(1, 8)]


def test_slice_of_large_columns_is_encoded() -> None:
    wide = Column(array("q", [9, 9, 1, 3, 3, 4]).tobytes(), b"xabcd", b"\x0b", 3, 2, True)
    narrow = Column(array("i", [9, 0, 1, 2, 3]).tobytes(), b"pqr", None, 3, 1)
    lists = Headers(array("q", [5, 0, 0, 2, 2]).tobytes(), b"\x0a", narrow, wide, 3, 1, True)
    columns = Columns(3, bytes(24), wide, narrow, lists)
    (batch,) = encode(columns, limit=UNLIMITED)
    assert Batch(batch.data).records().read_all() == [
        kernel.Record(0, 0, None, b"p"),
        kernel.Record(1, 0, b"", b"q"),
        kernel.Record(2, 0, None, b"r"),
    ]


def test_short_columns_are_rejected() -> None:
    with pytest.raises(ValueError, match="timestamps"):
        encode(Columns(2, bytes(15), None, None), limit=UNLIMITED)
    short = Column(bytes(8), b"", None, 1)
    with pytest.raises(ValueError, match="are needed"):
        encode(Columns(2, bytes(16), short, None), limit=UNLIMITED)
    with pytest.raises(ValueError, match="are needed"):
        encode(Columns(1, bytes(8), short, None), limit=UNLIMITED, stop=2)


def test_validity_exists_only_with_nulls() -> None:
    columns = decode(build([Drawn(1, b"k", None, ()), Drawn(1, b"k", b"v", (("h", b"x"),))]))
    assert columns.keys is not None
    assert columns.keys.validity is None
    assert columns.values is not None
    assert columns.values.validity == b"\x02"
    assert columns.headers is not None
    assert columns.headers.values.validity is None


def test_no_batches_decode_to_no_rows() -> None:
    emptied = empty_batch(Batch(build([Drawn(1, None, None, ())])).header)
    for nothing in (b"", list[Batch](), emptied):
        columns = decode(nothing)
        assert rows(columns) == []
        assert encode(columns, limit=UNLIMITED) == []


def test_decode_skips_control_batches() -> None:
    marker = marker_batch(
        EndTxnMarker(True, 1), producer_id=1, producer_epoch=0, timestamp=5, base_offset=1
    )
    record = Drawn(5, b"k", b"v", ())
    run = build([record]) + marker + build([record], base_offset=2)
    assert [each.offset for each in rows(decode(run))] == [0, 2]


def test_log_append_time_sets_every_row() -> None:
    data = bytearray(build([Drawn(1, None, None, ()), Drawn(2, None, None, ())]))
    assign_timestamp(data, TimestampType.LOG_APPEND_TIME, 99)
    assert numbers(decode(data).timestamps, "q") == [99, 99]


def test_decode_checks_the_crc_by_default() -> None:
    data = bytearray(build([Drawn(1, None, b"value", ())]))
    data[-2] ^= 1
    with pytest.raises(CorruptRecords, match="batch at offset 0 has a wrong CRC"):
        decode(data)
    assert decode(data, check_crc=False).rows == 1


def test_decode_ignores_batches_outside_the_range() -> None:
    record = Drawn(1, None, b"value", ())
    damaged = bytearray(build([record], base_offset=5))
    damaged[-2] ^= 1
    run = build([record]) + damaged + build([record], base_offset=9)
    assert decode(run, to_offset=5).rows == 1
    assert decode(run, from_offset=6).rows == 1


def test_decode_of_a_truncated_batch() -> None:
    whole = build([Drawn(1, None, b"value", ())])
    assert decode(whole + whole[:50], lenient=True).rows == 1
    with pytest.raises(CorruptRecords, match="truncated"):
        decode(whole + whole[:50])


def test_decode_limits_decompressed_bytes() -> None:
    data = build([Drawn(1, None, bytes(10_000), ())], Compression.ZSTD)
    with pytest.raises(DecompressionLimitExceeded):
        decode(data, decompressed_bytes_max=9_000)


def test_false_record_count_is_rejected() -> None:
    data = bytearray(build([Drawn(1, None, b"value", ())]))
    struct.pack_into(">i", data, 57, 2**31 - 1)
    struct.pack_into(">i", data, 23, 2**31 - 2)
    with pytest.raises(CorruptRecords, match="more records than"):
        decode(data, check_crc=False)


@given(st.lists(st.none() | st.binary(max_size=20), min_size=1), st.integers(1, 50))
def test_partitions_follow_the_murmur2_of_keys(keys: list[bytes | None], count: int) -> None:
    columns = decode(build([Drawn(1, key, None, ()) for key in keys]))
    assert columns.keys is not None
    expected = [-1 if k is None else (kernel.murmur2(k) & 0x7FFFFFFF) % count for k in keys]
    assert partitions(columns.keys, count).tolist() == expected
