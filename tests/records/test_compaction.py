"""The offset map, and compaction of batches with it; with both kernels."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each_case
from ottla.records._kernel import OffsetMap, Record, copy_retained, mark_retained
from ottla.records.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    Batch,
    TimestampType,
    assign_timestamp,
)
from ottla.records.builder import BatchBuilder
from ottla.records.compaction import (
    Compacted,
    CompactionPass,
    EmptyBatch,
    compact_marker,
    compact_records,
    discard_records,
)
from ottla.records.compression import Compression
from ottla.records.control import EndTxnMarker, marker_batch, read_control, read_end_txn_marker
from ottla.records.errors import CorruptRecords

SECRET = bytes(range(16))
NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
Pair = tuple[bytes | None, bytes | None]


def batch_of(
    *pairs: Pair,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    timestamps: list[int] | None = None,
) -> Batch:
    builder = BatchBuilder(compression=compression)
    for number, (key, value) in enumerate(pairs):
        timestamp = NOW_MS + number if timestamps is None else timestamps[number]
        builder.append(timestamp, key, value, [("trace", b"x")] * (number % 2))
    data = builder.build(
        base_offset=base_offset,
        leader_epoch=4,
        producer_id=77,
        producer_epoch=3,
        base_sequence=500,
        transactional=True,
    )
    return Batch(data)


def noted(*batches: Batch, size: int = 24_000, from_offset: int = 0) -> OffsetMap:
    keys = OffsetMap(size, 0.9, SECRET)
    for batch in batches:
        note(keys, batch, from_offset)
    return keys


def note(keys: OffsetMap, batch: Batch, from_offset: int = 0) -> int:
    header = batch.header
    return keys.add_batch(
        batch.record_bytes(),
        header.record_count,
        header.last_offset_delta,
        header.base_offset,
        from_offset,
    )


def passing(keys: OffsetMap, *, until: int = 1000, now_ms: int = NOW_MS) -> CompactionPass:
    return CompactionPass(keys, until, now_ms, DAY_MS, 1 << 20)


def result(compacted: Compacted) -> Batch:
    batch = Batch(bytes(compacted.data))
    assert batch.crc_ok
    return batch


def pairs(batch: Batch) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(r.offset, r.key, r.value) for r in batch.records()]


def records(batch: Batch) -> list[Record]:
    return batch.records().read_all()


# The offset map.


@each_case(
    ("size", "expected"),
    [
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
        (15, "5493e99933b0a8117e08ec0f97cfc3d9"),
    ],
)
def test_offset_map_hashes_with_siphash_128(size: int, expected: str) -> None:
    """The test vectors of its authors."""
    assert OffsetMap(2400, 0.9, SECRET).hash(bytes(range(size))).hex() == expected


def test_hash_depends_on_secret_and_every_byte() -> None:
    keys = OffsetMap(2400, 0.9, SECRET)
    other = OffsetMap(2400, 0.9, bytes(16))
    assert keys.hash(b"k") != other.hash(b"k")
    found = {keys.hash(b"")}
    for size in range(1, 40):
        for at in range(size):
            found.add(keys.hash(bytes(at) + b"\x01" + bytes(size - at - 1)))
    assert len(found) == 1 + sum(range(1, 40))


@given(st.lists(st.sampled_from([None, b"", *(b"key-%d" % n for n in range(20))]), min_size=1))
def test_offset_map_has_the_last_offset_of_each_key(drawn: list[bytes | None]) -> None:
    batch = batch_of(*((key, b"v") for key in drawn), base_offset=100)
    keys = OffsetMap(24_000, 0.9, SECRET)
    assert note(keys, batch, 102) == 100 + len(drawn)
    expected = {key: 100 + n for n, key in enumerate(drawn) if key is not None and n >= 2}
    assert keys.count == len(expected)
    for key in {b"", *(b"key-%d" % n for n in range(20))}:
        assert keys.get(key) == expected.get(key)


def test_full_offset_map_returns_the_next_offset() -> None:
    keys = OffsetMap(24 * 10, 0.5, SECRET)
    assert (keys.slots, keys.limit) == (10, 5)
    first = [(b"%d" % n, b"") for n in range(4)]
    assert note(keys, batch_of(*first)) == 4
    # Keys that the map already has need no space.
    more = [(b"0", b""), (b"a", b""), (b"1", b""), (None, b""), (b"b", b""), (b"2", b"")]
    assert note(keys, batch_of(*more, base_offset=50)) == 54
    assert keys.count == 5
    assert [keys.get(key) for key in (b"0", b"a", b"1", b"b", b"2")] == [50, 51, 52, None, 2]


def test_full_offset_map_finds_every_key() -> None:
    keys = OffsetMap(24 * 50, 1.0, SECRET)
    assert keys.limit == 49  # one slot stays free, so that a search terminates
    names = [b"%d" % n for n in range(60)]
    assert note(keys, batch_of(*((name, b"") for name in names))) == 49
    assert [keys.get(name) for name in names] == [*range(49), *[None] * 11]


@each_case(
    ("size", "factor", "secret"),
    [(47, 0.9, SECRET), (2400, 0.0, SECRET), (2400, 1.1, SECRET), (2400, 0.9, b"short")],
)
def test_offset_map_rejects_invalid_arguments(size: int, factor: float, secret: bytes) -> None:
    with pytest.raises(ValueError, match=r"room|secret"):
        OffsetMap(size, factor, secret)


@each_case(
    ("section", "count", "last"),
    [
        (b"", 1, 0),
        (b"\x0e\x00\x00\x00\x01\x01\x00", 1, 0),  # a truncated record
        (b"\x0e\x00\x00\x00\x01\x01\x00\x00", 1, 0),  # bytes left in the record
        (b"\x0c\x00\x00\x04\x01\x01\x00", 1, 1),  # an offset above the last
        (b"\x0c\x00\x00\x00\x01\x01\x00" * 2, 2, 1),  # an offset twice
        (b"\x0c\x00\x00\x00\x01\x01\x00" * 2, 1, 1),  # bytes after the last record
    ],
)
def test_compaction_rejects_corrupt_records(section: bytes, count: int, last: int) -> None:
    keys = OffsetMap(2400, 0.9, SECRET)
    sound = b"\x0c\x00\x00\x00\x01\x01\x00"
    assert keys.add_batch(sound, 1, 0, 0, 0) == 1
    with pytest.raises(CorruptRecords):
        keys.add_batch(section, count, last, 0, 0)
    with pytest.raises(CorruptRecords):
        mark_retained(keys, section, count, last, 0, 0, None, 10, True)


# Batches of records.


def test_batch_without_replaced_records_is_unchanged() -> None:
    batch = batch_of((b"a", b"1"), (b"b", b"2"))
    found = compact_records(batch, passing(noted(batch)), EmptyBatch.DELETE)
    assert bytes(found.data) == bytes(batch.data)
    assert (found.records, found.records_read, found.max_timestamp) == (2, 2, NOW_MS + 1)


@each_case("compression", list(Compression))
def test_replaced_records_are_removed(compression: Compression) -> None:
    old = batch_of(
        *((b"a", b"1"), (None, b"no key"), (b"b", b"2" * 300), (b"a", b"3"), (b"c", b"")),
        compression=compression,
        timestamps=[NOW_MS + 9, NOW_MS, NOW_MS + 5, NOW_MS + 3, NOW_MS + 4],
    )
    later = batch_of((b"c", b"later"), base_offset=10)
    found = compact_records(old, passing(noted(old, later)), EmptyBatch.DELETE)
    batch = result(found)
    assert records(batch) == [r for r in records(old) if r.offset in (2, 3)]
    assert (found.records, found.records_read, found.keyless) == (2, 5, 1)
    header, was = batch.header, old.header
    assert header.base_timestamp == NOW_MS + 5  # of the first kept record
    assert header.max_timestamp == found.max_timestamp == NOW_MS + 5
    assert header.record_count == 2
    assert header.compression is compression
    for name in ("base_offset", "last_offset", "leader_epoch", "producer_id", "attributes"):
        assert getattr(header, name) == getattr(was, name)
    assert (header.producer_epoch, header.base_sequence, header.last_sequence) == (3, 500, 504)


def test_records_after_the_map_are_kept() -> None:
    batch = batch_of((b"a", b"1"), (b"a", b"2"), (b"a", b"3"), (None, b"4"))
    keys = OffsetMap(2400, 0.9, SECRET)
    keys.add_batch(batch.record_bytes(), 4, 3, 0, 0)
    found = result(compact_records(batch, passing(keys, until=2), EmptyBatch.DELETE))
    assert [offset for offset, _, _ in pairs(found)] == [2, 3]


def test_emptied_batch_is_deleted_or_kept() -> None:
    batch = batch_of((b"a", b"1"), (None, b"2"), compression=Compression.ZSTD)
    this = passing(noted(batch, batch_of((b"a", b"3"), base_offset=9)))
    assert compact_records(batch, this, EmptyBatch.DELETE).data == b""
    for found in (
        compact_records(batch, this, EmptyBatch.KEEP),
        discard_records(batch, EmptyBatch.KEEP),
    ):
        kept = result(found)
        assert len(kept.data) == HEADER_SIZE
        assert (kept.header.record_count, kept.header.last_sequence) == (0, 501)
        assert (kept.header.base_offset, kept.header.last_offset) == (0, 1)
        assert kept.header.is_transactional
        # An emptied batch can be compacted again.
        assert bytes(compact_records(kept, this, EmptyBatch.KEEP).data) == bytes(kept.data)
        assert compact_records(kept, this, EmptyBatch.DELETE).data == b""
    assert discard_records(batch, EmptyBatch.DELETE).data == b""


@each_case("compression", [Compression.NONE, Compression.LZ4])
def test_tombstone_is_kept_until_its_delete_horizon(
    compression: Compression,
) -> None:
    batch = batch_of((b"a", b"1"), (b"a", None), (b"b", b"2"), compression=compression)
    keys = noted(batch)
    first = result(compact_records(batch, passing(keys), EmptyBatch.DELETE))
    assert pairs(first) == [(1, b"a", None), (2, b"b", b"2")]
    assert first.header.delete_horizon_ms == NOW_MS + DAY_MS
    assert first.header.attributes == batch.header.attributes | DELETE_HORIZON
    assert [r.timestamp for r in first.records()] == [NOW_MS + 1, NOW_MS + 2]
    assert first.header.max_timestamp == NOW_MS + 2
    # The horizon is set once.
    for now_ms in (NOW_MS + 1, NOW_MS + DAY_MS - 1):
        again = compact_records(first, passing(keys, now_ms=now_ms), EmptyBatch.DELETE)
        assert bytes(again.data) == bytes(first.data)
    last = result(compact_records(first, passing(keys, now_ms=NOW_MS + DAY_MS), EmptyBatch.DELETE))
    assert pairs(last) == [(2, b"b", b"2")]
    assert last.header.delete_horizon_ms == NOW_MS + DAY_MS
    assert [r.timestamp for r in last.records()] == [NOW_MS + 2]


def test_compaction_keeps_log_append_time() -> None:
    batch = batch_of((b"a", b"1"), (b"a", None), (b"b", b"2"))
    data = bytearray(batch.data)
    assign_timestamp(data, TimestampType.LOG_APPEND_TIME, NOW_MS + 500)
    batch = Batch(data)
    found = result(compact_records(batch, passing(noted(batch)), EmptyBatch.DELETE))
    assert [(r.offset, r.timestamp) for r in found.records()] == [
        (1, NOW_MS + 500),
        (2, NOW_MS + 500),
    ]
    assert found.header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert found.header.max_timestamp == NOW_MS + 500


# Markers.


def marker() -> Batch:
    data = marker_batch(
        EndTxnMarker(commit=False, coordinator_epoch=6),
        producer_id=77,
        producer_epoch=3,
        timestamp=NOW_MS,
        base_offset=40,
        leader_epoch=4,
    )
    return Batch(data)


def test_marker_is_kept_until_its_delete_horizon() -> None:
    batch, keys = marker(), OffsetMap(2400, 0.9, SECRET)
    kept = compact_marker(batch, passing(keys), EmptyBatch.DELETE, deletable=False)
    assert bytes(kept.data) == bytes(batch.data)
    seen = result(compact_marker(batch, passing(keys), EmptyBatch.DELETE, deletable=True))
    assert seen.header.delete_horizon_ms == NOW_MS + DAY_MS
    assert seen.header.attributes & CONTROL
    record = read_control(seen)
    assert record is not None
    assert (record.offset, record.timestamp) == (40, NOW_MS)
    assert read_end_txn_marker(record) == EndTxnMarker(False, 6)
    early = passing(keys, now_ms=NOW_MS + DAY_MS - 1)
    assert bytes(compact_marker(seen, early, EmptyBatch.DELETE, deletable=True).data) == bytes(
        seen.data
    )
    late = passing(keys, now_ms=NOW_MS + DAY_MS)
    assert compact_marker(seen, late, EmptyBatch.DELETE, deletable=True).data == b""
    empty = result(compact_marker(seen, late, EmptyBatch.KEEP, deletable=True))
    assert (empty.header.is_control, empty.header.record_count) == (True, 0)
    assert compact_marker(empty, late, EmptyBatch.DELETE, deletable=True).data == b""
    again = compact_marker(empty, late, EmptyBatch.KEEP, deletable=True)
    assert bytes(again.data) == bytes(empty.data)


# Any batch.


@given(st.randoms(use_true_random=False), st.sampled_from(list(Compression)), st.integers(0, 30))
def test_compaction_equals_a_model_with_a_dict(
    random: Random, compression: Compression, until: int
) -> None:
    drawn: list[Pair] = [
        (
            random.choice([None, b"", b"a", b"b" * 70, b"c" * 9000]),
            random.choice([None, b"", b"x" * random.randrange(200)]),
        )
        for _ in range(random.randrange(1, 25))
    ]
    times = [random.choice([0, -1, NOW_MS, 2**40, 2**62]) for _ in drawn]
    batch = batch_of(*drawn, compression=compression, timestamps=times)
    keys = OffsetMap(24_000, 0.9, SECRET)
    latest: dict[bytes, int] = {}
    for offset, (key, _) in enumerate(drawn):
        if key is not None and offset < until:
            latest[key] = offset
    for offset in latest.values():
        note(keys, batch_of(drawn[offset], base_offset=offset))
    found = compact_records(batch, passing(keys, until=until), EmptyBatch.KEEP)
    stays = [
        record
        for record in records(batch)
        if record.offset >= until
        or (record.key is not None and latest[record.key] == record.offset)
    ]
    after = result(found)
    assert records(after) == stays
    assert found.records == len(stays)
    if stays:
        assert after.header.max_timestamp == max(-1, *(one.timestamp for one in stays))
        has_tombstone = any(one.value is None for one in stays)
        assert (after.header.delete_horizon_ms is not None) == has_tombstone


def test_copy_rejects_more_marks_than_records() -> None:
    batch = batch_of((b"a", b"1"))
    with pytest.raises(CorruptRecords):
        copy_retained(batch.record_bytes(), bytearray(2), 0, None, 0)
