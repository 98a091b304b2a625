"""OffsetDelete: delete committed offsets of a group."""

from functools import partial
from typing import Final

from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.group_coordinator import GroupCoordinators, PendingResponse
from ottla.broker.metadata_cache import MetadataCache
from ottla.errors import ErrorCode, RequestError
from ottla.groups.events import DeleteOffsets
from ottla.groups.responses import PartitionErrors
from ottla.groups.types import RequestToken
from ottla.ids import PartitionIndex, TopicPartition
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.transport.connection import Connection, DeferredResponse

PIECE: Final = 500
"""Offsets deleted per step of the group."""


def handle(
    request: Request,
    connection: Connection,
    *,
    metadata_cache: MetadataCache,
    groups: GroupCoordinators,
    scheduler: CooperativeScheduler,
) -> Response | DeferredResponse:
    """Delete the offsets of partitions to which the group is not subscribed."""
    message = request.message
    assert isinstance(message, OffsetDeleteRequest)
    return DeferredResponse(_answer(message, metadata_cache, groups, scheduler))


async def _answer(
    message: OffsetDeleteRequest,
    metadata_cache: MetadataCache,
    groups: GroupCoordinators,
    scheduler: CooperativeScheduler,
) -> Response:
    turns = scheduler.new_loop()
    asked = [
        TopicPartition(topic.name, PartitionIndex(one.partition_index))
        async for topic in turns.over(message.topics)
        async for one in turns.over(topic.partitions)
    ]
    known = [one async for one in turns.over(asked) if metadata_cache.image.state(*one) is not None]
    codes = dict.fromkeys(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    pieces = [tuple(known[at : at + PIECE]) for at in range(0, len(known) or 1, PIECE)]
    deletions = [(message.group_id, partial(_deletion, message.group_id, one)) for one in pieces]
    responses = await groups.submit_all(deletions, turns)
    async for piece, response in turns.over(zip(pieces, responses, strict=True)):
        answer = await _errors(response)
        if piece is not pieces[0] and answer.error is ErrorCode.GROUP_ID_NOT_FOUND:
            # An empty group is deleted with its last offset; after that nothing is left to delete.
            codes |= dict.fromkeys(piece, ErrorCode.NONE)
            continue
        if answer.error:
            return OffsetDeleteResponse(error_code=int(answer.error), throttle_time_ms=0, topics=[])
        codes |= dict(answer.partitions)
    return OffsetDeleteResponse(
        error_code=0,
        throttle_time_ms=0,
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=one.partition_index,
                        error_code=int(
                            codes[TopicPartition(topic.name, PartitionIndex(one.partition_index))]
                        ),
                    )
                    async for one in turns.over(topic.partitions)
                ],
            )
            async for topic in turns.over(message.topics)
        ],
    )


def _deletion(
    group_id: str, partitions: tuple[TopicPartition, ...], token: RequestToken
) -> DeleteOffsets:
    return DeleteOffsets(token, group_id, partitions)


async def _errors(response: PendingResponse) -> PartitionErrors:
    try:
        answer = await response()
    except RequestError as error:
        return PartitionErrors(error.code)
    assert isinstance(answer, PartitionErrors)
    return answer
