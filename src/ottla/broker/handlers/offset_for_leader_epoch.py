"""OffsetForLeaderEpoch: the end offset of an epoch in the leader's log (rules A2 and A12)."""

from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.replica_manager import ReplicaManager
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
    return DeferredResponse(_answer(message, replica_manager, scheduler))


async def _answer(
    message: OffsetForLeaderEpochRequest,
    replica_manager: ReplicaManager,
    scheduler: CooperativeScheduler,
) -> Response:
    turns = scheduler.new_loop()
    return OffsetForLeaderEpochResponse(
        throttle_time_ms=0,
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _end(replica_manager, topic.topic, one)
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
        return EpochEndOffset(error_code=int(error.code), partition=asked.partition)
    if end is None:
        return EpochEndOffset(error_code=int(ErrorCode.NONE), partition=asked.partition)
    return EpochEndOffset(
        error_code=int(ErrorCode.NONE),
        partition=asked.partition,
        leader_epoch=end.epoch,
        end_offset=end.end_offset,
    )
