# ruff: noqa: E501 - a row reads best with its facts on one line.
"""The topic's settings, one row each, with the broker settings that answer when it has none.

Invariant: every row can be changed at any time for one topic; what a topic does not set comes
from its broker, by `falls_back`, and a fallback of another unit is converted.
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
    doc="What happens to old data: `delete` drops whole segments past retention, `compact` keeps the "
        "newest record of each key, both does both, empty keeps all.")
RETENTION_MS = Setting("retention.ms", LONG, WEEK_MS, at_least(-1),
    falls_back=(broker.LOG_RETENTION_MS, in_minutes(broker.LOG_RETENTION_MINUTES), in_hours(broker.LOG_RETENTION_HOURS)),
    doc="Milliseconds that records are kept under the policy `delete`; -1 is for ever. A segment goes when "
        "its newest record is that old.")
RETENTION_BYTES = Setting("retention.bytes", LONG, -1, falls_back=(broker.LOG_RETENTION_BYTES,),
    doc="The size to which a partition is cut down under the policy `delete`; below zero is no limit. "
        "Multiply by the partitions for the topic.")
DELETE_RETENTION_MS = Setting("delete.retention.ms", LONG, 86_400_000, at_least(0), falls_back=(broker.LOG_CLEANER_DELETE_RETENTION_MS,),
    doc="Milliseconds for which the mark of a deleted key stays in a compacted topic. A consumer that "
        "reads from the start has to be faster than that.")
MIN_CLEANABLE_DIRTY_RATIO = Setting("min.cleanable.dirty.ratio", DOUBLE, 0.5, between(0, 1), falls_back=(broker.LOG_CLEANER_MIN_CLEANABLE_RATIO,),
    doc="The share of the log that must be uncompacted before it is compacted again. Lower saves disk and "
        "costs reading.")
MIN_COMPACTION_LAG_MS = Setting("min.compaction.lag.ms", LONG, 0, at_least(0), falls_back=(broker.LOG_CLEANER_MIN_COMPACTION_LAG_MS,),
    doc="Milliseconds for which every record stays, whatever its key.")
MAX_COMPACTION_LAG_MS = Setting("max.compaction.lag.ms", LONG, LONG_MAX, at_least(1), falls_back=(broker.LOG_CLEANER_MAX_COMPACTION_LAG_MS,),
    doc="Milliseconds after which a record is compacted even if little else is due. Set it where deleted "
        "keys have to be gone by a deadline.")
FILE_DELETE_DELAY_MS = Setting("file.delete.delay.ms", LONG, 60_000, at_least(0), falls_back=(broker.LOG_SEGMENT_DELETE_DELAY_MS,),
    doc="Milliseconds that the file of a deleted segment stays, for readers that still have it open.")
# Segments.
SEGMENT_BYTES = Setting("segment.bytes", INT, 1_073_741_824, at_least(1_048_576), falls_back=(broker.LOG_SEGMENT_BYTES,),
    doc="The size at which a segment is closed and the next begun. Small ones let retention and "
        "compaction work more finely and make more files.")
SEGMENT_MS = Setting("segment.ms", LONG, WEEK_MS, at_least(1), falls_back=(broker.LOG_ROLL_MS, in_hours(broker.LOG_ROLL_HOURS)),
    doc="Milliseconds after which a segment is closed even if it is small, so that old data can go.")
SEGMENT_JITTER_MS = Setting("segment.jitter.ms", LONG, 0, at_least(0), falls_back=(broker.LOG_ROLL_JITTER_MS, in_hours(broker.LOG_ROLL_JITTER_HOURS)),
    doc="Up to so many milliseconds are taken by chance off segment.ms, so that many partitions do not "
        "close their segments at once.")
SEGMENT_INDEX_BYTES = Setting("segment.index.bytes", INT, 10_485_760, at_least(4), falls_back=(broker.LOG_INDEX_SIZE_MAX_BYTES,),
    doc="The largest index of a segment. A full one closes the segment.")
INDEX_INTERVAL_BYTES = Setting("index.interval.bytes", INT, 4096, at_least(0), falls_back=(broker.LOG_INDEX_INTERVAL_BYTES,),
    doc="Bytes of log between two index entries. Fewer find an offset in fewer reads and make larger indexes.")
PREALLOCATE = Setting("preallocate", BOOLEAN, False, falls_back=(broker.LOG_PREALLOCATE,),
    doc="Kept for topics that set it; without effect, for a segment's file ends where its records do.")
# What is written, and when it is safe.
MAX_MESSAGE_BYTES = Setting("max.message.bytes", INT, 1_048_588, at_least(0), falls_back=(broker.MESSAGE_MAX_BYTES,),
    doc="The largest record batch the topic takes, as it arrives, compressed.")
COMPRESSION_TYPE = broker.COMPRESSION_TYPE.for_topic()
COMPRESSION_GZIP_LEVEL = compression.COMPRESSION_GZIP_LEVEL.for_topic()
COMPRESSION_LZ4_LEVEL = compression.COMPRESSION_LZ4_LEVEL.for_topic()
COMPRESSION_ZSTD_LEVEL = compression.COMPRESSION_ZSTD_LEVEL.for_topic()
MESSAGE_TIMESTAMP_TYPE = Setting("message.timestamp.type", STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"), falls_back=(broker.LOG_MESSAGE_TIMESTAMP_TYPE,),
    doc="Whether records keep the producer's time or get the broker's.")
MESSAGE_TIMESTAMP_BEFORE_MAX_MS = Setting("message.timestamp.before.max.ms", LONG, LONG_MAX, at_least(0), falls_back=(broker.LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS,),
    doc="How many milliseconds a record's own time may lie before the broker's, or it is rejected.")
MESSAGE_TIMESTAMP_AFTER_MAX_MS = Setting("message.timestamp.after.max.ms", LONG, 3_600_000, at_least(0), falls_back=(broker.LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS,),
    doc="How many milliseconds a record's own time may lie ahead of the broker's, or it is rejected.")
FLUSH_MESSAGES = Setting("flush.messages", LONG, LONG_MAX, at_least(1), falls_back=(broker.LOG_FLUSH_INTERVAL_MESSAGES,),
    doc="Records after which a partition is forced to disk; 1 forces every batch. Replicas are the usual safety.")
FLUSH_MS = Setting("flush.ms", LONG, LONG_MAX, at_least(0), falls_back=(broker.LOG_FLUSH_INTERVAL_MS, broker.LOG_FLUSH_SCHEDULER_INTERVAL_MS),
    doc="Milliseconds that a record may wait before it is forced to disk.")
MIN_INSYNC_REPLICAS = broker.MIN_INSYNC_REPLICAS.for_topic()
UNCLEAN_LEADER_ELECTION_ENABLE = broker.UNCLEAN_LEADER_ELECTION_ENABLE.for_topic()
# Throttling while partitions move.
LEADER_REPLICATION_THROTTLED_REPLICAS = Setting("leader.replication.throttled.replicas", LIST, (), THROTTLED_REPLICAS,
    doc="Replicas whose leaders send no faster than the broker's replication throttle, as "
        "partition:broker; `*` is all of the topic. Tools set it while they move partitions.")
FOLLOWER_REPLICATION_THROTTLED_REPLICAS = Setting("follower.replication.throttled.replicas", LIST, (), THROTTLED_REPLICAS,
    doc="Replicas that fetch no faster than the broker's replication throttle, as partition:broker; `*` "
        "is all of the topic.")
# fmt: on

TOPIC: Final = ConfigDef(
    "topic",
    settings_in(globals()),
    ignored=ignored.TOPIC,
    unsupported=unsupported.TOPIC,
)
