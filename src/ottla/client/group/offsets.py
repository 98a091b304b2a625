"""Requests and responses of committed offsets.

Invariant: topics are named by id in versions that support ids, by name otherwise. A topic without a
known id keeps the whole request in the last version with names. A response is read with the ids of
its request.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.client.arguments import note_of, offset_of
from ottla.client.group.interfaces import GroupMember
from ottla.client.partitions import P, Partition, by_topic, partition, rows_by_topic
from ottla.errors import ErrorCode, RequestError
from ottla.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

BY_ID: Final = 10
"""The first version of both requests with topic ids."""

BY_GROUP: Final = 8
"""The first version of OffsetFetch with several groups."""

STABLE_SINCE: Final = 7
"""The first version of OffsetFetch that can wait for open transactions (KIP-447)."""


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset: the offset of the next record, and a metadata text."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    """Leader epoch of the record before it, to detect truncation; -1 if unknown."""

    def __post_init__(self) -> None:
        offset_of(self.offset)
        note_of(self.metadata)

    @classmethod
    def of(cls, given: "int | OffsetAndMetadata") -> "OffsetAndMetadata":
        """Convert an offset with or without metadata."""
        return given if isinstance(given, cls) else cls(offset_of(given))


class FetchedOffsets(NamedTuple):
    """The offsets of a group in a response."""

    error: ErrorCode  # of the whole group
    committed: Mapping[TopicPartition, OffsetAndMetadata | None]
    errors: Mapping[TopicPartition, ErrorCode]


def version_for(newest: int, topics: Iterable[str], ids: Mapping[str, Uuid]) -> int:
    """Return the version in which the topics can be named; `newest` is what both ends support."""
    named = all(ids.get(topic, ZERO_UUID) != ZERO_UUID for topic in topics)
    return newest if named else min(newest, BY_ID - 1)


def commit_request(
    member: GroupMember,
    offsets: Mapping[P, OffsetAndMetadata],
    ids: Mapping[str, Uuid],
) -> OffsetCommitRequest:
    """Build an OffsetCommit request."""

    def row(where: P) -> OffsetCommitRequestPartition:
        return OffsetCommitRequestPartition(
            partition_index=where[1],
            committed_offset=offsets[where].offset,
            committed_leader_epoch=offsets[where].leader_epoch,
            committed_metadata=offsets[where].metadata,
        )

    return OffsetCommitRequest(
        group_id=member.group_id,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic, topic_id=ids.get(topic, ZERO_UUID), partitions=ones
            )
            for topic, ones in rows_by_topic(sorted(offsets), row).items()
        ],
    )


def commit_errors(
    answer: OffsetCommitResponse, ids: Mapping[str, Uuid]
) -> dict[TopicPartition, ErrorCode]:
    """Return the error of each partition, NONE if it was committed."""
    names = _names(ids)
    return {
        _partition(topic.name, topic.topic_id, names, one.partition_index): ErrorCode.of(
            one.error_code
        )
        for topic in answer.topics
        for one in topic.partitions
    }


def fetch_request(
    members: Sequence[GroupMember],
    partitions: Iterable[Partition] | None,
    ids: Mapping[str, Uuid],
    *,
    is_stable: bool,
    version: int,
) -> OffsetFetchRequest:
    """Build an OffsetFetch request for some or all partitions of groups, each with its member.

    Only KIP-848 members identify themselves. Before BY_GROUP there is one group.
    """
    topics = None if partitions is None else by_topic(sorted(partitions)).items()
    if version < BY_GROUP:
        (member,) = members
        return OffsetFetchRequest(
            group_id=member.group_id,
            topics=None
            if topics is None
            else [
                OffsetFetchRequestTopic(name=topic, partition_indexes=found)
                for topic, found in topics
            ],
            require_stable=is_stable,
        )
    asked = (
        None
        if topics is None
        else [
            OffsetFetchRequestTopics(
                name=topic, topic_id=ids.get(topic, ZERO_UUID), partition_indexes=found
            )
            for topic, found in topics
        ]
    )
    groups: list[OffsetFetchRequestGroup] = []
    for member in members:
        says_who = member.is_modern and member.is_member
        groups.append(
            OffsetFetchRequestGroup(
                group_id=member.group_id,
                member_id=member.member_id if says_who else None,
                member_epoch=member.generation if says_who else -1,
                topics=asked,
            )
        )
    return OffsetFetchRequest(groups=groups, require_stable=is_stable)


def fetched(answer: OffsetFetchResponse, ids: Mapping[str, Uuid]) -> FetchedOffsets:
    """Return the offsets in a response of any version."""
    names = _names(ids)
    ones: list[tuple[TopicPartition, OffsetFetchResponsePartition | OffsetFetchResponsePartitions]]
    ones = [
        (_partition(topic.name, ZERO_UUID, names, one.partition_index), one)
        for topic in answer.topics
        for one in topic.partitions
    ]
    error = ErrorCode.of(answer.error_code)
    for group in answer.groups:
        error = ErrorCode.of(group.error_code)
        ones += [
            (_partition(topic.name, topic.topic_id, names, one.partition_index), one)
            for topic in group.topics
            for one in topic.partitions
        ]
    return FetchedOffsets(
        error,
        {where: _committed(one) for where, one in ones if not one.error_code},
        {where: ErrorCode.of(one.error_code) for where, one in ones if one.error_code},
    )


def _committed(
    one: OffsetFetchResponsePartition | OffsetFetchResponsePartitions,
) -> OffsetAndMetadata | None:
    if one.committed_offset < 0:  # -1 is none; lower values come from clients that did not check
        return None
    return OffsetAndMetadata(one.committed_offset, one.metadata or "", one.committed_leader_epoch)


def _names(ids: Mapping[str, Uuid]) -> dict[Uuid, str]:
    return {uuid: topic for topic, uuid in ids.items()}


def _partition(name: str, topic_id: Uuid, names: Mapping[Uuid, str], index: int) -> TopicPartition:
    if topic_id != ZERO_UUID:
        name = names.get(topic_id, name)
    if not name:
        raise RequestError(
            ErrorCode.UNKNOWN_TOPIC_ID, f"the coordinator returned the unknown topic id {topic_id}"
        )
    return partition(name, index)
