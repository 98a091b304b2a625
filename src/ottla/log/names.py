"""The names of files and directories; all but those marked as Ottla's own are Kafka's.

Invariant: a name that is created here is parsed back to its parts; any other name is parsed as
None. Only the topic in the directory name of a deleted or stray partition may be truncated, because
a name has at most 255 characters.

A data directory has one directory per partition and the files of the data directory. A partition's
directory has files that start with an offset, and the files of the partition.
"""

import re
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from ottla.ids import Offset, PartitionIndex, TopicPartition, topic_name_problem

# Files of a data directory.
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
DIRECTORY_LOCK: Final = ".lock"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
CLEANED_OFFSETS: Final = "cleaner-offset-checkpoint"

# Files of a partition's directory.
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
DAMAGED_OFFSETS: Final = "damaged-offset-checkpoint"  # Ottla's own: Kafka ignores it

DAMAGED_SUFFIX: Final = ".damaged"
"""The suffix of a copy of a small file that was damaged and written again; Ottla's own."""

TEMPORARY_SUFFIX: Final = ".tmp"
"""The suffix of a file that is being written; it is renamed when it is on the device."""

_NAME_LENGTH_MAX: Final = 255
_OFFSET_MAX: Final = 2**63 - 1
_PARTITION_MAX: Final = 2**31 - 1


class Kind(StrEnum):
    """The content of a file that starts with an offset."""

    RECORDS = ".log"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TXN_INDEX = ".txnindex"
    PRODUCER_SNAPSHOT = ".snapshot"


class FileState(StrEnum):
    """The state of a file; recovery completes or removes every DELETED, CLEANED or SWAP file."""

    LIVE = ""
    DELETED = ".deleted"
    CLEANED = ".cleaned"  # written by the cleaner, perhaps incomplete
    SWAP = ".swap"  # complete, about to replace the old segments
    TRUNCATED = ".truncated"  # Ottla's own: valid records that recovery cut off, kept aside


class DirectoryState(StrEnum):
    """The state of a partition's directory; other than LIVE has a unique id before the suffix."""

    LIVE = ""
    DELETED = "-delete"
    STRAY = "-stray"  # a partition that this broker does not host
    FUTURE = "-future"  # a copy that will replace the log in another data directory


class OffsetFile(NamedTuple):
    """A file that starts with an offset: the base offset of a segment, the end of a snapshot."""

    offset: Offset
    kind: Kind
    state: FileState = FileState.LIVE


class PartitionDirectory(NamedTuple):
    """A partition's directory; the topic of a deleted or stray one may be truncated."""

    partition: TopicPartition
    state: DirectoryState = DirectoryState.LIVE


_OFFSET_FILE: Final = re.compile(
    r"([0-9]{20})"
    rf"({'|'.join(re.escape(kind) for kind in Kind)})"
    rf"({'|'.join(re.escape(state) for state in FileState if state)})?"
    r"(?:(?<=\.truncated)-[1-9][0-9]*)?"  # the second file of this name, and so on
)
_FOLDER: Final = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})")
_MARKED_FOLDER: Final = re.compile(r"(\S+)\.[^.\s]+(-delete|-stray|-future)")


# Cached: at a start, thousands of directories have files with the same few names.
@lru_cache(maxsize=1024)
def offset_file(offset: int, kind: Kind, state: FileState = FileState.LIVE) -> str:
    """The name of a file that starts with an offset, padded so that names sort like numbers."""
    assert 0 <= offset <= _OFFSET_MAX
    return f"{offset:020d}{kind}{state}"


@lru_cache(maxsize=1024)
def parse_offset_file(name: str) -> OffsetFile | None:
    """Parse the name of a file that starts with an offset; None for other names."""
    found = _OFFSET_FILE.fullmatch(name)
    if found is None or int(found[1]) > _OFFSET_MAX:
        return None
    return OffsetFile(Offset(int(found[1])), Kind(found[2]), FileState(found[3] or ""))


def partition_directory(partition: TopicPartition) -> str:
    """The name of a partition's directory."""
    return str(partition)


def marked_directory(partition: TopicPartition, state: DirectoryState, unique: str) -> str:
    """The name of a deleted, stray or future directory.

    `unique` distinguishes it from others of the partition; Kafka uses 32 hexadecimal digits. The
    name of a future directory has the whole topic name, so a long topic name may not fit.
    """
    assert state is not DirectoryState.LIVE
    assert unique
    assert not set(unique) & set(".-/ ")
    mark = f"-{partition.partition}.{unique}{state}"
    topic = partition.topic
    if state is not DirectoryState.FUTURE:
        topic = topic[: _NAME_LENGTH_MAX - len(mark)]
    return topic + mark


def parse_partition_directory(name: str) -> PartitionDirectory | None:
    """Parse the name of a partition's directory; None for other names.

    The partition follows the last dash: topic names may have dashes.
    """
    state = DirectoryState.LIVE
    if marked := _MARKED_FOLDER.fullmatch(name):
        name, state = marked[1], DirectoryState(marked[2])
    found = _FOLDER.fullmatch(name)
    if found is None or topic_name_problem(found[1]) or int(found[2]) > _PARTITION_MAX:
        return None
    return PartitionDirectory(TopicPartition(found[1], PartitionIndex(int(found[2]))), state)
