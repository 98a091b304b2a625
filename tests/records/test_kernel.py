"""The kernel: varints, validation, records, hashing, columns."""

import gc
import mmap
import pickle
from array import array
from typing import Any, cast

import aiokafka.partitioner
import kafka.partitioner.default
import pytest
from fastcrc.crc32 import iscsi as crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from cases import each_case
from ottla.protocol.primitives import Buffer
from ottla.records import _kernel as kernel
from ottla.records.batch import HEADER_SIZE, BatchHeader, batches
from ottla.records.errors import ColumnsTooLarge, CorruptRecords
from records.drawing import INT64, Drawn, build, drawn_batches

ANY_TIME = (-(2**63), 2**63 - 1)
BAD_COUNT, BAD_LENGTH, BAD_TIMESTAMP, BAD_OFFSET, BAD_KEY, BAD_VALUE = range(1, 7)
BAD_HEADERS, BAD_HEADER_KEY, BAD_HEADER_VALUE, BAD_END, BAD_TAIL = range(7, 12)


def record(*fields: int | bytes) -> bytes:
    """Encode a record from its fields (integers become varints), with its length first."""
    body = b"".join(f if isinstance(f, bytes) else kernel.write_varlong(f) for f in fields)
    return kernel.write_varint(len(body)) + body


def plain_record(index: int = 0, timestamp: int = 0, key: bytes | None = b"k") -> bytes:
    key_fields = (-1,) if key is None else (len(key), key)
    return record(b"\0", timestamp, index, *key_fields, 1, b"v", 0)


def reason_of(data: Buffer, count: int = 1) -> tuple[int, int]:
    return kernel.check_records(data, count, 0, *ANY_TIME)[:2]


# Numbers


@given(st.integers(-(2**31), 2**31 - 1))
@example(-(2**31))
@example(2**31 - 1)
def test_varint_round_trips(value: int) -> None:
    data = kernel.write_varint(value)
    assert len(data) <= 5
    assert kernel.read_varint(data) == (value, len(data))
    assert kernel.read_varlong(b"\xff" + data, 1) == (value, 1 + len(data))


@given(INT64)
@example(-(2**63))
@example(2**63 - 1)
def test_varlong_round_trips(value: int) -> None:
    data = kernel.write_varlong(value)
    assert len(data) <= 10
    assert kernel.read_varlong(data) == (value, len(data))


@each_case(
    ("value", "data"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (64, "8001"), (-65, "8101"), (300, "d804"),
     (2**31 - 1, "feffffff0f"), (-(2**31), "ffffffff0f")],
)  # fmt: skip
def test_varint_bytes(value: int, data: str) -> None:
    assert kernel.write_varint(value) == bytes.fromhex(data)
    assert kernel.read_varint(bytes.fromhex(data)) == (value, len(data) // 2)


def test_overlong_varint_is_accepted() -> None:
    assert kernel.read_varint(b"\x82\x80\x00") == (1, 3)


@each_case("data", ["", "80", "ffffffff", "ffffffff10", "ffffffff1f", "ffffffff7f", "808080808000"])
def test_varint_is_limited_to_5_bytes_and_32_bits(data: str) -> None:
    with pytest.raises(CorruptRecords):
        kernel.read_varint(bytes.fromhex(data))


@each_case("data", ["", "80", "ff" * 9, "ff" * 9 + "02", "ff" * 9 + "7f", "80" * 10 + "00"])
def test_varlong_is_limited_to_10_bytes_and_64_bits(data: str) -> None:
    with pytest.raises(CorruptRecords):
        kernel.read_varlong(bytes.fromhex(data))


@each_case("pos", [-1, 1, 2**40])
def test_varint_outside_the_data_is_rejected(pos: int) -> None:
    for read in (kernel.read_varint, kernel.read_varlong):
        with pytest.raises(CorruptRecords):
            read(b"\x02", pos)


def test_too_large_number_is_not_encoded() -> None:
    for value in (2**31, -(2**31) - 1):
        with pytest.raises(OverflowError):
            kernel.write_varint(value)
    for value in (2**63, -(2**63) - 1):
        with pytest.raises(OverflowError):
            kernel.write_varlong(value)


def test_any_contiguous_buffer_is_accepted() -> None:
    data = plain_record()
    parts = memoryview(b"xy" + data + b"z")[2:-1]
    for buffer in (data, bytearray(data), memoryview(data), memoryview(bytearray(data)), parts):
        assert reason_of(buffer) == (0, -1)


def test_strided_buffer_is_rejected() -> None:
    with pytest.raises(BufferError):
        reason_of(memoryview(b"abcdef")[::2])


def test_buffers_of_wider_items_are_read_as_bytes() -> None:
    numbers = memoryview(array("i", [0, 0]))
    assert reason_of(cast("Buffer", numbers), 1)[0] == BAD_LENGTH
    with pytest.raises(TypeError):
        reason_of(cast("Buffer", "text"))


# Checking


@each_case(
    ("data", "reason"),
    [
        pytest.param(b"\x80" * 7, BAD_LENGTH, id="length without an end"),
        pytest.param(b"\x01" + bytes(6), BAD_LENGTH, id="negative length"),
        pytest.param(b"\x00" + bytes(6), BAD_LENGTH, id="length of zero"),
        pytest.param(kernel.write_varint(2**31 - 1) + bytes(6), BAD_LENGTH, id="length of 2 GiB"),
        pytest.param(b"\x10" + bytes(6), BAD_LENGTH, id="length past the end"),
        pytest.param(record(b"\0" + b"\xff" * 9 + b"\x02", 0, -1, -1, 0), BAD_TIMESTAMP, id="ts"),
        pytest.param(record(b"\0") + bytes(9), BAD_TIMESTAMP, id="nothing but attributes"),
        pytest.param(record(b"\0", 0, 2**31, -1, -1, 0), BAD_OFFSET, id="offset of 33 bits"),
        pytest.param(record(b"\0", 0, 1, -1, -1, 0), BAD_OFFSET, id="offset that skips one"),
        pytest.param(record(b"\0", 0, -1, -1, -1, 0), BAD_OFFSET, id="negative offset"),
        pytest.param(record(b"\0", 0, 0, -2, -1, 0), BAD_KEY, id="key of -2"),
        pytest.param(record(b"\0", 0, 0, 3, b"ab"), BAD_KEY, id="key past the record"),
        pytest.param(record(b"\0", 0, 0, 2**31 - 1, b"abcde"), BAD_KEY, id="key of 2 GiB"),
        pytest.param(record(b"\0", 0, 0, -1, -2, 0), BAD_VALUE, id="value of -2"),
        pytest.param(record(b"\0", 0, 0, -1, 2, b"a"), BAD_VALUE, id="value past the record"),
        pytest.param(record(b"\0", 0, 0, -1, -1) + b"\0", BAD_HEADERS, id="no header count"),
        pytest.param(record(b"\0", 0, 0, -1, -1, -1), BAD_HEADERS, id="negative header count"),
        pytest.param(record(b"\0", 0, 0, -1, -1, 2**31 - 1), BAD_HEADERS, id="2**31 headers"),
        pytest.param(record(b"\0", 0, 0, -1, -1, 2, 0, -1, 0), BAD_HEADERS, id="half a header"),
        pytest.param(record(b"\0", 0, 0, -1, -1, 1, -1, -1), BAD_HEADER_KEY, id="null header key"),
        pytest.param(record(b"\0", 0, 0, -1, -1, 1, 9, b"ab"), BAD_HEADER_KEY, id="long h. key"),
        pytest.param(record(b"\0", 0, 0, -1, -1, 1, 0, -2), BAD_HEADER_VALUE, id="h. value of -2"),
        pytest.param(record(b"\0", 0, 0, -1, -1, 1, 0, 2, b"a"), BAD_HEADER_VALUE, id="long h. v."),
        pytest.param(record(b"\0", 0, 0, -1, -1, 0, b"x"), BAD_END, id="bytes after the headers"),
        pytest.param(record(b"\0", 0, 0, -1, -1, 1, 0, 0, 0), BAD_END, id="bytes after a header"),
        pytest.param(plain_record() + b"\0", BAD_TAIL, id="bytes after the last record"),
        pytest.param(plain_record() + plain_record(1), BAD_TAIL, id="more records than counted"),
    ],
)
def test_corrupt_record_is_detected(data: bytes, reason: int) -> None:
    record_at = -1 if reason == BAD_TAIL else 0
    assert reason_of(data) == (reason, record_at)
    assert kernel.REASONS[reason]


@each_case("count", [-1, -(2**31), 2, 2**31 - 1])
def test_impossible_record_count_is_rejected(count: int) -> None:
    assert reason_of(plain_record(), count) == (BAD_COUNT, -1)
    with pytest.raises(CorruptRecords):
        kernel.RecordReader(plain_record(), count, 0, 0, 0)
    with pytest.raises(CorruptRecords):
        kernel.ColumnBuilder().append_batch(plain_record(), count, 0, 0, 0)


def test_error_names_the_corrupt_record() -> None:
    data = plain_record(0) + plain_record(1) + plain_record(3)
    assert reason_of(data, 3) == (BAD_OFFSET, 2)


def test_record_attributes_are_ignored() -> None:
    assert reason_of(record(b"\xff", 0, 0, -1, -1, 0)) == (0, -1)


def test_no_records_are_valid() -> None:
    assert kernel.check_records(b"", 0, 0, 0, 0) == (0, -1, -1, -1, -1, -1)


def test_check_finds_bad_timestamps_and_missing_keys() -> None:
    data = b"".join(
        [
            plain_record(0, 5),
            plain_record(1, 9),
            plain_record(2, 9, key=None),
            plain_record(3, 90),
            plain_record(4, -1001),  # with the base this is -1, which means no timestamp
            plain_record(5, 91, key=None),
        ]
    )
    assert kernel.check_records(data, 6, 1000, 0, 1050) == (0, -1, 1091, 5, 2, 3)
    assert kernel.find_invalid_records(data, 6, 1000, 0, 1050, False, 9) == [(3, 1090), (5, 1091)]
    assert kernel.find_invalid_records(data, 6, 1000, 0, 1050, True, 9) == [
        (2, None),
        (3, 1090),
        (5, None),
    ]
    assert kernel.find_invalid_records(data, 6, 1000, 0, 1050, True, 2) == [(2, None), (3, 1090)]


def test_first_record_with_the_max_timestamp_is_returned() -> None:
    data = plain_record(0, 5) + plain_record(1, 7) + plain_record(2, 7)
    assert kernel.check_records(data, 3, 0, *ANY_TIME)[2:4] == (7, 1)


@given(INT64, INT64)
def test_timestamps_wrap_as_in_java(base: int, delta: int) -> None:
    (read,) = kernel.RecordReader(plain_record(0, delta), 1, 0, 0, base)
    assert read.timestamp == (base + delta + 2**63) % 2**64 - 2**63


@given(drawn_batches)
def test_appended_records_are_valid(drawn: list[Drawn]) -> None:
    appender = kernel.RecordAppender(2**31 - 1)
    for each in drawn:
        assert appender.append(*each)
    section = appender.encoded()[HEADER_SIZE:]
    checked = kernel.check_records(section, len(drawn), drawn[0].timestamp, *ANY_TIME)
    times = [each.timestamp for each in drawn]
    without_key = next((i for i, each in enumerate(drawn) if each.key is None), -1)
    known = max(times) > -1
    assert checked == (
        0,
        -1,
        max(times) if known else -1,
        times.index(max(times)) if known else -1,
        without_key,
        -1,
    )
    assert (appender.base_timestamp, appender.max_timestamp) == (times[0], max(times))
    reader = kernel.RecordReader(section, len(drawn), len(drawn) - 1, 7, drawn[0].timestamp)
    assert reader.read_all() == [
        kernel.Record(7 + i, *each[:3], headers=each.headers) for i, each in enumerate(drawn)
    ]


# Single records


def test_record_is_a_value() -> None:
    one = kernel.Record(1, 2, b"k", b"v", [("h", b"x"), ("n", None)])
    same = kernel.Record(1, 2, b"k", b"v", (("h", b"x"), ("n", None)))
    assert one == same
    assert hash(one) == hash(same)
    assert one != kernel.Record(1, 2, b"k", b"w")
    assert one != (1, 2, b"k", b"v")
    assert pickle.loads(pickle.dumps(one)) == one
    assert repr(kernel.Record(1, 2)) == (
        "Record(offset=1, timestamp=2, key=None, value=None, headers=())"
    )


@each_case(
    "wrong",
    [
        {"key": "text"},
        {"value": bytearray(b"v")},
        {"headers": [("h", "text")]},
        {"headers": [(b"h", b"v")]},
        {"headers": [("h", b"v", b"w")]},
        {"headers": [["h", b"v"]]},
    ],
)
def test_record_rejects_other_types(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        kernel.Record(0, 0, **wrong)


def test_compiled_record_is_not_tracked_by_gc() -> None:
    if not kernel.COMPILED:
        pytest.skip("the kernel runs as Python")
    assert not gc.is_tracked(kernel.Record(0, 0))
    (read,) = kernel.RecordReader(plain_record(), 1, 0, 0, 0)
    assert not gc.is_tracked(read)


def test_reader_starts_at_an_offset() -> None:
    data = plain_record(0) + plain_record(5) + plain_record(6)
    reader = kernel.RecordReader(data, 3, 9, 100, 0, None, 105)
    assert [each.offset for each in reader] == [105, 106]


def test_log_append_time_sets_every_record() -> None:
    data = plain_record(0, 1) + plain_record(1, 2)
    reader = kernel.RecordReader(data, 2, 1, 0, 1000, 7777)
    assert [each.timestamp for each in reader] == [7777, 7777]


@each_case("deltas", [(0, 0), (1, 0), (0, 10), (-1, 0)])
def test_offsets_must_increase_within_the_batch(deltas: tuple[int, int]) -> None:
    data = b"".join(plain_record(delta) for delta in deltas)
    with pytest.raises(CorruptRecords, match="offset"):
        kernel.RecordReader(data, 2, 9, 0, 0).read_all()
    with pytest.raises(CorruptRecords, match="offset"):
        kernel.ColumnBuilder().append_batch(data, 2, 9, 0, 0)


def test_failed_reader_is_exhausted() -> None:
    reader = kernel.RecordReader(plain_record(0) + plain_record(0), 2, 9, 0, 0)
    assert next(reader).offset == 0
    with pytest.raises(CorruptRecords) as failure:
        next(reader)
    assert failure.value.record == 1
    assert list(reader) == []


def test_trailing_bytes_raise_after_the_last_record() -> None:
    reader = kernel.RecordReader(plain_record(0) + b"\0", 1, 0, 0, 0)
    next(reader)
    with pytest.raises(CorruptRecords, match="follow"):
        next(reader)
    assert list(reader) == []


# The edges of UTF-8: shortest forms, surrogates, the last code point, cut-off sequences.
EDGES = [
    "", "7f", "80", "c080", "c1bf", "c280", "dfbf", "e08080", "e09fbf", "e0a080", "ed9fbf",
    "eda080", "edbfbf", "ee8080", "efbfbf", "f0808080", "f08fbfbf", "f0908080", "f48fbfbf",
    "f4908080", "f5808080", "ff", "c2", "e0a0", "f09080", "c220", "e2822f", "f09f98c0", "6180",
]  # fmt: skip


@given(st.binary(max_size=12) | st.text(max_size=6).map(lambda text: text.encode()))
def test_invalid_utf8_header_key_is_replaced(raw: bytes) -> None:
    key = raw.decode(errors="replace")
    data = record(b"\0", 0, 0, -1, -1, 2, len(raw), raw, -1, 1, b"k", 1, b"v")
    assert reason_of(data) == (0, -1), "Kafka does not check it on produce"
    (read,) = kernel.RecordReader(data, 1, 0, 0, 0)
    assert read.headers == ((key, None), ("k", b"v"))
    writer = kernel.ColumnBuilder()
    writer.append_batch(data, 1, 0, 0, 0)
    writer.finish()
    assert (writer.rows, writer.headers) == (1, 2)
    mended = key.encode()
    assert writer.header_key_data == mended + b"k"
    offsets = [0, len(mended), len(mended) + 1]
    assert list(memoryview(writer.header_key_offsets).cast("i")) == offsets
    assert writer.header_value_data == b"v"


for edge in EDGES:
    test_invalid_utf8_header_key_is_replaced = example(bytes.fromhex(edge))(
        test_invalid_utf8_header_key_is_replaced
    )


# The appender


def test_append_that_does_not_fit_changes_nothing() -> None:
    appender = kernel.RecordAppender(HEADER_SIZE + 24)
    assert appender.append(1, None, b"0123456789")
    size = appender.size
    assert not appender.append(2, None, b"0123456789")
    assert (appender.size, appender.count, appender.max_timestamp) == (size, 1, 1)
    assert appender.append(2, None, b"")
    assert appender.count == 2


def test_batch_limit_is_exact() -> None:
    sizer = kernel.RecordAppender(1000)
    sizer.append(1, b"k", b"v")
    sizer.append(1, b"k", b"v")
    for limit, fits in ((sizer.size, True), (sizer.size - 1, False)):
        appender = kernel.RecordAppender(limit)
        appender.append(1, b"k", b"v")
        assert appender.append(1, b"k", b"v") is fits


def test_first_record_always_fits() -> None:
    appender = kernel.RecordAppender(10)
    assert appender.append(1, None, bytes(1000))
    assert not appender.append(1, None, None)


@each_case("limit", [-1, 2**31])
def test_batch_limit_is_below_2_gib(limit: int) -> None:
    with pytest.raises(ValueError, match="2 GiB"):
        kernel.RecordAppender(limit)


def test_append_accepts_any_buffer() -> None:
    appender = kernel.RecordAppender(1000)
    appender.append(1, bytearray(b"k"), memoryview(b"v"), [("h", bytearray(b"x"))])
    (read,) = kernel.RecordReader(appender.encoded()[HEADER_SIZE:], 1, 0, 0, 1)
    assert (read.key, read.value, read.headers) == (b"k", b"v", (("h", b"x"),))


@each_case(
    ("arguments", "error"),
    [
        ((0, "text", None), TypeError),
        ((0, None, 5), TypeError),
        ((0, None, None, [("h", "text")]), TypeError),
        ((0, None, None, [(None, b"v")]), AttributeError),
        ((0, None, None, [("\ud800", b"v")]), UnicodeEncodeError),
        ((2**63, None, None), OverflowError),
        ((-(2**63) - 1, None, None), OverflowError),
    ],
)
def test_failed_append_changes_nothing(arguments: tuple[Any, ...], error: type[Exception]) -> None:
    appender = kernel.RecordAppender(1000)
    with pytest.raises(error):
        appender.append(*arguments)
    assert (appender.count, appender.size) == (0, HEADER_SIZE)


# Columns


def test_corrupt_batch_leaves_the_columns_unchanged() -> None:
    good = build([Drawn(1, b"k", b"v", (("h", b"x"),)), Drawn(2, None, None, (("n", None),))])
    section = good[HEADER_SIZE:]
    bad = bytes(section) + record(b"\0", 0, 2, -2, -1, 1, 1, b"h", -1)
    once, twice = kernel.ColumnBuilder(), kernel.ColumnBuilder()
    once.append_batch(section, 2, 1, 0, 1)
    once.append_batch(section, 2, 1, 2, 1)
    twice.append_batch(section, 2, 1, 0, 1)
    for data, count in ((bad, 3), (bad, 2), (bad[:-3], 3)):
        with pytest.raises(CorruptRecords):
            twice.append_batch(data, count, 2, 2, 1)
    twice.append_batch(section, 2, 1, 2, 1)
    once.finish()
    twice.finish()
    assert contents(once) == contents(twice)


def contents(writer: kernel.ColumnBuilder) -> list[int | bytearray]:
    fields = [getattr(writer, name) for name in dir(writer) if not name.startswith("_")]
    found = [field for field in fields if isinstance(field, int | bytearray)]
    assert len(found) >= 19
    return found


def test_columns_above_2_gib_are_not_allocated() -> None:
    section = build([Drawn(1, None, bytes(1000), ())])[HEADER_SIZE:]
    writer = kernel.ColumnBuilder()
    writer.append_batch(section, 1, 0, 0, 1)
    with mmap.mmap(-1, 2**31 - 1) as huge, memoryview(huge) as batch:  # never touched
        with pytest.raises(ColumnsTooLarge, match="2 GiB"):
            writer.append_batch(batch, 0, 0, 0, 1)
        batch.release()
    assert writer.rows == 1


# Hashing

JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@each_case(("key", "hashed"), JAVA.items())
def test_murmur2_equals_java(key: bytes, hashed: int) -> None:
    assert kernel.murmur2(key) == hashed


@given(st.binary(max_size=100))
def test_murmur2_equals_other_clients(key: bytes) -> None:
    theirs = [
        cast("Any", aiokafka.partitioner).murmur2(key),
        cast("Any", kafka.partitioner.default).murmur2(key),
    ]
    assert [each % 2**32 for each in theirs] == [kernel.murmur2(key) % 2**32] * 2


@given(st.lists(st.none() | st.binary(max_size=40), max_size=50), st.integers(1, 1000))
def test_partitions_of_a_column_follow_its_keys(keys: list[bytes | None], count: int) -> None:
    column = kernel.BinaryColumn(*column_of(keys), len(keys))
    found = memoryview(kernel.partitions(column, count)).cast("i").tolist()
    assert found == [
        -1 if key is None else (kernel.murmur2(key) & 0x7FFFFFFF) % count for key in keys
    ]


def column_of(cells: list[bytes | None]) -> tuple[bytes, bytes, bytes]:
    offsets = array("i", [0])
    validity = bytearray((len(cells) + 7) // 8)
    data = b""
    for row, cell in enumerate(cells):
        data += cell or b""
        offsets.append(len(data))
        validity[row >> 3] |= (cell is not None) << (row & 7)
    return offsets.tobytes(), data, bytes(validity)


@each_case("count", [0, -1, 2**31])
def test_partition_count_is_checked(count: int) -> None:
    with pytest.raises(ValueError, match="partition"):
        kernel.partitions(kernel.BinaryColumn(bytes(4), b"", None, 0), count)


# Invalid columns


@each_case(
    ("length", "start"), [(2, 0), (1, 1), (-1, 0), (0, -1), (2**62, 0), (0, 2**62), (2**63 - 1, 1)]
)
@each_case("wide", [False, True])
def test_column_needs_one_more_offset_than_rows(length: int, start: int, wide: bool) -> None:
    offsets = bytes(16 if wide else 8)
    with pytest.raises(ValueError, match="bytes of offsets"):
        kernel.BinaryColumn(offsets, b"", None, length, start, wide)


def test_column_needs_a_validity_bit_per_row() -> None:
    with pytest.raises(ValueError, match="validity"):
        kernel.BinaryColumn(bytes(40), b"", b"\xff", 9)


def test_column_needs_a_timestamp_per_row() -> None:
    for length in (2, -1, 2**62):
        with pytest.raises(ValueError, match="timestamps"):
            kernel.TimestampColumn(bytes(8), length)


@each_case("offsets", [[0, 4], [-1, 1], [2, 1], [0, 2**31 - 1], [-(2**31), 0]])
def test_offsets_outside_the_data_are_rejected(offsets: list[int]) -> None:
    column = kernel.BinaryColumn(array("i", offsets).tobytes(), b"abc", None, 1)
    for keys, values in ((column, None), (None, column)):
        with pytest.raises(ValueError, match="outside"):
            kernel.encode_rows(keys, values, None, None, 0, 0, 1, 1000)
    with pytest.raises(ValueError, match="outside"):
        kernel.partitions(column, 3)


@each_case("offsets", [[0, 2], [-1, 1], [1, 0], [2, 2]])
def test_headers_outside_their_columns_are_rejected(offsets: list[int]) -> None:
    cell = kernel.BinaryColumn(array("i", [0, 1]).tobytes(), b"h", None, 1)
    lists = kernel.HeaderColumn(array("i", offsets).tobytes(), None, cell, cell, 1)
    with pytest.raises(ValueError, match="outside"):
        kernel.encode_rows(None, None, lists, None, 0, 0, 1, 1000)


@each_case(("data", "validity"), [(b"\xff", None), (b"h", b"\x00")])
def test_invalid_header_key_is_rejected(data: bytes, validity: bytes | None) -> None:
    keys = kernel.BinaryColumn(array("i", [0, 1]).tobytes(), data, validity, 1)
    values = kernel.BinaryColumn(array("i", [0, 1]).tobytes(), b"v", None, 1)
    lists = kernel.HeaderColumn(array("i", [0, 1]).tobytes(), None, keys, values, 1)
    with pytest.raises(ValueError, match="header"):
        kernel.encode_rows(None, None, lists, None, 0, 0, 1, 1000)


@each_case(("start", "stop", "limit"), [(-1, 1, 9), (2, 1, 9), (0, 1, 2**31)])
def test_rows_and_limit_are_checked(start: int, stop: int, limit: int) -> None:
    with pytest.raises(ValueError, match=r"range|limit"):
        kernel.encode_rows(None, None, None, None, 0, start, stop, limit)


def test_column_needs_the_rows_to_encode() -> None:
    column = kernel.BinaryColumn(bytes(8), b"", None, 1)
    with pytest.raises(ValueError, match="are needed"):
        kernel.encode_rows(None, column, None, None, 0, 0, 2, 100)


# Batches


def test_scan_stops_at_the_first_invalid_batch() -> None:
    one, two = Drawn(5, b"k", b"v", ()), Drawn(-7, None, None, ())
    whole = build([one], base_offset=10) + build([one, two], base_offset=11, transactional=True)
    data = b"xx" + whole + build([two], base_offset=15)  # after a gap
    expected = [batch.header for batch in batches(whole)]

    def found(data: bytes, expected: int = 10, limit: int = 2**63 - 1) -> tuple[list[Any], int]:
        return kernel.scan_batch_headers(data, 2, expected, limit, BatchHeader, crc32c)

    assert found(data) == (expected, 2 + len(whole))
    assert all(type(header) is BatchHeader for header in found(data)[0])
    assert found(data, limit=13)[0] == expected
    assert found(data, limit=12)[0] == expected[:1]
    assert found(data, expected=11) == ([], 2)
    assert found(data, expected=9) == ([], 2)
    assert found(data[: 1 + len(whole)])[0] == expected[:1]
    for at in range(2, 2 + len(whole)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << (at % 8)
        hit = at >= 2 + expected[0].size
        in_epoch = 12 <= at - 2 - hit * expected[0].size < 16
        assert len(found(bytes(damaged))[0]) == (2 if in_epoch else int(hit))
