"""DescribeTopicPartitions: topics in name order, in pages."""

from collections.abc import Iterable
from typing import Final

from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.effective_config import EffectiveConfig
from ottla.broker.handlers.metadata import TOPIC_OPERATIONS
from ottla.broker.metadata_cache import MetadataCache
from ottla.cluster.image import ClusterImage, PartitionState, Topic
from ottla.errors import ErrorCode
from ottla.ids import NO_BROKER, ZERO_UUID, BrokerId, topic_name_problem
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ottla.settings.broker import MAX_REQUEST_PARTITION_SIZE_LIMIT
from ottla.transport.connection import Connection, DeferredResponse

_FIRST: Final = 0


def handle(
    request: Request,
    connection: Connection,
    *,
    settings: EffectiveConfig,
    metadata_cache: MetadataCache,
    scheduler: CooperativeScheduler,
) -> Response | DeferredResponse:
    """Describe topics in name order, from the cursor on."""
    message = request.message
    assert isinstance(message, DescribeTopicPartitionsRequest)
    return DeferredResponse(_answer(message, settings, metadata_cache, scheduler))


async def _answer(
    message: DescribeTopicPartitionsRequest,
    settings: EffectiveConfig,
    metadata_cache: MetadataCache,
    scheduler: CooperativeScheduler,
) -> Response:
    image, cursor = metadata_cache.image, message.cursor
    names = sorted({one.name for one in message.topics} or set(image.topics))
    begin = _FIRST
    if cursor is not None:
        problem = cursor.partition_index < _FIRST or (
            message.topics and cursor.topic_name not in names
        )
        if problem:
            return _refused(names)
        names = [name for name in names if name >= cursor.topic_name]
        if names and names[0] == cursor.topic_name:
            begin = cursor.partition_index
    left = min(
        max(message.response_partition_limit, 1),
        settings.broker[MAX_REQUEST_PARTITION_SIZE_LIMIT],
    )
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    following: Cursor | None = None
    async for name in scheduler.new_loop().over(names):
        topic = image.topics.get(name)
        if topic is None:
            topics.append(_unknown(name))
            continue
        if left == 0:
            following = Cursor(topic_name=name, partition_index=_FIRST)
            break
        end = min(begin + left, len(topic.partitions))
        topics.append(_topic(metadata_cache.image, topic, begin, end))
        left -= end - begin
        if end < len(topic.partitions):
            following = Cursor(topic_name=name, partition_index=end)
            break
        begin = _FIRST
    return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=topics, next_cursor=following)


def _refused(names: Iterable[str]) -> Response:
    """Return the response to a cursor that no page of this request can have returned."""
    topics = [
        DescribeTopicPartitionsResponseTopic(
            error_code=int(ErrorCode.INVALID_REQUEST),
            name=name,
            topic_id=ZERO_UUID,
            partitions=[],
        )
        for name in names
    ]
    return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=topics)


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = (
        ErrorCode.INVALID_TOPIC_EXCEPTION
        if topic_name_problem(name)
        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    return DescribeTopicPartitionsResponseTopic(
        error_code=int(code),
        name=name,
        topic_id=ZERO_UUID,
        partitions=[],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _topic(
    image: ClusterImage, topic: Topic, begin: int, end: int
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.internal,
        partitions=[
            _partition(index, state, image.offline_replicas(topic.name, index, state))
            for index, state in enumerate(topic.partitions[begin:end], begin)
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(
    index: int, partition: PartitionState, offline: list[BrokerId]
) -> DescribeTopicPartitionsResponsePartition:
    missing = partition.leader == NO_BROKER or partition.leader in offline
    return DescribeTopicPartitionsResponsePartition(
        error_code=int(ErrorCode.LEADER_NOT_AVAILABLE if missing else ErrorCode.NONE),
        partition_index=index,
        leader_id=NO_BROKER if missing else partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.in_sync,
        eligible_leader_replicas=partition.elr,
        last_known_elr=partition.last_known_elr,
        offline_replicas=offline,
    )
