"""Decides which part of a log is dirty, whether it should be cleaned, and which log is next.

Invariant: the decision changes nothing. The cleanable part lies below the last stable offset, the
high watermark, the active segment, the first segment that is younger than min.compaction.lag.ms,
and the first segment with damage: records after it may be needed to hide records in it (rules C4
and C8). As in Kafka, it ends at a segment boundary.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from ottla.ids import Offset
from ottla.log.log_config import LogConfig

T = TypeVar("T")

RELATIVE_MAX = 2**31 - 1  # the largest relative offset in a segment


class CleanableSegment(NamedTuple):
    """What the decision needs of a segment."""

    base_offset: int
    end_offset: int  # the next base offset; the log end offset for the active segment
    size: int
    latest_ms: int  # its largest timestamp, or the file's modification time
    first_ms: int | None = None  # of its first batch; only needed for max.compaction.lag.ms
    damaged: bool = False


class Cleanable(NamedTuple):
    """The clean, dirty and cleanable parts of a log."""

    first_dirty_offset: Offset
    end_offset: Offset  # exclusive
    clean_bytes: int
    dirty_bytes: int  # cleanable bytes
    overdue_ms: int  # how long max.compaction.lag.ms is exceeded
    ratio_min: float
    reset: bool = False  # the checkpoint was out of range, so the whole log is dirty

    @property
    def ratio(self) -> float:
        """The cleanable share of the log: Kafka's dirty ratio."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Whether the dirty ratio or max.compaction.lag.ms requires a cleaning."""
        if self.end_offset <= self.first_dirty_offset or not self.dirty_bytes:
            return False
        return self.overdue_ms > 0 or self.ratio > self.ratio_min


class SourceSegment(NamedTuple):
    """A segment that is to be cleaned."""

    base_offset: int
    end_offset: int  # the next one's base offset
    size: int
    index_bytes: int
    time_index_bytes: int


def find_cleanable(
    segments: Sequence[CleanableSegment],
    config: LogConfig,
    *,
    first_dirty_offset: int | None,
    log_start: int,
    last_stable: int,
    high_watermark: int,
    now_ms: int,
) -> Cleanable:
    """The cleanable part of a log; `first_dirty_offset` is None if it was never cleaned."""
    active = segments[-1]
    first = log_start if first_dirty_offset is None else first_dirty_offset
    reset = not log_start <= first <= active.end_offset
    if reset:
        first = log_start
    dirty = [one for one in segments[:-1] if one.end_offset > first]
    bounds = [last_stable, high_watermark, active.base_offset]
    bounds += [one.base_offset for one in segments if one.damaged]
    if config.min_compaction_lag_ms > 0:
        oldest_ms = now_ms - config.min_compaction_lag_ms
        bounds += [one.base_offset for one in dirty if one.latest_ms > oldest_ms]
    bound = max(first, min(bounds))
    # The segment that holds the bound is not cleaned.
    end = max((one.base_offset for one in segments if one.base_offset <= bound), default=first)
    cleanable = [one for one in dirty if one.base_offset < end]
    return Cleanable(
        Offset(first),
        Offset(end),
        sum(one.size for one in segments if one.base_offset < first),
        sum(one.size for one in cleanable),
        _overdue_ms(dirty, config, now_ms),
        config.min_cleanable_dirty_ratio,
        reset,
    )


def _overdue_ms(dirty: Sequence[CleanableSegment], config: LogConfig, now_ms: int) -> int:
    times = [one.first_ms for one in dirty if one.first_ms is not None and one.first_ms > 0]
    if not times:
        return 0
    return max(0, now_ms - config.max_compaction_lag_ms - min(times))


def next_to_clean(candidates: Mapping[T, Cleanable]) -> T | None:
    """The log with the highest dirty ratio, of those that are due."""
    due = {name: dirt for name, dirt in candidates.items() if dirt.is_due}
    return max(due, key=lambda name: due[name].ratio, default=None)


def grouped(
    segments: Sequence[SourceSegment], *, segment_bytes: int, index_bytes_max: int
) -> list[list[SourceSegment]]:
    """Group neighbouring segments that become one, so that cleanings do not leave tiny segments.

    As in Kafka, the limits apply to the sizes before the cleaning, which only makes them smaller.
    """
    groups: list[list[SourceSegment]] = []
    for segment in segments:
        if groups and _fits(groups[-1], segment, segment_bytes, index_bytes_max):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return groups


def _fits(
    group: Sequence[SourceSegment], more: SourceSegment, segment_bytes: int, index_bytes_max: int
) -> bool:
    return (
        sum(one.size for one in group) + more.size <= segment_bytes
        and sum(one.index_bytes for one in group) + more.index_bytes <= index_bytes_max
        and sum(one.time_index_bytes for one in group) + more.time_index_bytes <= index_bytes_max
        and (not more.size or more.end_offset - 1 - group[0].base_offset <= RELATIVE_MAX)
    )
