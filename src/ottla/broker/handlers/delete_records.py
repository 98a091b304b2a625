"""DeleteRecords: move the log start offset; segments below it are deleted later.

The response waits until every live replica has moved its log start offset, too. A client that
leaves ends the wait; the records of all partitions are deleted all the same.
"""

import asyncio
from dataclasses import dataclass

from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.replica_manager import ReplicaManager
from ottla.errors import ErrorCode, RequestError
from ottla.ids import Offset
from ottla.log.shield import shielded
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.replication.partition import Partition
from ottla.transport.connection import Connection, DeferredResponse


def handle(
    request: Request,
    connection: Connection,
    *,
    replica_manager: ReplicaManager,
    scheduler: CooperativeScheduler,
) -> Response | DeferredResponse:
    """Move the log start offsets; they are stored on all live replicas before the response."""
    message = request.message
    assert isinstance(message, DeleteRecordsRequest)
    return DeferredResponse(_answer(message, replica_manager, scheduler))


async def _answer(
    message: DeleteRecordsRequest, replica_manager: ReplicaManager, scheduler: CooperativeScheduler
) -> Response:
    waits: list[_Wait] = []
    response = await shielded(_delete_all(message, replica_manager, scheduler, waits))
    await _wait_for_replicas(waits, message.timeout_ms)
    return response


async def _delete_all(
    message: DeleteRecordsRequest,
    replica_manager: ReplicaManager,
    scheduler: CooperativeScheduler,
    waits: "list[_Wait]",
) -> DeleteRecordsResponse:
    turns = scheduler.new_loop()
    return DeleteRecordsResponse(
        throttle_time_ms=0,
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    await _delete(replica_manager, topic.name, one, waits)
                    async for one in turns.over(topic.partitions)
                ],
            )
            async for topic in turns.over(message.topics)
        ],
    )


@dataclass(slots=True)
class _Wait:
    """A partition whose other replicas have to delete the records, too."""

    partition: Partition
    offset: Offset
    result: DeleteRecordsPartitionResult


async def _delete(
    replica_manager: ReplicaManager, topic: str, asked: DeleteRecordsPartition, waits: list[_Wait]
) -> DeleteRecordsPartitionResult:
    try:
        partition = replica_manager.leader_partition(topic, asked.partition_index)
        start = await partition.delete_records(asked.offset)
    except RequestError as error:
        return _result(asked, -1, error.code)
    result = _result(asked, start, ErrorCode.NONE)
    if partition.low_watermark < start:
        waits.append(_Wait(partition, start, result))
    return result


async def _wait_for_replicas(waits: list[_Wait], timeout_ms: int) -> None:
    """Wait for all partitions together; set the result of each."""
    deadline_s = asyncio.get_running_loop().time() + max(timeout_ms, 0) / 1000
    for wait in waits:
        result = wait.result
        try:
            async with asyncio.timeout_at(deadline_s):
                await wait.partition.deleted(wait.offset)
        except TimeoutError:
            result.error_code = int(ErrorCode.REQUEST_TIMED_OUT)
        except RequestError as error:
            result.error_code, result.low_watermark = int(error.code), -1
            continue
        result.low_watermark = wait.partition.low_watermark


def _result(
    asked: DeleteRecordsPartition, low_watermark: int, code: ErrorCode
) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=low_watermark, error_code=int(code)
    )
