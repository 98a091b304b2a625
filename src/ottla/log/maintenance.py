"""What logs need from time to time: flushing, retention, checkpoints, expiry, removal.

Invariant: each duty runs by itself at its own interval, one at a time, and a directory that fails
in it goes offline without stopping the duty for the others. What is due is asked for again every
time, so that changed settings count at once. However many logs there are, others have their turns
in between.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self

from ottla.errors import RequestError, StorageFailure
from ottla.ids import Offset, TopicPartition
from ottla.log.flusher import flush_due
from ottla.log.loading import HostedLog
from ottla.log.log_manager import LogManager
from ottla.log.names import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from ottla.log.partition_log import PartitionLog
from ottla.settings import broker
from ottla.settings.config import Config

_LOG = logging.getLogger(__name__)

# flush.ms of a topic counts though log.flush.scheduler.interval.ms says "never", as it does by
# default: then logs are looked at this often.
FLUSH_CHECK_MS_MAX: Final = 1000
PURGE_INTERVAL_MS: Final = 1000
LOGS_AT_ONCE: Final = 200  # that are looked at before others have their turn
# Every log is read once a week for damage that nobody has met (rule C4), slowly.
SCRUB_INTERVAL_MS: Final = 7 * 86_400_000
SCRUB_BYTES_PER_SECOND: Final = 16 * 1024 * 1024
PRODUCER_EXPIRY_INTERVAL_MS: Final = 600_000  # as Kafka


@dataclass(frozen=True, slots=True)
class MaintenanceConfig:
    """How often, as the broker's settings say; the defaults are Kafka's."""

    flush_check_ms: int = FLUSH_CHECK_MS_MAX
    retention_check_ms: int = 300_000
    recovery_point_ms: int = 60_000
    log_start_ms: int = 60_000
    high_watermark_ms: int = 5_000
    producer_expiration_ms: int = 86_400_000

    @classmethod
    def of(cls, config: Config) -> Self:
        """What a broker's configuration says."""
        assert config.table is broker.BROKER
        return cls(
            min(config[broker.LOG_FLUSH_SCHEDULER_INTERVAL_MS], FLUSH_CHECK_MS_MAX),
            config[broker.LOG_RETENTION_CHECK_INTERVAL_MS],
            config[broker.LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS],
            config[broker.LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS],
            config[broker.REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS],
            config[broker.PRODUCER_ID_EXPIRATION_MS],
        )


class Maintenance:
    """The duties towards the logs of a broker; `run` does them until it is cancelled."""

    def __init__(
        self,
        logs: LogManager,
        config: Callable[[], MaintenanceConfig],
        high_watermark: Callable[[TopicPartition], Offset],
    ) -> None:
        self._logs = logs
        self._config = config
        self._high_watermark = high_watermark

    async def run(self) -> None:
        """Do what is due when it is due."""
        config = self._config
        async with asyncio.TaskGroup() as group:
            for interval_ms, duty in (
                (lambda: config().flush_check_ms, self.flush),
                (lambda: config().retention_check_ms, self.retain),
                (lambda: config().recovery_point_ms, self.store_recovery_points),
                (lambda: config().log_start_ms, self.store_log_starts),
                (lambda: config().high_watermark_ms, self.store_high_watermarks),
                (lambda: PURGE_INTERVAL_MS, self.purge),
                (lambda: PRODUCER_EXPIRY_INTERVAL_MS, self.expire_producers),
                (lambda: SCRUB_INTERVAL_MS, self.scrub),
            ):
                group.create_task(self._repeat(interval_ms, duty))

    async def _repeat(
        self, interval_ms: Callable[[], int], duty: Callable[[], Awaitable[None]]
    ) -> None:
        while True:
            await self._logs.clock.sleep(interval_ms() / 1000)
            try:
                await duty()
            except Exception:
                _LOG.exception("a duty towards the logs failed; it is tried again")

    async def flush(self) -> None:
        """Flush the logs whose flush.ms is over, and those that have rolled.

        So a start after a crash checks about a segment of each, as with Kafka. What flush.messages
        asks for is counted where one appends.
        """
        now_ms = self._logs.clock.now_ms()
        async for hosted in self._usable():
            log = hosted.log
            unflushed = log.log_end_offset - log.recovery_point
            since_ms = now_ms - hosted.flushed_ms
            if log.flush_files_due or flush_due(
                log.config, unflushed_messages=unflushed, since_flush_ms=since_ms
            ):
                hosted.flushed_ms = now_ms
                await self._attempt(hosted, log.flush)
            elif not unflushed:
                hosted.flushed_ms = now_ms

    async def retain(self) -> None:
        """Delete the segments that have outlived their time."""
        async for hosted in self._usable():
            if self._logs.get(hosted.partition) is not hosted:
                continue  # deleted while this was busy with the others
            high_watermark = self._high_watermark(hosted.partition)

            async def work(log: PartitionLog = hosted.log, upto: Offset = high_watermark) -> None:
                count = await log.delete_old_segments(
                    high_watermark=upto, now_ms=self._logs.clock.now_ms()
                )
                if count:
                    _LOG.info("segments deleted", {"directory": log.directory, "segments": count})

            await self._attempt(hosted, work)

    async def purge(self) -> None:
        """Remove deleted files and folders whose delay is over."""
        now_ms = self._logs.clock.now_ms()
        async for hosted in self._usable():
            if hosted.log.has_pending_deletes:
                await self._attempt(hosted, lambda log=hosted.log: log.purge(now_ms))
        await self._logs.purge()

    async def expire_producers(self) -> None:
        """Forget producers that have not written for producer.id.expiration.ms."""
        now_ms, limit_ms = self._logs.clock.now_ms(), self._config().producer_expiration_ms
        async for hosted in self._usable():
            hosted.log.producers.expire(now_ms, limit_ms)

    async def scrub(self) -> None:
        """Look for damage below the recovery points, so that it is not served (rule C4)."""

        async def pause(size: int) -> None:
            await self._logs.clock.sleep(size / SCRUB_BYTES_PER_SECOND)

        async for hosted in self._usable():

            async def work(log: PartitionLog = hosted.log) -> None:
                for damage in await log.scrub(pause):
                    _LOG.error("damage found", {"directory": log.directory, "damage": str(damage)})

            await self._attempt(hosted, work)

    async def store_recovery_points(self) -> None:
        """Let the next start begin its checks where these logs are on the device."""
        await self._store(RECOVERY_POINTS)

    async def store_log_starts(self) -> None:
        """Let what was deleted stay deleted."""
        await self._store(LOG_START_OFFSETS)

    async def store_high_watermarks(self) -> None:
        """Let the next start know what was safe."""
        async for hosted in self._usable():
            if self._logs.get(hosted.partition) is hosted:
                hosted.high_watermark = self._high_watermark(hosted.partition)
        await self._store(HIGH_WATERMARKS)

    async def _store(self, name: str) -> None:
        for directory in self._logs.online:
            with suppress(StorageFailure):  # by which it goes offline
                await self._logs.store(name, directory)

    async def _usable(self) -> AsyncGenerator[HostedLog]:
        """The logs whose directories work, with pauses in which others have their turns."""
        for number, hosted in enumerate(self._logs, 1):
            if hosted.directory.failure is None:
                yield hosted
            if number % LOGS_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _attempt(self, hosted: HostedLog, work: Callable[[], Awaitable[None]]) -> None:
        """Do something to a log unless it is gone meanwhile; a failure takes its directory."""
        if hosted.directory.failure is not None or self._logs.get(hosted.partition) is not hosted:
            return
        # RequestError: it was deleted while this waited for its turn.
        with suppress(StorageFailure, RequestError):
            await self._logs.guarded(hosted.directory, work)
