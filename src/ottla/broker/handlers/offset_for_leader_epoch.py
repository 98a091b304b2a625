"""OffsetForLeaderEpoch: the end offset of an epoch in the leader's log (rules A2 and A12)."""

from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.replica_manager import ReplicaManager
from ottla.broker.replica_requests import is_replica_allowed
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
    request: Request,
    connection: Connection,
    *,
    replica_manager: ReplicaManager,
    scheduler: CooperativeScheduler,
) -> Response | DeferredResponse:
    """Return the end offset per partition; -1 if the epoch is not known."""
    message = request.message
    assert isinstance(message, OffsetForLeaderEpochRequest)
    is_allowed = message.replica_id < 0 or is_replica_allowed(connection)
    return DeferredResponse(_answer(message, replica_manager, scheduler, is_allowed=is_allowed))


async def _answer(
    message: OffsetForLeaderEpochRequest,
    replica_manager: ReplicaManager,
    scheduler: CooperativeScheduler,
    *,
    is_allowed: bool,
) -> Response:
    turns = scheduler.new_loop()
    return OffsetForLeaderEpochResponse(
        throttle_time_ms=0,
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _end(replica_manager, topic.topic, one)
                    if is_allowed
                    else _failed(one, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    async for one in turns.over(topic.partitions)
                ],
            )
            async for topic in turns.over(message.topics)
        ],
    )


def _end(
    replica_manager: ReplicaManager, topic: str, asked: OffsetForLeaderPartition
) -> EpochEndOffset:
    try:
        partition = replica_manager.leader_partition(topic, asked.partition)
        partition.check_epoch(asked.current_leader_epoch)
        end = partition.log.end_offset(asked.leader_epoch)
    except RequestError as error:
        return _failed(asked, error.code)
    if end is None:
        return EpochEndOffset(error_code=int(ErrorCode.NONE), partition=asked.partition)
    return EpochEndOffset(
        error_code=int(ErrorCode.NONE),
        partition=asked.partition,
        leader_epoch=end.epoch,
        end_offset=end.end_offset,
    )


def _failed(asked: OffsetForLeaderPartition, code: ErrorCode) -> EpochEndOffset:
    return EpochEndOffset(error_code=int(code), partition=asked.partition)
