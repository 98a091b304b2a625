"""Conversion between columns and pyarrow, which share their buffers."""

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any, cast

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import each_case
from ottla.records._kernel import Record, murmur2
from ottla.records.arrow import binary_column, from_arrow, to_arrow
from ottla.records.batch import Batch, batches
from ottla.records.columns import Column, Columns, decode, encode, partitions
from records.drawing import Drawn, build, drawn_batches

pa = cast("Any", pyarrow)
UNLIMITED = 2**31 - 1
PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def table_of(drawn: list[Drawn]) -> Any:
    """A pyarrow batch of the records."""
    headers = [[{"key": k, "value": v} for k, v in each.headers] for each in drawn]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([each.timestamp for each in drawn], pa.int64()),
            pa.array([each.key for each in drawn], pa.binary()),
            pa.array([each.value for each in drawn], pa.binary()),
            pa.array(headers, PAIRS),
        ],
        names=["timestamp", "key", "value", "headers"],
    )


def drawn_of(columns: Columns) -> list[Drawn]:
    records = [
        record
        for encoded in encode(columns, limit=UNLIMITED)
        for record in Batch(encoded.data).records()
    ]
    return [Drawn(r.timestamp, r.key, r.value, r.headers) for r in records]


@settings(deadline=None)
@given(drawn_batches)
def test_to_arrow_has_a_row_per_record(drawn: list[Drawn]) -> None:
    arrow = to_arrow(decode(build(drawn, base_offset=4)))
    arrow.validate(full=True)
    assert arrow.schema.names == ["offset", "timestamp", "key", "value", "headers"]
    assert arrow.column("offset").to_pylist() == list(range(4, 4 + len(drawn)))
    expected = table_of(drawn)
    assert arrow.column("timestamp").cast(pa.int64()).equals(expected.column("timestamp"))
    for name in ("key", "value"):
        assert arrow.column(name).equals(expected.column(name))
    assert arrow.column("headers").to_pylist() == expected.column("headers").to_pylist()


def test_to_arrow_copies_nothing() -> None:
    columns = decode(build([Drawn(1, b"key", b"value", (("h", b"x"),))] * 20))
    arrow = to_arrow(columns)
    assert columns.values is not None
    for buffer, ours in (
        (arrow.column("offset").buffers()[1], columns.offsets),
        (arrow.column("timestamp").buffers()[1], columns.timestamps),
        (arrow.column("value").buffers()[1], columns.values.offsets),
        (arrow.column("value").buffers()[2], columns.values.data),
    ):
        assert buffer.address == pa.py_buffer(ours).address


def test_arrow_timestamps_are_utc_milliseconds() -> None:
    arrow = to_arrow(decode(build([Drawn(1_700_000_000_123, None, None, ())])))
    assert arrow.column("timestamp").type == pa.timestamp("ms", tz="UTC")
    assert arrow.column("timestamp")[0].as_py() == datetime.fromtimestamp(1_700_000_000.123, UTC)


@settings(deadline=None)
@given(drawn_batches, st.data())
def test_from_arrow_reads_whole_and_sliced_batches(drawn: list[Drawn], data: st.DataObject) -> None:
    whole = table_of(drawn)
    assert drawn_of(from_arrow(whole)) == drawn
    start = data.draw(st.integers(0, len(drawn)))
    length = data.draw(st.integers(0, len(drawn) - start))
    assert drawn_of(from_arrow(whole.slice(start, length))) == drawn[start : start + length]


@settings(deadline=None)
@given(drawn_batches)
def test_records_survive_a_round_trip_through_arrow(drawn: list[Drawn]) -> None:
    run = build(drawn)
    assert drawn_of(from_arrow(to_arrow(decode(run)))) == drawn
    (again,) = encode(from_arrow(to_arrow(decode(run))), limit=UNLIMITED)
    assert bytes(again.data) == run


def test_from_arrow_copies_nothing() -> None:
    values = pa.array([b"one", None, b"three"])
    columns = from_arrow(pa.RecordBatch.from_arrays([values], names=["value"]), now_ms=5)
    assert columns.values is not None
    for ours, theirs in zip(
        (columns.values.validity, columns.values.offsets, columns.values.data),
        values.buffers(),
        strict=True,
    ):
        assert pa.py_buffer(ours).address == theirs.address


CELLS = [b"one", None, b"", b"four"]
TEXT = [None if cell is None else cell.decode() for cell in CELLS]


@each_case(
    "array",
    [
        pytest.param(pa.array(CELLS, pa.binary()), id="binary"),
        pytest.param(pa.array(CELLS, pa.large_binary()), id="large_binary"),
        pytest.param(pa.array(TEXT, pa.string()), id="string"),
        pytest.param(pa.array(TEXT, pa.large_string()), id="large_string"),
        pytest.param(pa.array(CELLS, pa.binary_view()), id="binary_view"),
        pytest.param(pa.array(TEXT, pa.string_view()), id="string_view"),
        pytest.param(pa.array(TEXT).dictionary_encode(), id="dictionary"),
        pytest.param(pa.chunked_array([CELLS[:1], CELLS[1:]], pa.binary()), id="chunked"),
    ],
)
def test_from_arrow_accepts_binary_and_string_types(array: Any) -> None:
    for start in range(5):
        part = array.slice(start)
        flat = part.combine_chunks() if hasattr(part, "combine_chunks") else part
        batch = pa.RecordBatch.from_arrays([flat, flat], names=["key", "value"])
        read = drawn_of(from_arrow(batch, now_ms=9))
        assert [each.value for each in read] == CELLS[start:]
        assert [each.key for each in read] == CELLS[start:]
        assert all(each.timestamp == 9 for each in read)
        expected = [-1 if c is None else (murmur2(c) & 0x7FFFFFFF) % 7 for c in CELLS[start:]]
        assert partitions(binary_column(part), 7).tolist() == expected


def test_from_arrow_casts_fixed_size_keys() -> None:
    array = pa.array([b"ab", None, b"cd"], pa.binary(2))
    batch = pa.RecordBatch.from_arrays([array], names=["key"])
    assert [each.key for each in drawn_of(from_arrow(batch, now_ms=1))] == [b"ab", None, b"cd"]


def test_null_typed_column_has_only_nulls() -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.nulls(2), pa.nulls(2), pa.nulls(2), pa.nulls(2)],
        names=["timestamp", "key", "value", "headers"],
    )
    assert drawn_of(from_arrow(batch, now_ms=3)) == [Drawn(3, None, None, ())] * 2
    assert partitions(binary_column(pa.nulls(2)), 5).tolist() == [-1, -1]


@each_case("unit", ["s", "ms", "us", "ns"])
@each_case("zone", [None, "UTC", "Europe/Prague"])
def test_from_arrow_accepts_timestamps_of_any_unit(unit: str, zone: str | None) -> None:
    array = pa.array([1_700_000_000_000, None, 0], pa.timestamp("ms", tz="UTC"))
    array = array.cast(pa.timestamp(unit, tz="UTC")).cast(pa.timestamp(unit, tz=zone))
    for start in range(3):
        batch = pa.RecordBatch.from_arrays([array.slice(start)], names=["timestamp"])
        read = [each.timestamp for each in drawn_of(from_arrow(batch, now_ms=77))]
        assert read == [1_700_000_000_000, 77, 0][start:]


def test_missing_timestamp_needs_now_ms() -> None:
    missing = pa.RecordBatch.from_arrays([pa.array([b"v"])], names=["value"])
    null = pa.RecordBatch.from_arrays([pa.array([None], pa.int64())], names=["timestamp"])
    for batch in (missing, null):
        with pytest.raises(ValueError, match="timestamp"):
            from_arrow(batch)


def test_from_arrow_accepts_maps_and_large_lists() -> None:
    pairs = [[("a", b"1"), ("b", None)], None, [], [("c", b"")]]
    structs = [None if p is None else [{"key": k, "value": v} for k, v in p] for p in pairs]
    large = pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))
    expected = [(("a", b"1"), ("b", None)), (), (), (("c", b""),)]
    for array in (
        pa.array(pairs, pa.map_(pa.string(), pa.binary())),
        pa.array(structs, large),
        pa.array(structs, PAIRS),
    ):
        for start in range(5):
            batch = pa.RecordBatch.from_arrays([array.slice(start)], names=["headers"])
            read = [each.headers for each in drawn_of(from_arrow(batch, now_ms=1))]
            assert read == expected[start:]


@each_case(
    ("name", "array"),
    [
        ("key", pa.array([1])),
        ("value", pa.array([1.5])),
        ("value", pa.array([["x"]])),
        ("timestamp", pa.array([1], pa.int32())),
        ("timestamp", pa.array(["now"])),
        ("headers", pa.array([b"x"])),
        ("headers", pa.array([["x"]])),
        ("headers", pa.array([[{"key": "k"}]])),
    ],
)
def test_from_arrow_rejects_other_types(name: str, array: Any) -> None:
    batch = pa.RecordBatch.from_arrays([array], names=[name])
    with pytest.raises(ValueError, match="not "):
        from_arrow(batch, now_ms=1)


@each_case("headers", [[None], [{"key": None, "value": b"x"}]])
def test_null_header_key_is_rejected(headers: list[Any]) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([headers], PAIRS)], names=["headers"])
    with pytest.raises(ValueError, match="the key is null"):
        encode(from_arrow(batch, now_ms=1), limit=UNLIMITED)


def test_missing_columns_become_null_arrays() -> None:
    arrow = to_arrow(Columns(2, bytes(16), None, None))
    arrow.validate(full=True)
    assert arrow.schema.names == ["timestamp", "key", "value", "headers"]
    assert arrow.column("key").to_pylist() == [None, None]
    assert arrow.column("headers").to_pylist() == [[], []]


def test_slice_of_large_columns_becomes_large_arrays() -> None:
    wide = Column(
        memoryview(pa.array([b"a", b"bc"], pa.large_binary()).buffers()[1]),
        b"abc",
        None,
        1,
        1,
        True,
    )
    arrow = to_arrow(Columns(1, bytes(8), wide, None))
    arrow.validate(full=True)
    assert arrow.column("key").type == pa.large_binary()
    assert arrow.column("key").to_pylist() == [b"bc"]


def test_large_columns_are_split_by_size() -> None:
    values = pa.array([bytes(100)] * 1000)
    columns = from_arrow(pa.RecordBatch.from_arrays([values], names=["value"]), now_ms=1)
    encoded = encode(columns, limit=16_384)
    assert len(encoded) == 7
    assert all(len(batch.data) <= 16_384 for batch in encoded)
    read = [r for e in encoded for b in batches(e.data) for r in b.records()]
    assert len(read) == 1000
    assert read[0] == Record(0, 1, None, bytes(100))


def test_missing_pyarrow_error_names_the_extra() -> None:
    script = """
import sys
sys.modules["pyarrow"] = None
from ottla.records import BatchBuilder, decode, from_arrow, to_arrow
builder = BatchBuilder()
builder.append(1, b"k", b"v")
columns = decode(builder.build())
assert columns.rows == 1
for attempt in (lambda: to_arrow(columns), lambda: from_arrow(None)):
    try:
        attempt()
    except ImportError as error:
        assert 'pip install ".[arrow]"' in str(error), error
    else:
        raise AssertionError
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_pyarrow_is_imported_on_first_use() -> None:
    script = "import sys, ottla.records; assert 'pyarrow' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_header_fields_are_found_by_name() -> None:
    kind = pa.list_(pa.struct([("value", pa.binary()), ("key", pa.string())]))
    headers = pa.array([[{"value": b"x", "key": "a"}]], kind)
    batch = pa.record_batch([pa.array([1]), headers], names=["timestamp", "headers"])
    (encoded,) = encode(from_arrow(batch, now_ms=0), limit=1000)
    (record,) = Batch(encoded.data).records()
    assert record.headers == (("a", b"x"),)
