"""Share groups, whose members share partitions record by record (KIP-932).

Invariant: a partition without a start offset has None.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ottla.client.admin.calls import Calls
from ottla.client.admin.group_descriptions import SHARE, GroupDescription, modern_described
from ottla.client.arguments import name_of
from ottla.client.calls.caller import ApiCall
from ottla.client.calls.results import Results, check, or_none, refused
from ottla.client.partitions import (
    P,
    Partition,
    by_partition,
    by_topic,
    each_once,
    names,
    rows,
    rows_by_topic,
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
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


@dataclass(frozen=True, slots=True)
class ShareOffset:
    """The start offset of a share group in a partition."""

    start_offset: int
    leader_epoch: int | None
    lag: int | None
    """The number of records after it; None if the broker does not return it."""


ShareOffsets: TypeAlias = Results[Partition, ShareOffset | None]


class ShareGroupCalls(Calls):
    """Calls about share groups."""

    async def describe_share_groups(
        self,
        groups: str | Iterable[str],
        *,
        include_operations: bool = False,
        timeout_s: float | None = None,
    ) -> Results[str, GroupDescription]:
        """Describe share groups with their members."""
        question = ApiCall(
            request=lambda ids, _: ShareGroupDescribeRequest(
                group_ids=ids, include_authorized_operations=include_operations
            ),
            answer=ShareGroupDescribeResponse,
            read=lambda _, answer: modern_described(answer, SHARE),
        )
        return await self._asking.many(self._asking.to_group, names(groups), question, timeout_s)

    async def list_share_group_offsets(
        self,
        groups: str | Iterable[str],
        partitions: Iterable[Partition] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Results[str, ShareOffsets]:
        """Return the start offsets of share groups, for some or all partitions."""
        wanted = None if partitions is None else by_topic(each_once(partitions))
        question = ApiCall[str, DescribeShareGroupOffsetsResponse, ShareOffsets](
            request=lambda ids, _: offsets_request(ids, wanted),
            answer=DescribeShareGroupOffsetsResponse,
            read=lambda _, answer: {one.group_id: _offsets(one) for one in answer.groups},
        )
        return await self._asking.many(self._asking.to_group, names(groups), question, timeout_s)

    async def alter_share_group_offsets(
        self, group: str, offsets: Mapping[P, int], *, timeout_s: float | None = None
    ) -> Results[Partition, None]:
        """Set the start offsets of a share group without members."""
        name_of(group, "a group")
        wanted = by_partition(offsets)
        told = await self._asking.about(
            group,
            self._asking.to_group,
            lambda _: alter_request(group, wanted),
            AlterShareGroupOffsetsResponse,
            lambda answer: altered(group, answer),
            timeout_s,
        )
        return Results[Partition, None](told)

    async def delete_share_group_offsets(
        self, group: str, topics: str | Iterable[str], *, timeout_s: float | None = None
    ) -> Results[str, None]:
        """Delete the start offsets of topics of a share group without members."""
        name_of(group, "a group")
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
        return Results[str, None](told)


def offsets_request(
    groups: Iterable[str], topics: Mapping[str, list[int]] | None
) -> DescribeShareGroupOffsetsRequest:
    """Build DescribeShareGroupOffsets."""
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
    return Results[Partition, ShareOffset | None](
        {
            key: refused(one.error_code, key, one.error_message) or _offset(one)
            for key, one in rows((topic.topic_name, topic.partitions) for topic in told.topics)
        }
    )


def _offset(told: DescribeShareGroupOffsetsResponsePartition) -> ShareOffset | None:
    if told.start_offset < 0:
        return None
    return ShareOffset(told.start_offset, or_none(told.leader_epoch), or_none(told.lag))


def alter_request(group: str, offsets: Mapping[Partition, int]) -> AlterShareGroupOffsetsRequest:
    """Build AlterShareGroupOffsets."""

    def row(one: Partition) -> AlterShareGroupOffsetsRequestPartition:
        return AlterShareGroupOffsetsRequestPartition(
            partition_index=one[1], start_offset=offsets[one]
        )

    return AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=ones)
            for topic, ones in rows_by_topic(offsets, row).items()
        ],
    )


def altered(
    group: str, answer: AlterShareGroupOffsetsResponse
) -> dict[Partition, RequestError | None]:
    """Return the result of each partition."""
    check(answer.error_code, group, answer.error_message)
    topics = ((topic.topic_name, topic.partitions) for topic in answer.responses)
    return {key: refused(one.error_code, key, one.error_message) for key, one in rows(topics)}


def deleted(group: str, answer: DeleteShareGroupOffsetsResponse) -> dict[str, RequestError | None]:
    """Return the result of each topic."""
    check(answer.error_code, group, answer.error_message)
    return {
        one.topic_name: refused(one.error_code, one.topic_name, one.error_message)
        for one in answer.responses
    }
