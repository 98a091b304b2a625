"""The names of files and folders, all of them Kafka's but one.

Invariant: a name that is made here is read back to what it was made of; a name that could not
have been made here is read as None. Only the topic in the folder of a deleted or stray partition
may be cut, because a folder's name has at most 255 characters.

A data directory holds one folder per partition and the files of the directory; a partition's
folder holds files that begin with an offset and the files of the partition.
"""

import re
from enum import StrEnum
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

# Files of a partition's folder.
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
DAMAGED_OFFSETS: Final = "damaged-offset-checkpoint"  # ours: Kafka passes over such a name

TEMPORARY_SUFFIX: Final = ".tmp"
"""Behind a name while the file is being written; it is renamed when all of it is on the disk."""

_NAME_LENGTH_MAX: Final = 255
_OFFSET_MAX: Final = 2**63 - 1
_PARTITION_MAX: Final = 2**31 - 1


class Kind(StrEnum):
    """What is in a file that begins with an offset."""

    RECORDS = ".log"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    ABORTED_INDEX = ".txnindex"
    PRODUCER_SNAPSHOT = ".snapshot"


class FileState(StrEnum):
    """Whether a file counts; anything but LIVE is finished or removed when a log is opened."""

    LIVE = ""
    DELETED = ".deleted"
    CLEANED = ".cleaned"  # written by the cleaner, perhaps not all of it
    SWAP = ".swap"  # all of it written, about to take the place of what was cleaned


class DirectoryState(StrEnum):
    """Whether a partition's folder counts; marked folders carry a unique word before the mark."""

    LIVE = ""
    DELETED = "-delete"
    STRAY = "-stray"  # of a partition that this broker should not have
    FUTURE = "-future"  # a copy that will replace the one in another data directory


class OffsetFile(NamedTuple):
    """A file that begins with an offset: a segment's base offset, a snapshot's end."""

    offset: Offset
    kind: Kind
    state: FileState = FileState.LIVE


class PartitionDirectory(NamedTuple):
    """The folder of a partition; when deleted or stray, its topic's name may be cut short."""

    partition: TopicPartition
    state: DirectoryState = DirectoryState.LIVE


_OFFSET_FILE: Final = re.compile(
    r"([0-9]{20})"
    rf"({'|'.join(re.escape(kind) for kind in Kind)})"
    rf"({'|'.join(re.escape(state) for state in FileState if state)})?"
)
_FOLDER: Final = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})")
_MARKED_FOLDER: Final = re.compile(r"(\S+)\.[^.\s]+(-delete|-stray|-future)")


def offset_file(offset: int, kind: Kind, state: FileState = FileState.LIVE) -> str:
    """The name of a file that begins with an offset, padded so that names sort as numbers do."""
    assert 0 <= offset <= _OFFSET_MAX
    return f"{offset:020d}{kind}{state}"


def parse_offset_file(name: str) -> OffsetFile | None:
    """What a file of a partition's folder is; None when its name does not begin with an offset."""
    found = _OFFSET_FILE.fullmatch(name)
    if found is None or int(found[1]) > _OFFSET_MAX:
        return None
    return OffsetFile(Offset(int(found[1])), Kind(found[2]), FileState(found[3] or ""))


def partition_directory(partition: TopicPartition) -> str:
    """The name of a partition's folder."""
    return str(partition)


def marked_directory(partition: TopicPartition, state: DirectoryState, unique: str) -> str:
    """The name of a folder that is to be deleted, stray, or to come.

    `unique` keeps it apart from others of the partition; Kafka takes 32 hexadecimal digits. The
    folder of a future copy needs the whole name of its topic: a long one may not fit.
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
    """Whose folder it is; None when no partition's folder has such a name.

    The partition follows the last dash, for topics may have dashes in their names.
    """
    state = DirectoryState.LIVE
    if marked := _MARKED_FOLDER.fullmatch(name):
        name, state = marked[1], DirectoryState(marked[2])
    found = _FOLDER.fullmatch(name)
    if found is None or topic_name_problem(found[1]) or int(found[2]) > _PARTITION_MAX:
        return None
    return PartitionDirectory(TopicPartition(found[1], PartitionIndex(int(found[2]))), state)
