"""Which part of a log is dirty, whether it is worth a cleaning, and which log comes next.

Invariant: the decision changes nothing. What may be cleaned lies below the last stable offset, the
high watermark, the active segment, the first segment that is younger than min.compaction.lag.ms,
and the first segment with a damaged batch: behind it nothing may go that still hides one of its
records (rules C4 and C8). It ends where a segment begins, as Kafka has it.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from ottla.ids import Offset
from ottla.log.log_config import LogConfig

T = TypeVar("T")

RELATIVE_MAX = 2**31 - 1  # how far the offsets of a segment reach, counted from its first


class CleanableSegment(NamedTuple):
    """What the decision needs of a segment."""

    base_offset: int
    end_offset: int  # the next one's base offset; of the active one the log's end
    size: int
    latest_ms: int  # its largest timestamp, or when the file was changed if there is none
    first_ms: int | None = None  # of its first batch; needed under max.compaction.lag.ms alone
    damaged: bool = False


class Cleanable(NamedTuple):
    """What a cleaning would find in a log."""

    first_dirty_offset: Offset
    end_offset: Offset  # the first that may not be cleaned
    clean_bytes: int
    dirty_bytes: int  # that may be cleaned
    overdue_ms: int  # how much longer than max.compaction.lag.ms a record has waited
    ratio_min: float
    reset: bool = False  # the offset in the checkpoint was wrong, so all of the log is dirty

    @property
    def ratio(self) -> float:
        """The share of the log that is dirty and may be cleaned."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Whether the log is worth a cleaning, or has to have one."""
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
    """What there is to clean, given how far the log was cleaned before; None is not at all."""
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
    """The log with the largest share of dirt, of those that are due."""
    due = {name: dirt for name, dirt in candidates.items() if dirt.is_due}
    return max(due, key=lambda name: due[name].ratio, default=None)


def grouped(
    segments: Sequence[SourceSegment], *, segment_bytes: int, index_bytes_max: int
) -> list[list[SourceSegment]]:
    """Which neighbours become one segment, so that cleaning does not leave ever smaller ones.

    The limits hold for what goes in, and cleaning takes away: Kafka's rule.
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
