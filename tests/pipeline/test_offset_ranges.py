"""The division of a read into tasks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.ids import PartitionIndex, TopicPartition
from ottla.pipeline.offset_ranges import OffsetRange, check_order, divided, limited, ranges
from ottla.pipeline.options import BadOption
from ottla.pipeline.pushdown import Pushdown

COUNTS = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=8)


def place(number: int) -> TopicPartition:
    return TopicPartition("t", PartitionIndex(number))


def test_batch_does_not_start_after_its_end() -> None:
    check_order({place(0): 5, place(1): 3}, {place(0): 5, place(1): 4})
    with pytest.raises(BadOption, match="t-1: the batch starts at offset 9, after its end 4"):
        check_order({place(0): 5, place(1): 9}, {place(0): 5, place(1): 4})


def whole(sizes: list[tuple[int, int]]) -> list[OffsetRange]:
    start = {place(n): first for n, (first, _) in enumerate(sizes)}
    end = {place(n): first + size for n, (first, size) in enumerate(sizes)}
    return ranges(start, end)


def offsets(parts: list[OffsetRange]) -> list[tuple[TopicPartition, int]]:
    return [(one.partition, n) for one in parts for n in range(one.start, one.end)]


@given(COUNTS, st.integers(1, 40) | st.none(), st.integers(1, 100) | st.none())
def test_tasks_cover_every_record_once(
    sizes: list[tuple[int, int]], tasks_min: int | None, records_max: int | None
) -> None:
    before = whole(sizes)
    parts = divided(before, tasks_min=tasks_min, records_max=records_max)
    assert offsets(parts) == offsets(before)
    assert all(one.size > 0 for one in parts)
    if records_max is not None:
        assert all(one.size <= records_max for one in parts)


def test_only_large_partitions_are_split() -> None:
    """Like Spark's Kafka connector: 3 tasks for 1,000 records, one for each small partition."""
    parts = divided(whole([(0, 10), (0, 1000), (5, 10)]), tasks_min=5, records_max=None)
    assert [(one.partition.partition, one.start, one.end) for one in parts] == [
        (0, 0, 10), (1, 0, 333), (1, 333, 666), (1, 666, 1000), (2, 5, 15),
    ]  # fmt: skip


def test_every_task_has_records() -> None:
    """If there are fewer records than requested tasks."""
    before = whole([(0, 2), (7, 1)])
    for tasks_min in (4, 5, 50):
        parts = divided(before, tasks_min=tasks_min, records_max=None)
        assert [(one.start, one.end) for one in parts] == [(0, 1), (1, 2), (7, 8)]


def test_default_is_one_task_per_partition() -> None:
    before = whole([(0, 10), (0, 1000)])
    assert divided(before, tasks_min=None, records_max=None) == before
    assert divided(before, tasks_min=2, records_max=None) == before
    assert divided([], tasks_min=4, records_max=None) == []


@given(COUNTS, st.integers(1, 600))
def test_limit_is_kept_and_no_partition_starves(sizes: list[tuple[int, int]], limit: int) -> None:
    before = whole(sizes)
    start = {one.partition: one.start for one in before}
    end = {one.partition: one.end for one in before}
    reached = limited(start, end, limit)
    assert reached.keys() == end.keys()
    taken = {one: reached[one] - start[one] for one in end}
    assert all(0 < taken[one] <= end[one] - start[one] for one in end)
    assert sum(taken.values()) <= max(limit, len(before)) + len(before)
    if sum(one.size for one in before) <= limit:
        assert reached == end


def test_limit_is_shared_by_waiting_records() -> None:
    start = {place(0): 0, place(1): 100}
    end = {place(0): 300, place(1): 200}
    assert limited(start, end, 40) == {place(0): 30, place(1): 110}


def test_narrowed_range_has_every_matching_record() -> None:
    one = OffsetRange(place(1), 10, 20)
    every = Pushdown()
    assert every.narrowed(one, {}) == one
    assert every.offsets_from(15).narrowed(one, {}) == OffsetRange(place(1), 15, 20)
    assert every.offsets_until(15).narrowed(one, {}) == OffsetRange(place(1), 10, 16)
    assert every.offsets_from(30).narrowed(one, {}).size == 0
    assert every.offsets_until(5).narrowed(one, {}).size == 0
    assert every.since(7).narrowed(one, {place(1): 12}) == OffsetRange(place(1), 12, 20)
    assert every.since(-1) == every  # records without a timestamp count as new
    assert every.since(7).since(-1).since(5) == every.since(7)
    assert every.among({1, 2}).among({1}).includes(place(1))
    assert not every.among({1, 2}).among({2}).includes(place(1))
