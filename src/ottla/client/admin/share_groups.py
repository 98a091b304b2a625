"""Share groups, whose members share partitions record by record (KIP-932).

Invariant: what a share group has read is known by the offset that it starts from; a partition in
which it has none has None.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ottla.client.admin.calls import Calls
from ottla.client.admin.group_descriptions import GroupDescription, MemberDescription
from ottla.client.admin.operations import operations
from ottla.client.asking.asking import Question
from ottla.client.asking.outcomes import Outcomes, check, or_none, refused
from ottla.client.partitions import (
    P,
    Partition,
    by_partition,
    by_topic,
    in_order,
    names,
    partition,
)
from ottla.errors import RequestError
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
)
from ottla.protocol.messages.share_group_describe import (
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


@dataclass(frozen=True, slots=True)
class ShareOffset:
    """Where a share group starts in a partition."""

    start_offset: int
    leader_epoch: int | None
    lag: int | None
    """How many records it has before it; None when the broker does not tell."""


ShareOffsets: TypeAlias = Outcomes[Partition, ShareOffset | None]


class ShareGroupCalls(Calls):
    """The calls on share groups."""

    async def describe_share_groups(
        self,
        groups: str | Iterable[str],
        *,
        include_operations: bool = False,
        timeout_s: float | None = None,
    ) -> Outcomes[str, GroupDescription]:
        """Share groups with their members."""
        question = Question(
            request=lambda ids, _: ShareGroupDescribeRequest(
                group_ids=ids, include_authorized_operations=include_operations
            ),
            answer=ShareGroupDescribeResponse,
            read=lambda _, answer: described(answer),
        )
        return await self._asking.many(self._asking.to_group, names(groups), question, timeout_s)

    async def list_share_group_offsets(
        self,
        groups: str | Iterable[str],
        partitions: Iterable[Partition] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Outcomes[str, ShareOffsets]:
        """Where share groups start, in some partitions or in all that they read."""
        wanted = None if partitions is None else by_topic(dict.fromkeys(partitions))
        question = Question[str, DescribeShareGroupOffsetsResponse, ShareOffsets](
            request=lambda ids, _: offsets_request(ids, wanted),
            answer=DescribeShareGroupOffsetsResponse,
            read=lambda _, answer: {one.group_id: _offsets(one) for one in answer.groups},
        )
        return await self._asking.many(self._asking.to_group, names(groups), question, timeout_s)

    async def alter_share_group_offsets(
        self, group: str, offsets: Mapping[P, int], *, timeout_s: float | None = None
    ) -> Outcomes[Partition, None]:
        """Let a share group without members start elsewhere."""
        wanted = by_partition(offsets)
        told = await self._asking.about(
            group,
            self._asking.to_group,
            lambda _: alter_request(group, wanted),
            AlterShareGroupOffsetsResponse,
            lambda answer: altered(group, answer),
            timeout_s,
        )
        return Outcomes[Partition, None](told)

    async def delete_share_group_offsets(
        self, group: str, topics: str | Iterable[str], *, timeout_s: float | None = None
    ) -> Outcomes[str, None]:
        """Forget what a share group without members has read of topics."""
        wanted = names(topics)
        told = await self._asking.about(
            group,
            self._asking.to_group,
            lambda _: DeleteShareGroupOffsetsRequest(
                group_id=group,
                topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=one) for one in wanted],
            ),
            DeleteShareGroupOffsetsResponse,
            lambda answer: deleted(group, answer),
            timeout_s,
        )
        return Outcomes[str, None](told)


def described(answer: ShareGroupDescribeResponse) -> dict[str, GroupDescription | RequestError]:
    """The groups."""
    return {
        one.group_id: refused(one.error_code, one.group_id, one.error_message)
        or GroupDescription(
            id=one.group_id,
            type="share",
            state=one.group_state,
            protocol_type="share",
            assignor=one.assignor_name,
            members=tuple(map(_member, one.members)),
            epoch=one.group_epoch,
            assignment_epoch=one.assignment_epoch,
            operations=operations(one.authorized_operations),
        )
        for one in answer.groups
    }


def _member(told: Member) -> MemberDescription:
    return MemberDescription(
        id=told.member_id,
        instance_id=None,
        client_id=told.client_id,
        host=told.client_host,
        assignment=in_order(
            (one.topic_name, one.partitions) for one in told.assignment.topic_partitions
        ),
        topics=tuple(sorted(told.subscribed_topic_names)),
        rack=told.rack_id,
        epoch=told.member_epoch,
    )


def offsets_request(
    groups: Iterable[str], topics: Mapping[str, list[int]] | None
) -> DescribeShareGroupOffsetsRequest:
    """The request for where groups start."""
    asked = (
        None
        if topics is None
        else [
            DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=indexes)
            for topic, indexes in topics.items()
        ]
    )
    return DescribeShareGroupOffsetsRequest(
        groups=[
            DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=asked) for group in groups
        ]
    )


def _offsets(told: DescribeShareGroupOffsetsResponseGroup) -> ShareOffsets | RequestError:
    if (error := refused(told.error_code, told.group_id, told.error_message)) is not None:
        return error
    return Outcomes[Partition, ShareOffset | None](
        {
            (key := partition(topic.topic_name, one.partition_index)): refused(
                one.error_code, key, one.error_message
            )
            or _offset(one)
            for topic in told.topics
            for one in topic.partitions
        }
    )


def _offset(told: DescribeShareGroupOffsetsResponsePartition) -> ShareOffset | None:
    if told.start_offset < 0:
        return None
    return ShareOffset(told.start_offset, or_none(told.leader_epoch), or_none(told.lag))


def alter_request(group: str, offsets: Mapping[Partition, int]) -> AlterShareGroupOffsetsRequest:
    """The request that sets where a group starts."""
    return AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=topic,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(
                        partition_index=index, start_offset=offsets[topic, index]
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(offsets).items()
        ],
    )


def altered(
    group: str, answer: AlterShareGroupOffsetsResponse
) -> dict[Partition, RequestError | None]:
    """What became of each partition."""
    check(answer.error_code, group, answer.error_message)
    return {
        (key := partition(topic.topic_name, one.partition_index)): refused(
            one.error_code, key, one.error_message
        )
        for topic in answer.responses
        for one in topic.partitions
    }


def deleted(group: str, answer: DeleteShareGroupOffsetsResponse) -> dict[str, RequestError | None]:
    """What became of each topic."""
    check(answer.error_code, group, answer.error_message)
    return {
        one.topic_name: refused(one.error_code, one.topic_name, one.error_message)
        for one in answer.responses
    }
