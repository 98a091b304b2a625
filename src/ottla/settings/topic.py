# ruff: noqa: E501 - one line per row
"""The topic settings, with the broker settings that provide their defaults.

Every row can be changed per topic at runtime. A setting that the topic does not have comes from
the broker by `falls_back`, converted to the unit of the topic setting.
"""

from typing import Final

from ottla.settings import broker, compression, ignored, unsupported
from ottla.settings.config_def import (
    ConfigDef,
    Setting,
    in_hours,
    in_minutes,
    settings_in,
)
from ottla.settings.config_types import BOOLEAN, DOUBLE, INT, LIST, LONG, LONG_MAX, STRING
from ottla.settings.validators import THROTTLED_REPLICAS, at_least, between, one_of, some_of

WEEK_MS: Final = 604_800_000

# fmt: off
# Retention and compaction.
CLEANUP_POLICY = Setting("cleanup.policy", LIST, ("delete",), some_of("compact", "delete"), falls_back=(broker.LOG_CLEANUP_POLICY,),
    doc="Cleanup policy: `delete` removes segments that exceed the retention, `compact` keeps the latest record "
        "of each key. Both can be combined; empty keeps everything.")
RETENTION_MS = Setting("retention.ms", LONG, WEEK_MS, at_least(-1),
    falls_back=(broker.LOG_RETENTION_MS, in_minutes(broker.LOG_RETENTION_MINUTES), in_hours(broker.LOG_RETENTION_HOURS)),
    doc="Retention time in milliseconds with cleanup.policy=delete; -1 means unlimited. A segment is deleted "
        "when its newest record exceeds it.")
RETENTION_BYTES = Setting("retention.bytes", LONG, -1, falls_back=(broker.LOG_RETENTION_BYTES,),
    doc="Maximum size in bytes of a partition with cleanup.policy=delete; a negative value means unlimited. It "
        "applies per partition, not per topic.")
DELETE_RETENTION_MS = Setting("delete.retention.ms", LONG, 86_400_000, at_least(0), falls_back=(broker.LOG_CLEANER_DELETE_RETENTION_MS,),
    doc="Time in milliseconds that tombstones are retained in a compacted topic. A consumer must read the log "
        "faster than that to see all deletions.")
MIN_CLEANABLE_DIRTY_RATIO = Setting("min.cleanable.dirty.ratio", DOUBLE, 0.5, between(0, 1), falls_back=(broker.LOG_CLEANER_MIN_CLEANABLE_RATIO,),
    doc="Minimum ratio of dirty log to total log for the log to be compacted. A lower ratio saves disk space but "
        "costs more I/O.")
MIN_COMPACTION_LAG_MS = Setting("min.compaction.lag.ms", LONG, 0, at_least(0), falls_back=(broker.LOG_CLEANER_MIN_COMPACTION_LAG_MS,),
    doc="Minimum time in milliseconds that a record stays uncompacted.")
MAX_COMPACTION_LAG_MS = Setting("max.compaction.lag.ms", LONG, LONG_MAX, at_least(1), falls_back=(broker.LOG_CLEANER_MAX_COMPACTION_LAG_MS,),
    doc="Maximum time in milliseconds that a record stays uncompacted. Set it if deleted keys must be removed by "
        "a deadline.")
FILE_DELETE_DELAY_MS = Setting("file.delete.delay.ms", LONG, 60_000, at_least(0), falls_back=(broker.LOG_SEGMENT_DELETE_DELAY_MS,),
    doc="Time in milliseconds before the file of a deleted segment is removed, so that readers can finish.")
# Segments.
SEGMENT_BYTES = Setting("segment.bytes", INT, 1_073_741_824, at_least(1_048_576), falls_back=(broker.LOG_SEGMENT_BYTES,),
    doc="Segment size in bytes at which the log rolls a new segment. Smaller segments make retention and "
        "compaction more precise, but create more files.")
SEGMENT_MS = Setting("segment.ms", LONG, WEEK_MS, at_least(1), falls_back=(broker.LOG_ROLL_MS, in_hours(broker.LOG_ROLL_HOURS)),
    doc="Time in milliseconds after which the log rolls a new segment even if it is not full, so that old "
        "records can be deleted.")
SEGMENT_JITTER_MS = Setting("segment.jitter.ms", LONG, 0, at_least(0), falls_back=(broker.LOG_ROLL_JITTER_MS, in_hours(broker.LOG_ROLL_JITTER_HOURS)),
    doc="Maximum random time in milliseconds that is subtracted from segment.ms, so that partitions do not all "
        "roll at once.")
SEGMENT_INDEX_BYTES = Setting("segment.index.bytes", INT, 10_485_760, at_least(4), falls_back=(broker.LOG_INDEX_SIZE_MAX_BYTES,),
    doc="Maximum size in bytes of an index file. A full index closes its segment.")
INDEX_INTERVAL_BYTES = Setting("index.interval.bytes", INT, 4096, at_least(0), falls_back=(broker.LOG_INDEX_INTERVAL_BYTES,),
    doc="Number of log bytes between two index entries. Fewer bytes make lookups faster and indexes larger.")
PREALLOCATE = Setting("preallocate", BOOLEAN, False, falls_back=(broker.LOG_PREALLOCATE,),
    doc="Accepted for compatibility. No effect: Ottla does not preallocate segment files.")
# Records, flushing and replication.
MAX_MESSAGE_BYTES = Setting("max.message.bytes", INT, 1_048_588, at_least(0), falls_back=(broker.MESSAGE_MAX_BYTES,),
    doc="Maximum size in bytes of a record batch, after compression.")
COMPRESSION_TYPE = broker.COMPRESSION_TYPE.for_topic()
COMPRESSION_GZIP_LEVEL = compression.COMPRESSION_GZIP_LEVEL.for_topic()
COMPRESSION_LZ4_LEVEL = compression.COMPRESSION_LZ4_LEVEL.for_topic()
COMPRESSION_ZSTD_LEVEL = compression.COMPRESSION_ZSTD_LEVEL.for_topic()
MESSAGE_TIMESTAMP_TYPE = Setting("message.timestamp.type", STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"), falls_back=(broker.LOG_MESSAGE_TIMESTAMP_TYPE,),
    doc="Timestamp of records: `CreateTime` (set by the producer) or `LogAppendTime` (set by the broker).")
MESSAGE_TIMESTAMP_BEFORE_MAX_MS = Setting("message.timestamp.before.max.ms", LONG, LONG_MAX, at_least(0), falls_back=(broker.LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS,),
    doc="Maximum time in milliseconds that a record timestamp may be earlier than the broker's clock. The broker "
        "rejects older records.")
MESSAGE_TIMESTAMP_AFTER_MAX_MS = Setting("message.timestamp.after.max.ms", LONG, 3_600_000, at_least(0), falls_back=(broker.LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS,),
    doc="Maximum time in milliseconds that a record timestamp may be later than the broker's clock. The broker "
        "rejects such records.")
FLUSH_MESSAGES = Setting("flush.messages", LONG, LONG_MAX, at_least(1), falls_back=(broker.LOG_FLUSH_INTERVAL_MESSAGES,),
    doc="Number of records after which a partition is flushed to disk (fsync). With 1, the broker acknowledges records "
        "only after an fsync. By default, acknowledged records are in the page cache of every in-sync replica.")
FLUSH_MS = Setting("flush.ms", LONG, LONG_MAX, at_least(0), falls_back=(broker.LOG_FLUSH_INTERVAL_MS, broker.LOG_FLUSH_SCHEDULER_INTERVAL_MS),
    doc="Maximum time in milliseconds before a record is flushed to disk (fsync).")
MIN_INSYNC_REPLICAS = broker.MIN_INSYNC_REPLICAS.for_topic()
UNCLEAN_LEADER_ELECTION_ENABLE = broker.UNCLEAN_LEADER_ELECTION_ENABLE.for_topic()
# Replication throttling.
LEADER_REPLICATION_THROTTLED_REPLICAS = Setting("leader.replication.throttled.replicas", LIST, (), THROTTLED_REPLICAS,
    doc="Replicas whose leader is throttled, as partition:broker; `*` means all. Reassignment tools set it.")
FOLLOWER_REPLICATION_THROTTLED_REPLICAS = Setting("follower.replication.throttled.replicas", LIST, (), THROTTLED_REPLICAS,
    doc="Replicas whose follower is throttled, as partition:broker; `*` means all. Reassignment tools set it.")
# fmt: on

TOPIC: Final = ConfigDef(
    "topic",
    settings_in(globals()),
    ignored=ignored.TOPIC,
    unsupported=unsupported.TOPIC,
)
