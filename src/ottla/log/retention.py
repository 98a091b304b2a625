"""Which segments of a log have to go.

Invariant: the decision changes nothing, and takes segments from the front only, so that no gap
opens. Nothing at or above the high watermark goes. The active segment is in the answer only when it
has records and all of the log goes: then it has to be rolled first, and an empty one stays, as
Kafka does it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.log.log_config import LogConfig


class SegmentFacts(NamedTuple):
    """What the decision needs of a segment."""

    end_offset: int  # the next one's base offset; of the active one the log's end
    size: int
    latest_ms: int  # its largest timestamp, or when the file was changed if there is none


def outlived(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    log_start: int,
    high_watermark: int,
    now_ms: int,
) -> int:
    """How many segments go, from the first on."""
    gone = _leading(segments, lambda one: one.end_offset <= log_start, high_watermark)
    # Below the log's start goes what is closed; the active one keeps the log's end.
    gone = min(gone, len(segments) - 1)
    if not config.delete:
        return gone
    if config.retention_ms >= 0:
        old = _leading(
            segments, lambda one: now_ms - one.latest_ms > config.retention_ms, high_watermark
        )
        gone = max(gone, old)
    if config.retention_bytes >= 0:
        gone = max(gone, _too_much(segments, config.retention_bytes, high_watermark))
    return gone


def _leading(
    segments: Sequence[SegmentFacts], due: Callable[[SegmentFacts], bool], high_watermark: int
) -> int:
    count = 0
    for segment in segments:
        active = count == len(segments) - 1
        if segment.end_offset > high_watermark or not due(segment) or (active and not segment.size):
            break
        count += 1
    return count


def _too_much(segments: Sequence[SegmentFacts], bytes_max: int, high_watermark: int) -> int:
    """As many as leave at least the limit behind: a partition is never cut below it."""
    excess = sum(segment.size for segment in segments) - bytes_max

    def due(segment: SegmentFacts) -> bool:
        nonlocal excess
        excess -= segment.size
        return excess >= 0

    return _leading(segments, due, high_watermark)
