"""ListOffsets: the offset of a timestamp, the earliest, the latest and other special ones."""

from typing import Final

from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.fetch_read import READ_COMMITTED
from ottla.broker.replica_manager import ReplicaManager
from ottla.broker.replica_requests import is_replica_allowed
from ottla.errors import ErrorCode, RequestError
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.replication.partition import (
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from ottla.transport.connection import Connection, DeferredResponse

# Special timestamps and the first version that has them.
_SINCE: Final = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}

_NOT_AVAILABLE_SINCE: Final = 5  # the first version with OFFSET_NOT_AVAILABLE (KIP-207)


def handle(
    request: Request,
    connection: Connection,
    *,
    replica_manager: ReplicaManager,
    scheduler: CooperativeScheduler,
) -> Response | DeferredResponse:
    """Return an offset per partition; a timestamp lookup may read from disk."""
    message = request.message
    assert isinstance(message, ListOffsetsRequest)
    by_replica = message.replica_id >= 0
    if by_replica and not is_replica_allowed(connection):
        return DeferredResponse(_refuse(message, scheduler))
    return DeferredResponse(
        _answer(message, request.version, replica_manager, scheduler, by_replica=by_replica)
    )


async def _refuse(message: ListOffsetsRequest, scheduler: CooperativeScheduler) -> Response:
    """Refuse a client that asks as a replica."""
    turns = scheduler.new_loop()
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _failed(one.partition_index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    async for one in turns.over(topic.partitions)
                ],
            )
            async for topic in turns.over(message.topics)
        ]
    )


async def _answer(
    message: ListOffsetsRequest,
    version: int,
    replica_manager: ReplicaManager,
    scheduler: CooperativeScheduler,
    *,
    by_replica: bool,
) -> Response:
    committed = message.isolation_level == READ_COMMITTED
    asked: dict[str, dict[int, list[ListOffsetsPartition]]] = {}
    turns = scheduler.new_loop()
    async for topic in turns.over(message.topics):
        partitions = asked.setdefault(topic.name, {})
        async for one in turns.over(topic.partitions):
            partitions.setdefault(one.partition_index, []).append(one)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=name,
                partitions=[
                    await _partition(
                        replica_manager, name, same[0], committed, version, by_replica=by_replica
                    )
                    if len(same) == 1
                    else _failed(index, ErrorCode.INVALID_REQUEST)
                    async for index, same in turns.over(partitions.items())
                ],
            )
            for name, partitions in asked.items()
        ]
    )


async def _partition(
    replica_manager: ReplicaManager,
    topic: str,
    asked: ListOffsetsPartition,
    committed: bool,
    version: int,
    *,
    by_replica: bool,
) -> ListOffsetsPartitionResponse:
    index, timestamp = asked.partition_index, asked.timestamp
    try:
        if version < _SINCE.get(timestamp, 0) or timestamp < EARLIEST_PENDING_UPLOAD:
            raise RequestError(ErrorCode.UNSUPPORTED_VERSION)
        partition = replica_manager.leader_partition(topic, index)
        partition.check_epoch(asked.current_leader_epoch)
        found = await partition.find(timestamp, committed=committed, by_replica=by_replica)
    except RequestError as error:
        code = error.code
        if code is ErrorCode.OFFSET_NOT_AVAILABLE and version < _NOT_AVAILABLE_SINCE:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        return _failed(index, code)
    if found is None:
        return ListOffsetsPartitionResponse(partition_index=index, error_code=0)
    return ListOffsetsPartitionResponse(
        partition_index=index,
        error_code=0,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch if version >= 4 else -1,
    )


def _failed(index: int, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, error_code=int(code))
