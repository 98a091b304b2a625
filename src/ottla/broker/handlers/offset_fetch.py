"""OffsetFetch: the committed offsets of groups."""

from collections.abc import Iterable
from typing import Final

from ottla.broker.cooperative import CooperativeLoop, CooperativeScheduler
from ottla.broker.group_coordinator import GroupCoordinators
from ottla.broker.metadata_cache import MetadataCache
from ottla.errors import ErrorCode, RequestError
from ottla.groups.responses import FetchedOffset, FetchResult
from ottla.ids import ZERO_UUID, PartitionIndex, TopicPartition, Uuid
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.transport.connection import Connection, DeferredResponse

_BATCHED = 8  # the first version with several groups
_BY_ID = 10  # the first version with topic ids

Asked = list[tuple[str, Uuid, int]]
"""Topic names, topic ids and partition indexes."""


PIECE: Final = 500
"""Offsets looked up per time slice."""


class OffsetFetchHandler:
    """Looks up committed offsets."""

    def __init__(
        self,
        *,
        metadata_cache: MetadataCache,
        groups: GroupCoordinators,
        scheduler: CooperativeScheduler,
    ) -> None:
        self._metadata_cache = metadata_cache
        self._groups = groups
        self._scheduler = scheduler

    def handle(self, request: Request, connection: Connection) -> Response | DeferredResponse:
        """Return the committed offsets; -1 where there is none."""
        message = request.message
        assert isinstance(message, OffsetFetchRequest)
        if request.version >= _BATCHED:
            return DeferredResponse(self._several_groups(message, request.version))
        return DeferredResponse(self._one_group(message, request.version))

    async def _several_groups(self, message: OffsetFetchRequest, version: int) -> Response:
        turns = self._scheduler.new_loop()
        return OffsetFetchResponse(
            groups=[
                await self._group(one, message.require_stable, version, turns)
                async for one in turns.over(message.groups)
            ]
        )

    async def _one_group(self, message: OffsetFetchRequest, version: int) -> Response:
        asked = (
            None
            if message.topics is None
            else [
                TopicPartition(topic.name, PartitionIndex(index))
                for topic in message.topics
                for index in topic.partition_indexes
            ]
        )
        turns = self._scheduler.new_loop()
        answer = await self._fetch(message.group_id, asked, message.require_stable, turns)
        # Before version 2 a group-level error is repeated for every partition.
        whole = answer.error if version < 2 else ErrorCode.NONE
        offsets = answer.offsets
        if answer.error and asked is not None:
            offsets = {key: FetchedOffset(error=whole) for key in asked}
        return OffsetFetchResponse(
            error_code=int(answer.error),
            topics=[
                OffsetFetchResponseTopic(
                    name=topic,
                    partitions=[
                        OffsetFetchResponsePartition(
                            partition_index=index,
                            committed_offset=one.offset,
                            committed_leader_epoch=one.leader_epoch,
                            metadata=one.metadata,
                            error_code=int(one.error),
                        )
                        async for index, one in turns.over(partitions)
                    ],
                )
                for topic, partitions in _by_topic(offsets).items()
            ],
        )

    async def _fetch(
        self,
        group_id: str,
        asked: list[TopicPartition] | None,
        require_stable: bool,
        turns: CooperativeLoop,
    ) -> FetchResult:
        if asked is None or len(asked) <= PIECE:
            return self._fetched(group_id, asked, require_stable)
        offsets: dict[TopicPartition, FetchedOffset] = {}
        async for start in turns.over(range(0, len(asked), PIECE)):
            found = self._fetched(group_id, asked[start : start + PIECE], require_stable)
            if found.error:
                return found
            offsets |= found.offsets
        return FetchResult(ErrorCode.NONE, offsets)

    def _fetched(
        self, group_id: str, asked: list[TopicPartition] | None, require_stable: bool
    ) -> FetchResult:
        try:
            coordinator = self._groups.of(group_id)
        except RequestError as error:
            return FetchResult(error.code, {})
        topics = self._metadata_cache.image.topics
        names = topics if asked is None else {one.topic for one in asked if one.topic in topics}
        return coordinator.groups.fetch_offsets(
            group_id,
            asked,
            require_stable=require_stable,
            topic_ids={name: topics[name].id for name in names},
        )

    async def _group(
        self,
        asked: OffsetFetchRequestGroup,
        require_stable: bool,
        version: int,
        turns: CooperativeLoop,
    ) -> OffsetFetchResponseGroup:
        by_id = version >= _BY_ID
        unknown: list[OffsetFetchResponseTopics] = []
        wanted: list[TopicPartition] | None = None
        if asked.topics is not None:
            wanted = []
            for topic in asked.topics:
                name: str | None = topic.name
                if by_id:
                    name = self._metadata_cache.image.names.get(topic.topic_id)
                if name is None:
                    unknown.append(_unknown(topic.topic_id, topic.partition_indexes))
                else:
                    wanted += [
                        TopicPartition(name, PartitionIndex(index))
                        for index in topic.partition_indexes
                    ]
        answer = await self._fetch(asked.group_id, wanted, require_stable, turns)
        if answer.error:
            return OffsetFetchResponseGroup(
                group_id=asked.group_id, topics=[], error_code=int(answer.error)
            )
        topics = self._metadata_cache.image.topics
        known = [
            OffsetFetchResponseTopics(
                name=topic,
                topic_id=topics[topic].id if by_id else ZERO_UUID,
                partitions=[_partition(index, one) async for index, one in turns.over(partitions)],
            )
            for topic, partitions in _by_topic(answer.offsets).items()
            if not by_id or topic in topics  # a deleted topic has no id to name it by
        ]
        return OffsetFetchResponseGroup(group_id=asked.group_id, topics=[*unknown, *known])


def _partition(index: int, one: FetchedOffset) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=one.offset,
        committed_leader_epoch=one.leader_epoch,
        metadata=one.metadata,
        error_code=int(one.error),
    )


def _unknown(topic_id: Uuid, indexes: Iterable[int]) -> OffsetFetchResponseTopics:
    nothing = FetchedOffset(error=ErrorCode.UNKNOWN_TOPIC_ID)
    return OffsetFetchResponseTopics(
        topic_id=topic_id, partitions=[_partition(index, nothing) for index in indexes]
    )


def _by_topic(
    offsets: dict[TopicPartition, FetchedOffset],
) -> dict[str, list[tuple[int, FetchedOffset]]]:
    found: dict[str, list[tuple[int, FetchedOffset]]] = {}
    for key, one in offsets.items():
        found.setdefault(key.topic, []).append((key.partition, one))
    return found
