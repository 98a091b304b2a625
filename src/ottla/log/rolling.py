"""When the next segment of a log begins.

Invariant: an offset that the indexes of a segment cannot hold never goes there. A segment without
records ends for no other reason, so that none stays empty before another one.
"""

from ottla.log.log_config import LogConfig
from ottla.log.segment import Segment


def roll_due(
    segment: Segment, rules: LogConfig, size: int, last_offset: int, timestamp: int, now_ms: int
) -> bool:
    """Whether batches go to the next segment: Kafka's rules.

    Time is counted in the records' own timestamps where the first batch has one, so that segments
    written in one go still end where a period ended.
    """
    if not segment.size or last_offset > segment.offset_max:
        return last_offset > segment.offset_max
    first = segment.first_timestamp
    waited_ms = (
        timestamp - first if first is not None and first >= 0 else now_ms - segment.created_ms
    )
    return (
        segment.size > rules.segment_bytes - size
        or waited_ms > rules.segment_ms - segment.jitter_ms
        or segment.offsets.is_full(rules.index_bytes_max)
        or segment.times.is_full(rules.index_bytes_max)
    )
