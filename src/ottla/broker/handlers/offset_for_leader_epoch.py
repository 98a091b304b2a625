"""OffsetForLeaderEpoch: the end offset of an epoch in the leader's log (rules A2 and A12)."""

from ottla.broker.cooperative import CooperativeLoop
from ottla.broker.state import BrokerState
from ottla.errors import ErrorCode, RequestError
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ottla.transport.connection import Connection, DeferredResponse


def handle(
    state: BrokerState, request: Request, connection: Connection
) -> Response | DeferredResponse:
    """Return the end offset per partition; -1 if the epoch is not known."""
    message = request.message
    assert isinstance(message, OffsetForLeaderEpochRequest)
    return DeferredResponse(_answer(state, message))


async def _answer(state: BrokerState, message: OffsetForLeaderEpochRequest) -> Response:
    turns = CooperativeLoop(state)
    return OffsetForLeaderEpochResponse(
        throttle_time_ms=0,
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _end(state, topic.topic, one) async for one in turns.over(topic.partitions)
                ],
            )
            async for topic in turns.over(message.topics)
        ],
    )


def _end(state: BrokerState, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = state.leader_partition(topic, asked.partition)
        partition.check_epoch(asked.current_leader_epoch)
        end = partition.log.end_offset(asked.leader_epoch)
    except RequestError as error:
        return EpochEndOffset(error_code=int(error.code), partition=asked.partition)
    if end is None:
        return EpochEndOffset(error_code=int(ErrorCode.NONE), partition=asked.partition)
    return EpochEndOffset(
        error_code=int(ErrorCode.NONE),
        partition=asked.partition,
        leader_epoch=end.epoch,
        end_offset=end.end_offset,
    )
