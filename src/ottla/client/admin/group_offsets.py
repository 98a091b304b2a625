"""What groups have committed: listed, set and forgotten.

Invariant: a partition in which a group committed nothing has None, which is no offset.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ottla.client.admin.calls import Calls
from ottla.client.asking.asking import Question, Terms
from ottla.client.asking.outcomes import Outcomes, check, or_none, refused, settled
from ottla.client.partitions import (
    P,
    Partition,
    by_partition,
    by_topic,
    names,
    rows,
    rows_by_topic,
)
from ottla.errors import ErrorCode, RequestError
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
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

_BY_NAME: Final = 9  # the last version of OffsetFetch and OffsetCommit that names topics
_BATCHED: Final = 8  # the first of OffsetFetch with many groups
_STABLE_SINCE: Final = 7
_ALL_SINCE: Final = 2


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """How far a group is in a partition: the next record it reads."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


GroupOffsets: TypeAlias = Outcomes[Partition, CommittedOffset | None]


class GroupOffsetCalls(Calls):
    """The calls on what groups have committed."""

    async def list_group_offsets(
        self,
        groups: str | Iterable[str],
        partitions: Iterable[Partition] | None = None,
        *,
        require_stable: bool = False,
        timeout_s: float | None = None,
    ) -> Outcomes[str, GroupOffsets]:
        """What groups have committed, in some partitions or wherever they did.

        With require_stable it waits for transactions that may commit more.
        """
        wanted = None if partitions is None else [*dict.fromkeys(partitions)]
        since = _ALL_SINCE if wanted is None else 0
        question = Question[str, OffsetFetchResponse, GroupOffsets](
            request=lambda ids, terms: fetch_request(
                ids, wanted, terms, require_stable=require_stable
            ),
            answer=OffsetFetchResponse,
            read=fetched,
            since=_STABLE_SINCE if require_stable else since,
            newest=_BY_NAME,
            batched_since=_BATCHED,
        )
        return await self._asking.many(self._asking.to_group, names(groups), question, timeout_s)

    async def alter_group_offsets(
        self,
        group: str,
        offsets: Mapping[P, int | CommittedOffset],
        *,
        timeout_s: float | None = None,
    ) -> Outcomes[Partition, None]:
        """Let a group without members go on elsewhere; a group that does not exist is made."""
        wanted = by_partition(offsets)
        told = await self._asking.about(
            group,
            self._asking.to_group,
            lambda _: commit_request(group, wanted),
            OffsetCommitResponse,
            committed,
            timeout_s,
            newest=_BY_NAME,
        )
        return Outcomes[Partition, None](told)

    async def delete_group_offsets(
        self, group: str, partitions: Iterable[Partition], *, timeout_s: float | None = None
    ) -> Outcomes[Partition, None]:
        """Forget what a group has committed, in partitions of topics that it does not read."""
        wanted = [*dict.fromkeys(partitions)]
        told = await self._asking.about(
            group,
            self._asking.to_group,
            lambda _: delete_request(group, wanted),
            OffsetDeleteResponse,
            lambda answer: deleted(group, answer),
            timeout_s,
        )
        return Outcomes[Partition, None](told)


def fetch_request(
    groups: Sequence[str],
    partitions: Iterable[Partition] | None,
    terms: Terms,
    *,
    require_stable: bool,
) -> OffsetFetchRequest:
    """The request for what groups have committed."""
    topics = None if partitions is None else by_topic(partitions)
    if terms.version >= _BATCHED:
        asked = (
            None
            if topics is None
            else [
                OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
                for name, indexes in topics.items()
            ]
        )
        return OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=asked) for group in groups],
            require_stable=require_stable,
        )
    (group,) = groups
    return OffsetFetchRequest(
        group_id=group,
        topics=None
        if topics is None
        else [
            OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ],
        require_stable=require_stable,
    )


def fetched(
    groups: Sequence[str], answer: OffsetFetchResponse
) -> dict[str, GroupOffsets | RequestError]:
    """What each group has committed."""
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
            return error  # the whole is asked for again
        told[key] = error or _committed(one)
    return Outcomes[Partition, CommittedOffset | None](told)


def _committed(
    told: OffsetFetchResponsePartition | OffsetFetchResponsePartitions,
) -> CommittedOffset | None:
    if told.committed_offset < 0:
        return None
    epoch = or_none(told.committed_leader_epoch)
    return CommittedOffset(told.committed_offset, told.metadata or "", epoch)


def commit_request(
    group: str, offsets: Mapping[Partition, int | CommittedOffset]
) -> OffsetCommitRequest:
    """The request that sets offsets, of nobody who is a member."""
    return OffsetCommitRequest(
        group_id=group,
        member_id="",
        topics=[
            OffsetCommitRequestTopic(name=topic, partitions=ones)
            for topic, ones in rows_by_topic(
                offsets, lambda one: _commit(one[1], offsets[one])
            ).items()
        ],
    )


def _commit(index: int, given: int | CommittedOffset) -> OffsetCommitRequestPartition:
    wanted = CommittedOffset(given) if isinstance(given, int) else given
    return OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=wanted.offset,
        committed_leader_epoch=-1 if wanted.leader_epoch is None else wanted.leader_epoch,
        committed_metadata=wanted.metadata,
    )


def committed(answer: OffsetCommitResponse) -> dict[Partition, RequestError | None]:
    """What became of each partition."""
    topics = ((topic.name, topic.partitions) for topic in answer.topics)
    return settled({key: refused(one.error_code, key) for key, one in rows(topics)})


def delete_request(group: str, partitions: Iterable[Partition]) -> OffsetDeleteRequest:
    """The request that forgets offsets."""
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
    """What became of each partition."""
    check(answer.error_code, group)
    topics = ((topic.name, topic.partitions) for topic in answer.topics)
    return {key: refused(one.error_code, key) for key, one in rows(topics)}
