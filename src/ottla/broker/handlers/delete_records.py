"""DeleteRecords: move the log start offset; segments below it are deleted later."""

from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.replica_manager import ReplicaManager
from ottla.errors import ErrorCode, RequestError
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.transport.connection import Connection, DeferredResponse


def handle(
    request: Request,
    connection: Connection,
    *,
    replica_manager: ReplicaManager,
    scheduler: CooperativeScheduler,
) -> Response | DeferredResponse:
    """Move the log start offsets; they are stored before the response."""
    message = request.message
    assert isinstance(message, DeleteRecordsRequest)
    return DeferredResponse(_answer(message, replica_manager, scheduler))


async def _answer(
    message: DeleteRecordsRequest,
    replica_manager: ReplicaManager,
    scheduler: CooperativeScheduler,
) -> Response:
    turns = scheduler.new_loop()
    return DeleteRecordsResponse(
        throttle_time_ms=0,
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    await _delete(replica_manager, topic.name, one)
                    async for one in turns.over(topic.partitions)
                ],
            )
            async for topic in turns.over(message.topics)
        ],
    )


async def _delete(
    replica_manager: ReplicaManager, topic: str, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    try:
        partition = replica_manager.leader_partition(topic, asked.partition_index)
        start = await partition.delete_records(asked.offset)
    except RequestError as error:
        return _result(asked, -1, error.code)
    return _result(asked, start, ErrorCode.NONE)


def _result(
    asked: DeleteRecordsPartition, low_watermark: int, code: ErrorCode
) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=low_watermark, error_code=int(code)
    )
