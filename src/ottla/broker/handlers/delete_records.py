"""DeleteRecords: move the log start offset; segments below it are deleted later."""

from ottla.broker.cooperative import CooperativeLoop
from ottla.broker.state import BrokerState
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
    state: BrokerState, request: Request, connection: Connection
) -> Response | DeferredResponse:
    """Move the log start offsets; they are stored before the response."""
    message = request.message
    assert isinstance(message, DeleteRecordsRequest)
    return DeferredResponse(_answer(state, message))


async def _answer(state: BrokerState, message: DeleteRecordsRequest) -> Response:
    turns = CooperativeLoop(state)
    return DeleteRecordsResponse(
        throttle_time_ms=0,
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    await _delete(state, topic.name, one)
                    async for one in turns.over(topic.partitions)
                ],
            )
            async for topic in turns.over(message.topics)
        ],
    )


async def _delete(
    state: BrokerState, topic: str, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    try:
        start = await state.leader_partition(topic, asked.partition_index).delete_records(
            asked.offset
        )
    except RequestError as error:
        return _result(asked, -1, error.code)
    return _result(asked, start, ErrorCode.NONE)


def _result(
    asked: DeleteRecordsPartition, low_watermark: int, code: ErrorCode
) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=low_watermark, error_code=int(code)
    )
