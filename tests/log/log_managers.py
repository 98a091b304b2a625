"""Helpers that open, fill and read the logs of a broker in simulated time."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import count

from log.logs import SMALL
from log.logs import append as append_batch
from ottla.clock import Clock
from ottla.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionIndex, TopicPartition, Uuid
from ottla.log.disk import Disk
from ottla.log.loading import HostedLog
from ottla.log.log_config import LogConfig
from ottla.log.log_manager import CurrentId, LogManager, Offline
from ottla.log.maintenance import Maintenance
from ottla.records.batch import batches

TOPIC_ID = Uuid(b"topic id of test")
EPOCH = BrokerEpoch(9)


def partition(number: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, PartitionIndex(number))


async def opened(
    disk: Disk,
    clock: Clock,
    paths: Sequence[str] = ("/data",),
    rules: LogConfig = SMALL,
    *,
    offline: Offline = lambda directory, partitions: None,
    parallel: int = 2,
    current_id: CurrentId | None = None,
) -> LogManager:
    numbers = count(1000)
    return await LogManager.open(
        disk,
        paths,
        lambda topic: rules,
        cluster_id="c",
        node_id=BrokerId(1),
        clock=clock,
        random=lambda: 0.5,
        new_id=lambda: Uuid(next(numbers).to_bytes(16, "big")),
        parallel=parallel,
        offline=offline,
        current_id=current_id,
    )


async def created(
    logs: LogManager, number: int, rules: LogConfig = SMALL, topic_id: Uuid = TOPIC_ID
) -> HostedLog:
    hosted = await logs.create(partition(number), topic_id, rules)
    hosted.log.begin_epoch(LeaderEpoch(0))
    return hosted


async def lead(logs: LogManager, epoch: int) -> None:
    for hosted in logs:
        hosted.log.begin_epoch(LeaderEpoch(epoch))


def append(hosted: HostedLog, *values: bytes, timestamp: int = 0) -> None:
    append_batch(hosted.log, *values, timestamp=timestamp, now_ms=timestamp)


async def values(hosted: HostedLog) -> list[bytes | None]:
    log, offset = hosted.log, hosted.log.log_start_offset
    found: list[bytes | None] = []
    while data := await (await log.read(offset, log.log_end_offset, 500)).read():
        for batch in batches(data):
            assert batch.crc_ok
            offset = batch.header.next_offset
            found += [record.value for record in batch.records()]
    return found


async def run_for(upkeep: Maintenance, seconds: float) -> None:
    """Run the maintenance tasks for a number of seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await upkeep.run()
