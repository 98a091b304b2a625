"""Identifies files by their names.

Invariant: every file name of a log is recognised with its offset and state; so is a copy that only
has the right extension. Other names are None.
"""

from enum import StrEnum
from typing import Final, NamedTuple

from ottla.log.names import (
    CLEAN_SHUTDOWN,
    CLEANED_OFFSETS,
    DAMAGED_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    FileState,
    Kind,
    parse_offset_file,
)


class Content(StrEnum):
    """The formats that can be inspected."""

    RECORDS = "records"
    OFFSET_INDEX = "offset-index"
    TIME_INDEX = "time-index"
    TXN_INDEX = "aborted-index"
    PRODUCER_SNAPSHOT = "producer-snapshot"
    LEADER_EPOCHS = "leader-epochs"
    KNOWN_DAMAGE = "known-damage"
    OFFSETS = "offsets"
    PARTITION_METADATA = "partition-metadata"
    META_PROPERTIES = "meta-properties"
    CLEAN_SHUTDOWN = "clean-shutdown"


class Identity(NamedTuple):
    """What a name says; a renamed copy may have no offset."""

    content: Content
    offset: int | None = None
    state: FileState = FileState.LIVE


_OF_KIND: Final = {
    Kind.RECORDS: Content.RECORDS,
    Kind.OFFSET_INDEX: Content.OFFSET_INDEX,
    Kind.TIME_INDEX: Content.TIME_INDEX,
    Kind.TXN_INDEX: Content.TXN_INDEX,
    Kind.PRODUCER_SNAPSHOT: Content.PRODUCER_SNAPSHOT,
}
_OF_NAME: Final = {
    LEADER_EPOCHS: Content.LEADER_EPOCHS,
    DAMAGED_OFFSETS: Content.KNOWN_DAMAGE,
    RECOVERY_POINTS: Content.OFFSETS,
    HIGH_WATERMARKS: Content.OFFSETS,
    LOG_START_OFFSETS: Content.OFFSETS,
    CLEANED_OFFSETS: Content.OFFSETS,
    PARTITION_METADATA: Content.PARTITION_METADATA,
    META_PROPERTIES: Content.META_PROPERTIES,
    CLEAN_SHUTDOWN: Content.CLEAN_SHUTDOWN,
}


def identify(name: str) -> Identity | None:
    """The identity of a file name; None if it is not a file of a log."""
    if content := _OF_NAME.get(name):
        return Identity(content)
    if parsed := parse_offset_file(name):
        return Identity(_OF_KIND[parsed.kind], parsed.offset, parsed.state)
    for kind, content in _OF_KIND.items():
        if name.endswith(kind):
            return Identity(content)
    return None
