"""OffsetCommit: store the committed offsets of a group."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.group_coordinator import GroupCoordinators, PendingResponse
from ottla.broker.metadata_cache import MetadataCache
from ottla.errors import ErrorCode, RequestError
from ottla.groups.events import Commit
from ottla.groups.responses import PartitionErrors
from ottla.groups.types import OffsetToCommit, RequestToken
from ottla.ids import PartitionIndex, TopicPartition
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.transport.connection import Connection, DeferredResponse

_BY_ID: Final = 10  # the first version with topic ids

PIECE: Final = 500
"""Offsets per batch of __consumer_offsets and per step of the group."""


def handle(
    request: Request,
    connection: Connection,
    *,
    metadata_cache: MetadataCache,
    groups: GroupCoordinators,
    scheduler: CooperativeScheduler,
) -> Response | DeferredResponse:
    """Commit the offsets of all partitions that exist."""
    message = request.message
    assert isinstance(message, OffsetCommitRequest)
    return DeferredResponse(_answer(message, request.version, metadata_cache, groups, scheduler))


async def _answer(
    message: OffsetCommitRequest,
    version: int,
    metadata_cache: MetadataCache,
    groups: GroupCoordinators,
    scheduler: CooperativeScheduler,
) -> Response:
    answered: list[OffsetCommitResponseTopic] = []
    committed: list[tuple[OffsetToCommit, OffsetCommitResponsePartition]] = []
    turns = scheduler.new_loop()
    async for topic in turns.over(message.topics):
        partitions: list[OffsetCommitResponsePartition] = []
        answered.append(
            OffsetCommitResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=partitions
            )
        )
        async for one in turns.over(topic.partitions):
            index = one.partition_index
            told = OffsetCommitResponsePartition(partition_index=index, error_code=0)
            partitions.append(told)
            try:
                topic_id = topic.topic_id if version >= _BY_ID else None
                found = metadata_cache.topic(topic.name, topic_id)
                if found.partition(index) is None:
                    raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            except RequestError as error:
                told.error_code = int(error.code)
                continue
            offset = OffsetToCommit(
                TopicPartition(found.name, PartitionIndex(index)),
                one.committed_offset,
                one.committed_leader_epoch,
                one.committed_metadata,
                found.id,
            )
            committed.append((offset, told))
    # The group also checks a request without offsets, but not one whose partitions were all
    # refused.
    count = len(committed) or not any(topic.partitions for topic in answered)
    pieces = [committed[start : start + PIECE] for start in range(0, count, PIECE)]
    commits = [
        (message.group_id, partial(_commit, message, version, [offset for offset, _ in piece]))
        for piece in pieces
    ]
    responses = await groups.submit_all(commits, turns)
    async for piece, response in turns.over(zip(pieces, responses, strict=True)):
        answer = await _errors(response)
        codes = dict(answer.partitions)
        for offset, told in piece:
            told.error_code = int(answer.error or codes[offset.partition])
    return OffsetCommitResponse(topics=answered)


def _commit(
    message: OffsetCommitRequest,
    version: int,
    offsets: Sequence[OffsetToCommit],
    token: RequestToken,
) -> Commit:
    return Commit(
        token,
        message.group_id,
        message.member_id,
        message.group_instance_id,
        message.generation_id_or_member_epoch,
        tuple(offsets),
        message.retention_time_ms,
        knows_group_id_not_found=version >= 9,
    )


async def _errors(response: PendingResponse) -> PartitionErrors:
    try:
        answer = await response()
    except RequestError as error:
        return PartitionErrors(error.code)
    assert isinstance(answer, PartitionErrors)
    return answer
