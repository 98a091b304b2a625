"""The topic settings that a log uses.

Invariant: a LogConfig never changes; a changed topic configuration replaces it. The defaults are
Kafka's.
"""

from dataclasses import dataclass
from typing import Any, Self

from ottla.records.batch import DECOMPRESSED_BYTES_MAX
from ottla.settings import broker, topic
from ottla.settings.config import Config
from ottla.settings.config_def import Setting
from ottla.settings.config_types import LONG_MAX

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of a topic for its logs; below zero means unlimited where Kafka says so."""

    # Segments.
    segment_bytes: int = 1_073_741_824
    segment_ms: int = topic.WEEK_MS
    segment_jitter_ms: int = 0
    index_bytes_max: int = 10_485_760
    index_interval_bytes: int = 4096
    preallocate: bool = False  # accepted without effect: records files are not preallocated
    # Flushes.
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    # Deletion.
    delete: bool = True
    retention_ms: int = topic.WEEK_MS
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    # Compaction.
    compact: bool = False
    delete_retention_ms: int = _DAY_MS
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    # Searches by timestamp.
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX

    @classmethod
    def of(cls, config: Config, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Self:
        """The log settings of a topic configuration that already includes the broker defaults.

        The decompression limit is a setting of the broker.
        """
        assert config.table is topic.TOPIC
        policies = config[topic.CLEANUP_POLICY]
        taken: dict[str, Any] = {name: config[row] for name, row in _ROWS.items()}
        if "compact" in policies:
            # Only closed segments are cleaned, so segments must roll in time.
            taken["segment_ms"] = min(taken["segment_ms"], taken["max_compaction_lag_ms"])
        taken["decompressed_bytes_max"] = decompressed_bytes_max
        return cls(delete="delete" in policies, compact="compact" in policies, **taken)


def readable_bytes_max(config: Config) -> int:
    """The largest decompressed batch that a broker reads: at least the default limit.

    Some batches may have been written while the limit was larger, or by another broker.
    """
    assert config.table is broker.BROKER
    return max(DECOMPRESSED_BYTES_MAX, config[broker.MAX_DECOMPRESSED_MESSAGE_BYTES])


_ROWS: dict[str, Setting[Any]] = {
    "segment_bytes": topic.SEGMENT_BYTES,
    "segment_ms": topic.SEGMENT_MS,
    "segment_jitter_ms": topic.SEGMENT_JITTER_MS,
    "index_bytes_max": topic.SEGMENT_INDEX_BYTES,
    "index_interval_bytes": topic.INDEX_INTERVAL_BYTES,
    "preallocate": topic.PREALLOCATE,
    "flush_messages": topic.FLUSH_MESSAGES,
    "flush_ms": topic.FLUSH_MS,
    "retention_ms": topic.RETENTION_MS,
    "retention_bytes": topic.RETENTION_BYTES,
    "file_delete_delay_ms": topic.FILE_DELETE_DELAY_MS,
    "delete_retention_ms": topic.DELETE_RETENTION_MS,
    "min_cleanable_dirty_ratio": topic.MIN_CLEANABLE_DIRTY_RATIO,
    "min_compaction_lag_ms": topic.MIN_COMPACTION_LAG_MS,
    "max_compaction_lag_ms": topic.MAX_COMPACTION_LAG_MS,
}
