"""The cleanable part of a log, and the choice of the log that is cleaned next."""

import pytest

from cases import each_case
from ottla.ids import Offset
from ottla.log.cleaner.cleanable import (
    RELATIVE_MAX,
    Cleanable,
    CleanableSegment,
    SourceSegment,
    find_cleanable,
    grouped,
    next_to_clean,
)
from ottla.log.log_config import LogConfig

RULES = LogConfig(compact=True, delete=False)
NOW_MS = 100_000

# Four segments of ten offsets and the active one, each a second younger than the one before.
SEGMENTS = [
    CleanableSegment(base, base + 10, 100, 90_000 + 100 * base, 89_000 + 100 * base)
    for base in range(0, 50, 10)
]


def cleanable_of(
    segments: list[CleanableSegment] = SEGMENTS,
    rules: LogConfig = RULES,
    *,
    first: int | None = None,
    log_start: int = 0,
    last_stable: int = 50,
    high_watermark: int = 50,
    now_ms: int = NOW_MS,
) -> Cleanable:
    return find_cleanable(
        segments,
        rules,
        first_dirty_offset=first,
        log_start=log_start,
        last_stable=last_stable,
        high_watermark=high_watermark,
        now_ms=now_ms,
    )


def test_active_segment_is_not_cleanable() -> None:
    dirt = cleanable_of()
    assert dirt[:4] == (0, 40, 0, 400)
    assert dirt.ratio == 1.0
    assert dirt.is_due
    assert not dirt.reset


@each_case(
    ("bounds", "end"),
    [
        ({"last_stable": 39}, 30),
        ({"last_stable": 30}, 30),
        ({"last_stable": 29}, 20),
        ({"high_watermark": 15}, 10),
        ({"high_watermark": 35, "last_stable": 12}, 10),
        ({"last_stable": 5}, 0),
    ],
)
def test_c8_cleaning_stays_below_the_last_stable_offset(bounds: dict[str, int], end: int) -> None:
    dirt = cleanable_of(**bounds)  # pyright: ignore[reportArgumentType]
    assert dirt.end_offset == end
    assert dirt.dirty_bytes == 10 * end
    assert dirt.is_due == (end > 0)


@each_case(
    ("lag_ms", "end"), [(0, 40), (6999, 40), (7000, 40), (7001, 30), (9001, 10), (10_001, 0)]
)
def test_segment_within_min_compaction_lag_is_kept(lag_ms: int, end: int) -> None:
    dirt = cleanable_of(rules=LogConfig(compact=True, min_compaction_lag_ms=lag_ms))
    assert dirt.end_offset == end


def test_c4_segments_after_damage_are_not_cleaned() -> None:
    """A tombstone after the damaged segment may delete one of its records."""
    segments = list(SEGMENTS)
    segments[1] = segments[1]._replace(damaged=True)
    assert cleanable_of(segments).end_offset == 10
    late = cleanable_of(segments, first=30)
    assert late.end_offset <= late.first_dirty_offset
    assert not late.is_due


def test_dirty_ratio_counts_cleanable_bytes() -> None:
    dirt = cleanable_of(first=20, last_stable=39)
    assert dirt[:4] == (20, 30, 200, 100)
    assert dirt.ratio == pytest.approx(1 / 3)
    assert not dirt.is_due
    assert cleanable_of(first=20).ratio == 0.5
    assert not cleanable_of(first=20).is_due  # the dirty ratio must exceed one half
    assert cleanable_of(first=19).is_due


def test_partial_cleaning_continues_inside_a_segment() -> None:
    dirt = cleanable_of(first=15)
    assert dirt[:4] == (15, 40, 200, 300)
    assert dirt.is_due


def test_max_compaction_lag_overrides_the_dirty_ratio() -> None:
    rules = LogConfig(compact=True, max_compaction_lag_ms=9000, min_cleanable_dirty_ratio=1.0)
    assert cleanable_of(rules=rules, first=20, now_ms=100_000).overdue_ms == 0
    assert not cleanable_of(rules=rules, first=20, now_ms=100_000).is_due
    late = cleanable_of(rules=rules, first=20, now_ms=100_001)
    assert late.overdue_ms == 1
    assert late.is_due
    # Records that must not be cleaned are not cleaned, however old they are.
    assert not cleanable_of(rules=rules, first=20, now_ms=200_000, last_stable=25).is_due
    # Without timestamps the age of a segment is unknown.
    unknown = [one._replace(first_ms=None) for one in SEGMENTS]
    assert not cleanable_of(unknown, rules, first=20, now_ms=200_000).is_due


@pytest.mark.parametrize(("first", "log_start"), [(51, 0), (51, 7), (3, 7)])
def test_invalid_cleaner_checkpoint_makes_the_log_dirty(first: int, log_start: int) -> None:
    dirt = cleanable_of(first=first, log_start=log_start)
    assert dirt.reset
    assert dirt.first_dirty_offset == log_start


def test_clean_or_empty_log_is_not_cleaned() -> None:
    assert not cleanable_of(first=40).is_due
    assert cleanable_of(first=40)[:4] == (40, 40, 400, 0)
    assert not cleanable_of(first=50).is_due
    empty = [CleanableSegment(0, 0, 0, 0)]
    dirt = cleanable_of(empty, last_stable=0, high_watermark=0)
    assert dirt[:4] == (0, 0, 0, 0)
    assert dirt.ratio == 0.0
    assert not dirt.is_due


def made(dirty: int, clean: int, *, overdue_ms: int = 0) -> Cleanable:
    return Cleanable(Offset(0), Offset(10), clean, dirty, overdue_ms, 0.5)


def test_dirtiest_due_log_is_next() -> None:
    assert next_to_clean({}) is None
    assert next_to_clean({"a": made(5, 5), "b": made(0, 10)}) is None
    logs = {"a": made(60, 40), "b": made(90, 10), "c": made(70, 30)}
    assert next_to_clean(logs) == "b"
    assert next_to_clean({"a": made(10, 90), "b": made(5, 95, overdue_ms=1)}) == "b"


def source(base: int, end: int, size: int, index: int = 0, times: int = 0) -> SourceSegment:
    return SourceSegment(base, end, size, index, times)


def bases(groups: list[list[SourceSegment]]) -> list[list[int]]:
    return [[one.base_offset for one in group] for group in groups]


def test_adjacent_segments_are_grouped_by_size() -> None:
    sizes = [40, 60, 1, 100, 120, 0, 30, 70]
    segments = [source(10 * n, 10 * n + 10, size) for n, size in enumerate(sizes)]
    groups = grouped(segments, segment_bytes=100, index_bytes_max=1000)
    assert bases(groups) == [[0, 10], [20], [30], [40], [50, 60, 70]]


@pytest.mark.parametrize("which", ["index_bytes", "time_index_bytes"])
def test_groups_are_limited_by_index_size(which: str) -> None:
    segments = [source(n, n + 1, 1)._replace(**{which: 40}) for n in range(5)]
    groups = grouped(segments, segment_bytes=100, index_bytes_max=80)
    assert bases(groups) == [[0, 1], [2, 3], [4]]


def test_groups_are_limited_by_relative_offsets() -> None:
    far = RELATIVE_MAX
    segments = [source(0, 10, 1), source(10, far + 1, 1), source(far + 1, far + 2, 1)]
    assert bases(grouped(segments, segment_bytes=100, index_bytes_max=80)) == [[0, 10], [far + 1]]
    # A segment without records uses no offsets.
    empty = [source(0, 10, 1), source(10, far + 100, 0)]
    assert bases(grouped(empty, segment_bytes=100, index_bytes_max=80)) == [[0, 10]]
