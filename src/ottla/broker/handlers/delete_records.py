"""DeleteRecords: move the log start offset; segments below it are deleted later.

As in Kafka, the last entry of a partition counts, and the response has each partition once. The
response waits until every live replica has moved its log start offset, too.

If the client leaves or the broker stops, the deletion of one partition that has begun is finished.
No other begins.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from ottla.broker.cooperative import CooperativeLoop, CooperativeScheduler
from ottla.broker.replica_manager import ReplicaManager
from ottla.broker.shutdown import Shutdown
from ottla.errors import ErrorCode, RequestError
from ottla.ids import Offset
from ottla.log.shield import shielded
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.replication.partition import Partition
from ottla.transport.connection import Connection, DeferredResponse

MERGED_AT_ONCE: Final = 1000  # entries of a request, which takes less than a millisecond


def handle(
    request: Request,
    connection: Connection,
    *,
    replica_manager: ReplicaManager,
    scheduler: CooperativeScheduler,
    shutdown: Shutdown,
) -> Response | DeferredResponse:
    """Move the log start offsets; they are stored on all live replicas before the response."""
    message = request.message
    assert isinstance(message, DeleteRecordsRequest)
    return DeferredResponse(_answer(message, replica_manager, scheduler, shutdown))


async def _answer(
    message: DeleteRecordsRequest,
    replica_manager: ReplicaManager,
    scheduler: CooperativeScheduler,
    shutdown: Shutdown,
) -> Response:
    turns = scheduler.new_loop()
    waits: list[_Wait] = []
    topics: list[DeleteRecordsTopicResult] = []
    for name, offsets in (await _merged(message, turns)).items():
        results: list[DeleteRecordsPartitionResult] = []
        async for index, offset in turns.over(offsets.items()):
            if shutdown.begun:
                results.append(_result(index, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER))
            else:
                results.append(await _delete(replica_manager, name, index, offset, waits))
        topics.append(DeleteRecordsTopicResult(name=name, partitions=results))
    await _wait_for_replicas(waits, message.timeout_ms)
    return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)


async def _merged(
    message: DeleteRecordsRequest, turns: CooperativeLoop
) -> dict[str, dict[int, int]]:
    """The requested offset of each partition, by topic."""
    merged: dict[str, dict[int, int]] = {}
    async for topic in turns.over(message.topics):
        async for first in turns.over(range(0, len(topic.partitions), MERGED_AT_ONCE)):
            merged.setdefault(topic.name, {}).update(
                (one.partition_index, one.offset)
                for one in topic.partitions[first : first + MERGED_AT_ONCE]
            )
    return merged


@dataclass(slots=True)
class _Wait:
    """A partition whose other replicas have to delete the records, too."""

    partition: Partition
    offset: Offset
    result: DeleteRecordsPartitionResult


async def _delete(
    replica_manager: ReplicaManager, topic: str, index: int, offset: int, waits: list[_Wait]
) -> DeleteRecordsPartitionResult:
    try:
        partition = replica_manager.leader_partition(topic, index)
        start = await shielded(partition.delete_records(offset))
    except RequestError as error:
        return _result(index, -1, error.code)
    result = _result(index, start, ErrorCode.NONE)
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


def _result(index: int, low_watermark: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=low_watermark, error_code=int(code)
    )
