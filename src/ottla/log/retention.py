"""Decides which segments retention deletes.

Invariant: the decision changes nothing and deletes from the front only. Nothing at or above the
high watermark is deleted. The active segment is included only if it has records and the whole log
goes; it is then rolled first, and an empty segment stays, as in Kafka.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.log.log_config import LogConfig


class SegmentFacts(NamedTuple):
    """What the decision needs of a segment."""

    end_offset: int  # the next base offset; the log end offset for the active segment
    size: int
    latest_ms: int  # its largest timestamp, or the file's modification time


def deletable_segments(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    log_start: int,
    high_watermark: int,
    now_ms: int,
) -> int:
    """The number of segments to delete, from the first one on."""
    gone = _count_leading(segments, lambda one: one.end_offset <= log_start, high_watermark)
    # Below the log start offset only closed segments go; the active one keeps the log end.
    gone = min(gone, len(segments) - 1)
    if not config.delete:
        return gone
    if config.retention_ms >= 0:
        old = _count_leading(
            segments, lambda one: now_ms - one.latest_ms > config.retention_ms, high_watermark
        )
        gone = max(gone, old)
    if config.retention_bytes >= 0:
        gone = max(gone, _over_size(segments, config.retention_bytes, high_watermark))
    return gone


def _count_leading(
    segments: Sequence[SegmentFacts], due: Callable[[SegmentFacts], bool], high_watermark: int
) -> int:
    count = 0
    for segment in segments:
        active = count == len(segments) - 1
        if segment.end_offset > high_watermark or not due(segment) or (active and not segment.size):
            break
        count += 1
    return count


def _over_size(segments: Sequence[SegmentFacts], bytes_max: int, high_watermark: int) -> int:
    """The number of segments that exceed retention.bytes; the rest is never below the limit."""
    excess = sum(segment.size for segment in segments) - bytes_max

    def due(segment: SegmentFacts) -> bool:
        nonlocal excess
        excess -= segment.size
        return excess >= 0

    return _count_leading(segments, due, high_watermark)
