"""Retention as a table: which segments are deleted."""

from cases import each_case
from ottla.log.log_config import LogConfig
from ottla.log.retention import SegmentFacts, deletable_segments

# Four segments of 100 bytes; the last one is active.
SEGMENTS = [
    SegmentFacts(10, 100, 1_000),
    SegmentFacts(20, 100, 2_000),
    SegmentFacts(30, 100, 1_500),
    SegmentFacts(35, 100, 4_000),
]
FOREVER = LogConfig(retention_ms=-1)


def gone(
    rules: LogConfig = FOREVER, *, start: int = 0, high_watermark: int = 35, now_ms: int = 0
) -> int:
    return deletable_segments(
        SEGMENTS, rules, log_start=start, high_watermark=high_watermark, now_ms=now_ms
    )


@each_case(
    ("now_ms", "count"),
    [(0, 0), (1_500, 0), (1_501, 1), (2_500, 1), (2_501, 3), (4_500, 3), (4_501, 4)],
)
def test_retention_by_time(now_ms: int, count: int) -> None:
    """A segment is kept while an earlier one is, however old it is."""
    assert gone(LogConfig(retention_ms=500), now_ms=now_ms) == count


@each_case(
    ("bytes_max", "count"), [(-1, 0), (400, 0), (301, 0), (300, 1), (199, 2), (100, 3), (0, 4)]
)
def test_retention_by_size(bytes_max: int, count: int) -> None:
    rules = LogConfig(retention_ms=-1, retention_bytes=bytes_max)
    assert gone(rules) == count


@each_case(("start", "count"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (34, 3), (35, 3)])
def test_segments_below_the_log_start_are_deleted(start: int, count: int) -> None:
    assert gone(start=start) == count
    assert gone(LogConfig(delete=False, compact=True), start=start) == count


def test_segments_at_the_high_watermark_are_kept() -> None:
    rules = LogConfig(retention_ms=0, retention_bytes=0)
    assert [gone(rules, high_watermark=mark, now_ms=10**6) for mark in (0, 9, 10, 29, 30, 35)] == [
        0, 0, 1, 2, 3, 4,
    ]  # fmt: skip


def test_empty_active_segment_stays() -> None:
    segments = [SegmentFacts(10, 100, 0), SegmentFacts(10, 0, 0)]
    rules = LogConfig(retention_ms=0, retention_bytes=0)
    assert deletable_segments(segments, rules, log_start=0, high_watermark=10, now_ms=10**6) == 1
    assert (
        deletable_segments(segments[1:], rules, log_start=0, high_watermark=10, now_ms=10**6) == 0
    )


def test_compacted_topics_keep_old_segments() -> None:
    rules = LogConfig(compact=True, delete=False, retention_ms=0, retention_bytes=0)
    assert gone(rules, now_ms=10**9) == 0
