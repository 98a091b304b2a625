"""One segment, compared with a list of its batches."""

from random import Random

import pytest

from cases import each_case
from log.logs import FOLDER, made
from ottla.ids import LeaderEpoch, Offset, Position
from ottla.log.cached_reads import NotCached, read_blocking, read_page_cache
from ottla.log.disk import File
from ottla.log.log_config import LogConfig
from ottla.log.names import Kind
from ottla.log.segment.index import OffsetIndex, TimeIndex
from ottla.log.segment.roll import roll_due
from ottla.log.segment.segment import (
    FETCH_ENDS_MAX,
    RECENT_BATCHES_MAX,
    Extent,
    LocatedHeader,
    Segment,
)
from ottla.log.segment.timestamps import SearchPending, TimeSearch, batches_from
from ottla.records.errors import CorruptRecords
from ottla.testing.disk import SimulatedDisk

BASE = Offset(1000)
RULES = LogConfig()


def filled(count: int, seed: int = 0, interval: int = 300) -> tuple[Segment, list[LocatedHeader]]:
    """A segment with batches of several sizes and some gaps between them."""
    random = Random(seed)
    disk = SimulatedDisk()
    disk.make_directory(FOLDER)
    segment = Segment.create(disk, FOLDER, BASE, 0)
    offset = BASE + random.randrange(3)
    heads: list[LocatedHeader] = []
    for _ in range(count):
        records = random.randrange(1, 4)
        timestamp = random.randrange(1000)
        data = made(
            [bytes(random.randrange(60))] * records,
            base_offset=offset,
            leader_epoch=5,
            timestamp=timestamp,
        )
        head = LocatedHeader(
            Position(segment.size),
            Offset(offset),
            Offset(offset + records - 1),
            len(data),
            LeaderEpoch(5),
            timestamp + records - 1,
        )
        segment.append([data], [head], interval)
        heads.append(head)
        offset += records + (random.randrange(5) if random.random() < 0.2 else 0)
    return segment, heads


def reopened(segment: Segment) -> Segment:
    """The same segment opened as a closed one, with only its indexes in memory."""
    segment.index_time()
    return Segment(
        FOLDER,
        BASE,
        segment.file,
        size=segment.size,
        created_ms=0,
        offset_index=OffsetIndex(BASE, segment.offset_index.to_bytes()),
        time_index=TimeIndex(BASE, segment.time_index.to_bytes()),
    )


SIZES = [1, 2, 10, RECENT_BATCHES_MAX, RECENT_BATCHES_MAX + 1, 200]


@each_case("count", SIZES)
def test_batches_are_scanned_and_located(count: int) -> None:
    segment, heads = filled(count, seed=count)
    for one in (segment, reopened(segment)):
        assert list(one.located_headers(0, one.size, read_blocking)) == heads
        for offset in range(BASE - 1, heads[-1].last_offset + 3):
            expected = next((h.position for h in heads if h.last_offset >= offset), None)
            assert one.locate(offset, read_blocking) == expected


@each_case("count", SIZES)
def test_extent_has_whole_batches(count: int) -> None:
    segment, heads = filled(count, seed=count)
    random = Random(count)
    for one in (segment, reopened(segment)):
        for _ in range(150):
            offset = random.randrange(BASE, heads[-1].last_offset + 3)
            upper = random.choice([None, random.randrange(BASE, heads[-1].last_offset + 3)])
            limit = random.choice([0, 1, 100, 1000, 10**6])
            found = one.extent(offset, upper, limit, read_blocking)
            expected = expected_extent(heads, offset, upper, limit)
            assert (found and found[:2]) == (expected and expected[:2])
            if found is not None and found.next_offset is not None:
                end = found.position + found.size
                before = next(h for h in heads if h.position + h.size == end)
                behind = next(h for h in heads if h.position == end)
                assert before.last_offset < found.next_offset <= behind.base_offset


def test_reader_that_goes_on_needs_no_lookup() -> None:
    filled_segment, heads = filled(200, seed=3)
    segment = reopened(filled_segment)

    def never(file: File, position: int, size: int) -> bytes:
        raise AssertionError("the position is known")

    offset, fetches = int(BASE), 0
    while True:
        found = segment.extent(offset, None, 700, read_blocking)
        assert found is not None
        end = found.position + found.size
        if end == segment.size:
            break
        fetches += 1
        offset = next(h.base_offset for h in heads if h.position == end)
        assert found.next_offset == offset
        assert segment.locate(offset, never) == end
    assert fetches > FETCH_ENDS_MAX


def test_truncation_forgets_where_fetches_ended() -> None:
    filled_segment, heads = filled(100, seed=4)
    segment = reopened(filled_segment)
    found = segment.extent(heads[40].base_offset, None, 500, read_blocking)
    assert found is not None
    assert found.next_offset is not None
    end = found.position + found.size
    assert segment.locate(found.next_offset, read_blocking) == end
    segment.truncate_indexes(heads[40].position, heads[40].base_offset)
    assert segment.locate(found.next_offset, read_blocking) is None


def expected_extent(
    heads: list[LocatedHeader], offset: int, upper: int | None, limit: int
) -> Extent | None:
    chosen = [h for h in heads if h.last_offset >= offset]
    bound = next((h.position for h in heads if upper is not None and h.last_offset >= upper), None)
    chosen = [h for h in chosen if bound is None or h.position < bound]
    if not chosen:
        return None
    size = chosen[0].size
    for head in chosen[1:]:
        if size + head.size > limit:
            break
        size += head.size
    return Extent(chosen[0].position, size)


def first_from(segment: Segment, timestamp: int) -> LocatedHeader | None:
    search = TimeSearch(0)
    while True:
        try:
            return next(batches_from(segment, timestamp, 0, read_blocking, search), None)
        except SearchPending as unfinished:
            unfinished.work()


@each_case("count", SIZES)
def test_batches_are_found_by_timestamp(count: int) -> None:
    segment, heads = filled(count, seed=count)
    for one in (segment, reopened(segment)):
        for timestamp in range(-1, 1010, 7):
            expected = [h for h in heads if h.max_timestamp >= timestamp]
            assert first_from(one, timestamp) == next(iter(expected), None)


@pytest.mark.parametrize("count", [1, 10, 150])
def test_reactivated_segment_continues_its_indexes(count: int) -> None:
    segment, heads = filled(count, seed=count)
    again = reopened(segment)
    assert again.reactivate(300, read_blocking) == heads[-1]
    assert again.latest == segment.latest
    assert again.first_timestamp == heads[0].max_timestamp
    # Both segments add an index entry for the next batch, or neither does.
    more = made([bytes(100)], base_offset=heads[-1].last_offset + 1, timestamp=5000)
    for one in (segment, again):
        one.append_one([more], Offset(heads[-1].last_offset + 1), 5000, 300)
        one.index_time()
    assert again.offset_index.to_bytes() == segment.offset_index.to_bytes()
    assert again.time_index.last == segment.time_index.last


def test_read_of_uncached_bytes_raises_not_cached() -> None:
    disk = SimulatedDisk()
    disk.make_directory(FOLDER)
    segment = Segment.create(disk, FOLDER, BASE, 0)
    segment.append_one([made([b"x"], base_offset=BASE)], BASE, 0, 300)
    disk.cold = True
    assert segment.locate(BASE, read_page_cache) == 0
    closed = reopened(segment)
    with pytest.raises(NotCached) as cold:
        closed.locate(BASE, read_page_cache)
    assert (cold.value.file, cold.value.position) == (closed.file, 0)


def test_bytes_that_are_not_a_batch_are_corrupt() -> None:
    segment, heads = filled(3)
    for size in (heads[0].size - 1, heads[1].position + 20):
        with pytest.raises(CorruptRecords):
            list(segment.located_headers(0, size, read_blocking))
    with pytest.raises(CorruptRecords):
        list(segment.located_headers(7, segment.size, read_blocking))


def test_segment_rolls_before_an_offset_does_not_fit() -> None:
    segment, heads = filled(1)
    end = heads[-1].last_offset
    assert not roll_due(segment, RULES, 100, end + 1, 0, 0)
    assert not roll_due(segment, RULES, 100, BASE + 2**31 - 1, 0, 0)
    assert roll_due(segment, RULES, 100, BASE + 2**31, 0, 0)


def test_empty_segment_rolls_only_if_an_offset_does_not_fit() -> None:
    disk = SimulatedDisk()
    disk.make_directory(FOLDER)
    segment = Segment.create(disk, FOLDER, BASE, 0)
    old_ms = RULES.segment_ms + 1
    assert not roll_due(segment, RULES, RULES.segment_bytes + 1, BASE + 2**31 - 1, old_ms, old_ms)
    assert roll_due(segment, RULES, 100, BASE + 2**31, 0, 0)


def test_index_files_equal_kafka() -> None:
    disk = SimulatedDisk()
    disk.make_directory(FOLDER)
    segment = Segment.create(disk, FOLDER, BASE, 0)
    for number in range(5):
        data = made([bytes(40)], base_offset=BASE + number, timestamp=10 + number)
        segment.append_one([data], Offset(BASE + number), 10 + number, 150)
    assert segment.indexes_due
    segment.write_indexes(disk)
    size = segment.size // 5
    index = disk.open(segment.path(Kind.OFFSET_INDEX)).read(0, 100)
    assert index == b"".join(n.to_bytes(4, "big") + (n * size).to_bytes(4, "big") for n in (2, 4))
    times = disk.open(segment.path(Kind.TIME_INDEX)).read(0, 100)
    assert times == b"".join((10 + n).to_bytes(8, "big") + n.to_bytes(4, "big") for n in (2, 4))
    assert not disk.exists(segment.path(Kind.TXN_INDEX))
