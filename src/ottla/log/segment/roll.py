"""Decides when the active segment is closed and the next one begins."""

from ottla.log.log_config import LogConfig
from ottla.log.segment.segment import RELATIVE_MAX, Segment


def roll_due(
    segment: Segment, config: LogConfig, size: int, last_offset: int, timestamp: int, now_ms: int
) -> bool:
    """Whether batches of `size` bytes go to the next segment, by Kafka's rules.

    segment.ms is compared with the timestamps of the records if the first batch has one. So
    segments that are written in one go still end where a period ends. An empty segment rolls only
    if its relative offsets cannot hold `last_offset`.
    """
    if not segment.size or last_offset > segment.offset_max:
        return last_offset > segment.offset_max
    first = segment.first_timestamp
    waited_ms = (
        timestamp - first if first is not None and first >= 0 else now_ms - segment.created_ms
    )
    return (
        segment.size > config.segment_bytes - size
        or waited_ms > config.segment_ms - segment.jitter_ms
        or segment.offset_index.is_full(config.index_bytes_max)
        or segment.time_index.is_full(config.index_bytes_max)
    )


def is_full(segment: Segment, config: LogConfig, size: int, last_offset: int) -> bool:
    """Whether batches cannot go to this segment: its offsets, positions and indexes are limited."""
    return (
        last_offset > segment.offset_max
        or segment.size + size > RELATIVE_MAX
        or segment.offset_index.is_full(config.index_bytes_max)
        or segment.time_index.is_full(config.index_bytes_max)
    )
