"""Committed offsets of groups: list, alter and delete.

Invariant: a partition without a committed offset has None.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ottla.client.admin.calls import Calls
from ottla.client.arguments import name_of
from ottla.client.calls.caller import ApiCall
from ottla.client.calls.results import Results, check, or_none, refused, settled
from ottla.client.group.interfaces import GroupMember
from ottla.client.group.offsets import (
    BY_GROUP,
    BY_ID,
    STABLE_SINCE,
    OffsetAndMetadata,
    commit_request,
    fetch_request,
)
from ottla.client.partitions import (
    P,
    Partition,
    by_partition,
    each_once,
    names,
    rows,
    rows_by_topic,
)
from ottla.errors import ErrorCode, RequestError
from ottla.protocol.messages.offset_commit import OffsetCommitResponse
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

_BY_NAME: Final = BY_ID - 1  # the last version of OffsetFetch and OffsetCommit with topic names
_ALL_SINCE: Final = 2


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The committed offset of a partition: the next record to read."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


GroupOffsets: TypeAlias = Results[Partition, CommittedOffset | None]


class GroupOffsetCalls(Calls):
    """Calls about committed offsets."""

    async def list_group_offsets(
        self,
        groups: str | Iterable[str],
        partitions: Iterable[Partition] | None = None,
        *,
        require_stable: bool = False,
        timeout_s: float | None = None,
    ) -> Results[str, GroupOffsets]:
        """Return the committed offsets of groups, for some or all partitions.

        With require_stable it waits for open transactions that may commit offsets.
        """
        wanted = None if partitions is None else each_once(partitions)
        since = _ALL_SINCE if wanted is None else 0
        question = ApiCall[str, OffsetFetchResponse, GroupOffsets](
            request=lambda ids, terms: fetch_request(
                [GroupMember(group) for group in ids],
                wanted,
                {},
                is_stable=require_stable,
                version=terms.version,
            ),
            answer=OffsetFetchResponse,
            read=fetched,
            since=STABLE_SINCE if require_stable else since,
            newest=_BY_NAME,
            batched_since=BY_GROUP,
        )
        return await self._asking.many(self._asking.to_group, names(groups), question, timeout_s)

    async def alter_group_offsets(
        self,
        group: str,
        offsets: Mapping[P, int | CommittedOffset],
        *,
        timeout_s: float | None = None,
    ) -> Results[Partition, None]:
        """Set the committed offsets of a group without members; creates a missing group."""
        name_of(group, "a group")
        kept = {where: _kept(one) for where, one in by_partition(offsets).items()}
        request = commit_request(GroupMember(group), kept, {})
        told = await self._asking.about(
            group,
            self._asking.to_group,
            lambda _: request,
            OffsetCommitResponse,
            committed,
            timeout_s,
            newest=_BY_NAME,
        )
        return Results[Partition, None](told)

    async def delete_group_offsets(
        self, group: str, partitions: Iterable[Partition], *, timeout_s: float | None = None
    ) -> Results[Partition, None]:
        """Delete committed offsets of partitions whose topics the group does not read."""
        name_of(group, "a group")
        wanted = each_once(partitions)
        told = await self._asking.about(
            group,
            self._asking.to_group,
            lambda _: delete_request(group, wanted),
            OffsetDeleteResponse,
            lambda answer: deleted(group, answer),
            timeout_s,
        )
        return Results[Partition, None](told)


def fetched(
    groups: Sequence[str], answer: OffsetFetchResponse
) -> dict[str, GroupOffsets | RequestError]:
    """Return the committed offsets of each group."""
    if not answer.groups:
        (group,) = groups
        check(answer.error_code, group)
        return {group: _offsets((one.name, one.partitions) for one in answer.topics)}
    return {
        group.group_id: refused(group.error_code, group.group_id)
        or _offsets((one.name, one.partitions) for one in group.topics)
        for group in answer.groups
    }


def _offsets(
    topics: Iterable[
        tuple[str, Sequence[OffsetFetchResponsePartition | OffsetFetchResponsePartitions]]
    ],
) -> GroupOffsets | RequestError:
    told: dict[Partition, CommittedOffset | RequestError | None] = {}
    for key, one in rows(topics):
        error = refused(one.error_code, key)
        if error is not None and error.code is ErrorCode.UNSTABLE_OFFSET_COMMIT:
            return error  # the whole request is repeated
        told[key] = error or _committed(one)
    return Results[Partition, CommittedOffset | None](told)


def _committed(
    told: OffsetFetchResponsePartition | OffsetFetchResponsePartitions,
) -> CommittedOffset | None:
    if told.committed_offset < 0:
        return None
    epoch = or_none(told.committed_leader_epoch)
    return CommittedOffset(told.committed_offset, told.metadata or "", epoch)


def _kept(given: int | CommittedOffset) -> OffsetAndMetadata:
    if not isinstance(given, CommittedOffset):
        return OffsetAndMetadata.of(given)
    epoch = -1 if given.leader_epoch is None else given.leader_epoch
    return OffsetAndMetadata(given.offset, given.metadata, epoch)


def committed(answer: OffsetCommitResponse) -> dict[Partition, RequestError | None]:
    """Return the result of each partition."""
    topics = ((topic.name, topic.partitions) for topic in answer.topics)
    return settled({key: refused(one.error_code, key) for key, one in rows(topics)})


def delete_request(group: str, partitions: Iterable[Partition]) -> OffsetDeleteRequest:
    """Build OffsetDelete."""
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(name=topic, partitions=ones)
            for topic, ones in rows_by_topic(
                partitions, lambda one: OffsetDeleteRequestPartition(partition_index=one[1])
            ).items()
        ],
    )


def deleted(group: str, answer: OffsetDeleteResponse) -> dict[Partition, RequestError | None]:
    """Return the result of each partition."""
    check(answer.error_code, group)
    topics = ((topic.name, topic.partitions) for topic in answer.topics)
    return {key: refused(one.error_code, key) for key, one in rows(topics)}
