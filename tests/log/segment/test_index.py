"""The offset index and the time index, compared with the bytes of Kafka and with a list."""

import random
from bisect import bisect_left, bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each_case
from ottla.ids import Offset, Position
from ottla.log.cached_reads import NotCached, read_blocking, read_page_cache
from ottla.log.disk import File
from ottla.log.errors import CorruptIndex
from ottla.log.segment.batch_headers import BrokenSegment
from ottla.log.segment.index import (
    BLOCK_ENTRIES,
    GUESSES_MAX,
    OffsetIndex,
    OffsetPosition,
    TimeIndex,
    TimestampOffset,
)
from ottla.testing.disk import SimulatedDisk, SimulatedFile

BASE = Offset(100)

# Written by Kafka 4.3.1, as are the lookups and truncations in the tests that use them.
KAFKA_INDEX = bytes.fromhex("00000004000010680000000b0000213400000f3c00011170")
KAFKA_TIME_INDEX = bytes.fromhex(
    "0000018bcfe5680000000004"
    "0000018bcfe569f40000000b"
    "0000018bcfe58f0f00000f3c"
)  # fmt: skip
OFFSETS = [(104, 4200), (111, 8500), (4000, 70000)]
TIMES = [(1700000000000, 104), (1700000000500, 111), (1700000009999, 4000)]

# One entry each, followed by zeros, as Kafka leaves the files after a crash.
KAFKA_UNCLEAN_INDEX = bytes.fromhex("0000000200001000" + 4 * "0000000000000000")
KAFKA_UNCLEAN_TIME_INDEX = bytes.fromhex(
    "000000000000000500000002" + 2 * "000000000000000000000000"
)


def offset_index(entries: list[tuple[int, int]], base: int = BASE) -> OffsetIndex:
    index = OffsetIndex(Offset(base))
    for offset, position in entries:
        index.append(Offset(offset), Position(position))
    return index


def time_index(entries: list[tuple[int, int]], base: int = BASE) -> TimeIndex:
    index = TimeIndex(Offset(base))
    for timestamp, offset in entries:
        assert index.append(timestamp, Offset(offset))
    return index


def test_index_bytes_equal_kafka() -> None:
    assert offset_index(OFFSETS).to_bytes() == KAFKA_INDEX
    assert time_index(TIMES).to_bytes() == KAFKA_TIME_INDEX


@each_case(
    ("asked", "found"),
    [(99, (100, 0)), (104, (104, 4200)), (110, (104, 4200)), (111, (111, 8500))],
)
def test_offset_lookup_equals_kafka(asked: int, found: tuple[int, int]) -> None:
    for index in (offset_index(OFFSETS), OffsetIndex(BASE, KAFKA_INDEX)):
        assert index.lookup(asked, read_blocking) == found
        assert index.lookup(99_999, read_blocking) == (4000, 70000)


def test_timestamp_lookup_equals_kafka() -> None:
    for index in (time_index(TIMES), TimeIndex(BASE, KAFKA_TIME_INDEX)):
        assert index.lookup(0, read_blocking) == (-1, 100)
        assert index.lookup(1700000000000, read_blocking) == (1700000000000, 104)
        assert index.lookup(1700000000499, read_blocking) == (1700000000000, 104)
        assert index.lookup(2**63 - 1, read_blocking) == (1700000009999, 4000)


@each_case(("offset", "left"), [(50, 0), (100, 0), (104, 0), (105, 1), (4000, 2), (5000, 3)])
def test_truncation_equals_kafka(offset: int, left: int) -> None:
    for index in (
        offset_index(OFFSETS),
        OffsetIndex(BASE, KAFKA_INDEX),
        time_index(TIMES),
        TimeIndex(BASE, KAFKA_TIME_INDEX),
    ):
        whole = index.to_bytes()
        index.truncate_to(offset)
        assert index.entries == left
        assert index.to_bytes() == whole[: index.size]


def test_last_entry_follows_appends_and_truncations() -> None:
    offsets, times = offset_index(OFFSETS), time_index(TIMES)
    assert offsets.last == OffsetPosition(Offset(4000), Position(70000))
    assert times.last == TimestampOffset(1700000009999, Offset(4000))
    offsets.truncate_to(4000)
    times.truncate_to(4000)
    assert (offsets.last, times.last) == (OFFSETS[1], TIMES[1])
    offsets.append(Offset(4001), Position(9000))
    assert times.append(1700000000501, Offset(4001))
    assert (offsets.entries, times.entries) == (3, 3)
    assert offsets.to_bytes() == offset_index([*OFFSETS[:2], (4001, 9000)]).to_bytes()
    assert times.to_bytes() == time_index([*TIMES[:2], (1700000000501, 4001)]).to_bytes()
    offsets.clear()
    times.clear()
    assert (offsets.last, times.last) == ((100, 0), (-1, 100))
    assert offsets.to_bytes() == times.to_bytes() == b""


def test_last_entry_at_or_before_a_position_is_found() -> None:
    index = OffsetIndex(BASE, KAFKA_INDEX)
    assert index.last_at_or_before(4199, read_blocking) == (100, 0)
    assert index.last_at_or_before(4200, read_blocking) == (104, 4200)
    assert index.last_at_or_before(69999, read_blocking) == (111, 8500)
    assert index.last_at_or_before(2**31 - 1, read_blocking) == (4000, 70000)


def in_a_file(data: bytes) -> SimulatedFile:
    file = SimulatedDisk().open("/x.index", create=True)
    file.write([data], 0)
    return file


def test_index_in_a_file_is_reopened_in_memory() -> None:
    index = OffsetIndex.in_file(BASE, in_a_file(KAFKA_INDEX))
    index.check(every_entry=True)
    assert (index.is_in_file, index.entries, index.last) == (True, 3, OFFSETS[2])
    assert index.lookup(2000, read_blocking) == (111, 8500)
    with pytest.raises(AssertionError, match="not truncated"):
        index.truncate_to(4000)
    index.reopen()
    index.truncate_to(4000)
    assert not index.is_in_file
    index.append(Offset(4000), Position(70000))
    assert index.to_bytes() == KAFKA_INDEX


@each_case("entries", [0, 1, 2, 511, 512, 513, 1024, 1025, 5000])
def test_lookup_in_a_file_equals_lookup_in_memory(entries: int) -> None:
    offsets = offset_index([(100 + n * 7, n * 4096) for n in range(1, entries + 1)])
    times = time_index([(1000 + n * n, 100 + n * 7) for n in range(1, entries + 1)])
    far_offsets = OffsetIndex.in_file(BASE, in_a_file(offsets.to_bytes()))
    far_times = TimeIndex.in_file(BASE, in_a_file(times.to_bytes()))
    far_offsets.check()
    far_times.check()
    assert (far_offsets.last, far_times.last) == (offsets.last, times.last)
    for n in {0, 1, 2, 511, 512, 513, 1023, 1024, 1025, entries - 1, entries, entries + 1}:
        for more in (-1, 0, 1):
            asked = (100 + n * 7 + more, n * 4096 + more, 1000 + n * n + more)
            for one, other in ((offsets, far_offsets), (far_offsets, offsets)):
                assert one.lookup(asked[0], read_blocking) == other.lookup(asked[0], read_blocking)
                assert one.last_at_or_before(asked[1], read_blocking) == other.last_at_or_before(
                    asked[1], read_blocking
                )
            assert times.lookup(asked[2], read_blocking) == far_times.lookup(
                asked[2], read_blocking
            )


def test_lookup_in_a_file_reads_few_small_blocks() -> None:
    entries = 262_144  # as in a segment of 1 GiB
    data = b"".join((n * 7).to_bytes(4, "big") + (n * 4000).to_bytes(4, "big")
                    for n in range(1, entries + 1))  # fmt: skip
    index = OffsetIndex.in_file(BASE, in_a_file(data))
    sizes: list[int] = []

    def counted(one: File, position: int, size: int) -> bytes:
        sizes.append(size)
        return one.read(position, size)

    assert index.lookup(100 + 7 * 200_001, counted) == (100 + 7 * 200_001, 4000 * 200_001)
    assert len(sizes) == 1  # the entries are evenly spaced
    assert set(sizes) == {BLOCK_ENTRIES * 8}


def test_lookup_of_uneven_entries_uses_binary_search() -> None:
    entries = [(100 + n, n) for n in range(1, 100_000)] + [(2**31, 2**31 - 1)]
    index = OffsetIndex.in_file(BASE, in_a_file(offset_index(entries).to_bytes()))
    sizes: list[int] = []

    def counted(one: File, position: int, size: int) -> bytes:
        sizes.append(size)
        return one.read(position, size)

    assert index.lookup(100 + 77_777, counted) == (100 + 77_777, 77_777)
    assert len(sizes) <= GUESSES_MAX + 8  # of 196 blocks


def test_lookup_in_an_uncached_file_raises_not_cached() -> None:
    disk = SimulatedDisk()
    file = disk.open("/x.index", create=True)
    file.write([KAFKA_INDEX], 0)
    index = OffsetIndex.in_file(BASE, file)
    disk.cold = True
    assert index.lookup(5000, read_page_cache) == (4000, 70000)  # the last entry is in memory
    with pytest.raises(NotCached) as cold:
        index.lookup(200, read_page_cache)
    assert (cold.value.file, cold.value.position, cold.value.size) == (file, 0, 24)


@each_case("left", [0, 1, 8, 23])
def test_truncated_index_file_breaks_its_segment(left: int) -> None:
    file = in_a_file(KAFKA_INDEX)
    index = OffsetIndex.in_file(BASE, file)
    file.truncate(left)
    for look in (lambda: index.lookup(200, read_blocking), index.to_bytes):
        with pytest.raises(BrokenSegment, match="truncated") as broken:
            look()
        assert broken.value.base_offset == BASE


def test_closed_index_rejects_entries() -> None:
    with pytest.raises(AssertionError):
        OffsetIndex(BASE, KAFKA_INDEX).append(Offset(5000), Position(80000))
    with pytest.raises(AssertionError):
        TimeIndex(BASE, KAFKA_TIME_INDEX).append(1700000010000, Offset(5000))


@each_case("entry", [(4000, 70001), (3999, 70001), (4001, 70000), (4001, 0)])
def test_offset_entry_that_does_not_increase_asserts(entry: tuple[int, int]) -> None:
    with pytest.raises(AssertionError):
        offset_index([*OFFSETS, entry])


def test_equal_time_is_skipped_and_a_smaller_one_asserts() -> None:
    index = time_index(TIMES)
    assert not index.append(1700000009999, Offset(4000))
    assert not index.append(1700000009999, Offset(4005))
    assert index.to_bytes() == KAFKA_TIME_INDEX
    with pytest.raises(AssertionError):
        index.append(1700000009998, Offset(4006))
    with pytest.raises(AssertionError):
        index.append(1700000010000, Offset(3999))


def test_records_without_timestamps_leave_the_time_index_empty() -> None:
    index = TimeIndex(BASE)
    assert not index.append(-1, Offset(100))
    assert index.entries == 0


def test_relative_offset_must_fit_into_31_bits() -> None:
    index = OffsetIndex(BASE)
    index.append(Offset(100 + 2**31 - 1), Position(1))
    assert index.lookup(2**40, read_blocking) == (100 + 2**31 - 1, 1)
    TimeIndex(BASE).append(1, Offset(100 + 2**31 - 1))
    for beyond in (Offset(99), Offset(100 + 2**31)):
        with pytest.raises(AssertionError):
            OffsetIndex(BASE).append(beyond, Position(1))
        with pytest.raises(AssertionError):
            TimeIndex(BASE).append(1, beyond)


def test_time_index_is_full_one_entry_before_its_size() -> None:
    # One entry is reserved for the last timestamp, which is indexed when the segment rolls.
    assert [offset_index(OFFSETS[:n]).is_full(31) for n in range(4)] == [False, False, False, True]
    assert [time_index(TIMES[:n]).is_full(47) for n in range(4)] == [False, False, True, True]


@pytest.mark.parametrize("every_entry", [False, True])
def test_valid_indexes_pass_the_check(every_entry: bool) -> None:
    for index in (
        OffsetIndex(BASE),
        OffsetIndex(BASE, b""),
        OffsetIndex(BASE, KAFKA_INDEX),
        OffsetIndex(BASE, KAFKA_INDEX[:8]),
        TimeIndex(BASE),
        TimeIndex(BASE, KAFKA_TIME_INDEX),
        TimeIndex(BASE, bytes(12)),  # a first record of 1970, at the base offset
    ):
        index.check(every_entry=every_entry)


@each_case("every_entry", [False, True])
@each_case(
    "index",
    [
        pytest.param(OffsetIndex(Offset(7), KAFKA_UNCLEAN_INDEX), id="zeros after an offset"),
        pytest.param(TimeIndex(Offset(7), KAFKA_UNCLEAN_TIME_INDEX), id="zeros after a time"),
        pytest.param(OffsetIndex(BASE, bytes(8)), id="one zero offset"),
        pytest.param(OffsetIndex(BASE, bytes(80)), id="zero offsets"),
        pytest.param(TimeIndex(BASE, bytes(24)), id="zero times"),
        pytest.param(OffsetIndex(BASE, KAFKA_INDEX[:-1]), id="part of an offset entry"),
        pytest.param(TimeIndex(BASE, KAFKA_TIME_INDEX[:-5]), id="part of a time entry"),
        pytest.param(OffsetIndex(BASE, b"\xff" * 8), id="an offset below the base"),
        pytest.param(TimeIndex(BASE, bytes(7) + b"\1" + b"\xff" * 4), id="a time below the base"),
        pytest.param(OffsetIndex(BASE, KAFKA_INDEX[16:] + KAFKA_INDEX[:8]), id="swapped"),
    ],
)
def test_damaged_index_is_detected(index: OffsetIndex | TimeIndex, every_entry: bool) -> None:
    with pytest.raises(CorruptIndex):
        index.check(every_entry=every_entry)


def test_full_check_detects_damage_in_the_middle() -> None:
    hole = KAFKA_INDEX[:8] + bytes(8) + KAFKA_INDEX[16:]
    with pytest.raises(CorruptIndex):
        OffsetIndex(BASE, hole).check(every_entry=True)
    hole = KAFKA_TIME_INDEX[:12] + bytes(12) + KAFKA_TIME_INDEX[24:]
    with pytest.raises(CorruptIndex):
        TimeIndex(BASE, hole).check(every_entry=True)


@given(
    steps=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 9000)), max_size=60),
    asked=st.integers(0, 3500),
    cut=st.integers(0, 3500),
)
def test_offset_index_equals_a_sorted_list(
    steps: list[tuple[int, int]], asked: int, cut: int
) -> None:
    entries: list[tuple[int, int]] = []
    offset, position = int(BASE), 0
    for more_records, more_bytes in steps:
        offset, position = offset + more_records, position + more_bytes
        entries.append((offset, position))
    growing = offset_index(entries)
    for index in (growing, OffsetIndex(BASE, growing.to_bytes())):
        index.check(every_entry=True)
        at = bisect_right(entries, (asked, 2**31))
        assert index.lookup(asked, read_blocking) == (entries[at - 1] if at else (BASE, 0))
        earlier = [entry for entry in entries if entry[1] <= asked]
        assert index.last_at_or_before(asked, read_blocking) == (
            earlier[-1] if earlier else (BASE, 0)
        )
        index.truncate_to(cut)
        kept = entries[: bisect_left(entries, (cut, 0))]
        assert index.to_bytes() == offset_index(kept).to_bytes()
        assert index.last == (kept[-1] if kept else (BASE, 0))


@given(
    steps=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20)), max_size=60),
    asked=st.integers(0, 200),
    cut=st.integers(90, 700),
)
def test_time_index_equals_a_sorted_list(
    steps: list[tuple[int, int]], asked: int, cut: int
) -> None:
    growing = TimeIndex(BASE)
    entries: list[tuple[int, int]] = []
    timestamp, offset = 0, int(BASE)
    for later, more_records in steps:
        timestamp, offset = timestamp + later, offset + more_records
        if growing.append(timestamp, Offset(offset)):
            entries.append((timestamp, offset))
    assert [time for time, _ in entries] == sorted({time for time, _ in entries})
    for index in (growing, TimeIndex(BASE, growing.to_bytes())):
        index.check(every_entry=True)
        at = bisect_right(entries, (asked, 2**40))
        assert index.lookup(asked, read_blocking) == (entries[at - 1] if at else (-1, BASE))
        index.truncate_to(cut)
        kept = [entry for entry in entries if entry[1] < cut]
        assert index.to_bytes() == time_index(kept).to_bytes()


def test_lookup_in_a_large_index() -> None:
    entries = [(100 + n * 7, n * 4096) for n in range(1, 5000)]
    index = OffsetIndex(BASE, offset_index(entries).to_bytes())
    drawn = random.Random(5)
    for offset in (drawn.randrange(107, 100 + 7 * 5000) for _ in range(300)):
        found = index.lookup(offset, read_blocking)
        assert found.offset <= offset < found.offset + 7 or found == entries[-1]
