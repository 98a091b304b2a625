"""The records of a group coordinator, in the versions that Kafka 4.3 writes.

Invariant: `TYPES` of `ottla.protocol.offsets_topic` reads what these functions write.
"""

from collections.abc import Mapping
from typing import Final

from ottla.groups.effects import TopicRecord
from ottla.groups.group import ClassicGroup, value_of
from ottla.groups.offsets import CommittedOffset
from ottla.ids import TopicPartition
from ottla.protocol.offsets_topic import (
    TYPES,
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
)

_GROUP_VERSION: Final = 3
_OFFSET_VERSION: Final = 4
_OFFSET_VERSION_WITH_EXPIRY: Final = 1  # the only version with an expiry


def group_record(
    group: ClassicGroup, assignments: Mapping[str, bytes] | None = None
) -> TopicRecord:
    """Return the record of a generation with its coming assignments."""
    value = TYPES.encode_value(value_of(group, assignments), _GROUP_VERSION)
    return TopicRecord(_group_key(group.group_id), value)


def group_tombstone(group_id: str) -> TopicRecord:
    """Return the tombstone of a group."""
    return TopicRecord(_group_key(group_id), None)


def offset_record(
    group_id: str, partition: TopicPartition, committed: CommittedOffset
) -> TopicRecord:
    """Return the record of a committed offset."""
    expires = committed.expires_ms is not None
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.committed_ms,
        expire_timestamp=-1 if committed.expires_ms is None else committed.expires_ms,
        topic_id=committed.topic_id,
    )
    version = _OFFSET_VERSION_WITH_EXPIRY if expires else _OFFSET_VERSION
    return TopicRecord(_offset_key(group_id, partition), TYPES.encode_value(value, version))


def offset_tombstone(group_id: str, partition: TopicPartition) -> TopicRecord:
    """Return the tombstone of an offset."""
    return TopicRecord(_offset_key(group_id, partition), None)


def _group_key(group_id: str) -> bytes:
    return TYPES.encode_key(GroupMetadataKey(group=group_id))


def _offset_key(group_id: str, partition: TopicPartition) -> bytes:
    key = OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
    return TYPES.encode_key(key)
