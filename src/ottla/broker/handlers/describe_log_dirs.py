"""DescribeLogDirs: the data directories and the sizes of their partitions."""

from ottla.broker.effective_config import EffectiveConfig
from ottla.broker.replica_manager import ReplicaManager
from ottla.errors import ErrorCode, StorageFailure
from ottla.ids import PartitionIndex, TopicPartition
from ottla.log.directory import DataDirectory
from ottla.log.loading import HostedLog
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.settings.broker import CORDONED_LOG_DIRS
from ottla.transport.connection import Connection, DeferredResponse


def handle(
    request: Request,
    connection: Connection,
    *,
    settings: EffectiveConfig,
    replica_manager: ReplicaManager,
) -> Response | DeferredResponse:
    """Describe every directory with the requested partitions, or with all."""
    message = request.message
    assert isinstance(message, DescribeLogDirsRequest)
    wanted = (
        None
        if message.topics is None
        else {
            TopicPartition(topic.topic, PartitionIndex(index))
            for topic in message.topics
            for index in topic.partitions
        }
    )
    return DeferredResponse(describe(wanted, settings, replica_manager))


async def describe(
    wanted: set[TopicPartition] | None, settings: EffectiveConfig, replica_manager: ReplicaManager
) -> DescribeLogDirsResponse:
    """Return the directories of this broker, with these partitions or with all."""
    logs = replica_manager.logs
    results = [await _directory(one, wanted, settings, replica_manager) for one in logs.directories]
    results += [_failed(path) for path in logs.missing]
    return DescribeLogDirsResponse(throttle_time_ms=0, results=results)


async def _directory(
    directory: DataDirectory,
    wanted: set[TopicPartition] | None,
    settings: EffectiveConfig,
    replica_manager: ReplicaManager,
) -> DescribeLogDirsResult:
    logs = replica_manager.logs
    if directory.failure is not None:
        return _failed(directory.path)
    try:
        room = await logs.disk.blocking(lambda: logs.disk.room(directory.path))
    except StorageFailure:
        return _failed(directory.path)
    by_topic: dict[str, list[DescribeLogDirsPartition]] = {}
    for hosted in logs:
        if hosted.directory is directory and (wanted is None or hosted.partition in wanted):
            by_topic.setdefault(hosted.partition.topic, []).append(
                _partition(replica_manager, hosted)
            )
    cordoned = settings.broker[CORDONED_LOG_DIRS]
    return DescribeLogDirsResult(
        error_code=0,
        log_dir=directory.path,
        topics=[
            DescribeLogDirsTopic(name=topic, partitions=partitions)
            for topic, partitions in by_topic.items()
        ],
        total_bytes=room.total_bytes,
        usable_bytes=room.usable_bytes,
        is_cordoned="*" in cordoned or directory.path in cordoned,
    )


def _failed(path: str) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(
        error_code=int(ErrorCode.KAFKA_STORAGE_ERROR), log_dir=path, topics=[]
    )


def _partition(replica_manager: ReplicaManager, hosted: HostedLog) -> DescribeLogDirsPartition:
    led = replica_manager.partitions.get(hosted.partition)
    lag = 0 if led is None else max(led.high_watermark - hosted.log.log_end_offset, 0)
    return DescribeLogDirsPartition(
        partition_index=hosted.partition.partition,
        partition_size=sum(segment.size for segment in hosted.log.segments),
        offset_lag=lag,
        is_future_key=False,
    )
