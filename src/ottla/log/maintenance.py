"""The periodic tasks of a broker's logs: flush, retention, checkpoints, expiration, removal, scrub.

At the start, the logs that were recovered after an unclean shutdown are flushed, so that the next
crash does not check the same records again.

Invariant: each task runs at its own interval. A data directory that fails in a task, or that was
removed, goes offline without stopping the task for the others. Intervals are read again each time,
so that changed settings apply at once. A task yields to the event loop every LOGS_PER_SLICE logs.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self

from ottla.errors import RequestError, StorageFailure
from ottla.ids import Offset, TopicPartition
from ottla.log.damage import offset_ranges
from ottla.log.directory import DataDirectory
from ottla.log.disk import File
from ottla.log.flusher import flush_due
from ottla.log.loading import HostedLog
from ottla.log.log_manager import LogManager
from ottla.log.names import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from ottla.log.partition_log import PartitionLog
from ottla.settings import broker
from ottla.settings.config import Config

_LOG = logging.getLogger(__name__)

# log.flush.scheduler.interval.ms is practically infinite by default. Topics with flush.ms still
# count, so logs are checked at least this often.
FLUSH_CHECK_MS_MAX: Final = 1000
PURGE_INTERVAL_MS: Final = 1000
# A removed file still accepts records while it is open. Written logs are looked for every second,
# idle ones once a minute.
IN_PLACE_INTERVAL_MS: Final = 1000
IDLE_IN_PLACE_MS: Final = 60_000
LOGS_PER_SLICE: Final = 200  # logs per task before the event loop continues
# Every log is read once a week, slowly, to find damage (rule C4).
SCRUB_INTERVAL_MS: Final = 7 * 86_400_000
SCRUB_BYTES_PER_SECOND: Final = 16 * 1024 * 1024
PRODUCER_EXPIRY_INTERVAL_MS: Final = 600_000  # as in Kafka


@dataclass(frozen=True, slots=True)
class MaintenanceConfig:
    """The intervals of the tasks; the defaults are Kafka's."""

    flush_check_ms: int = FLUSH_CHECK_MS_MAX
    retention_check_ms: int = 300_000
    recovery_point_ms: int = 60_000
    log_start_ms: int = 60_000
    high_watermark_ms: int = 5_000
    producer_expiration_ms: int = 86_400_000

    @classmethod
    def of(cls, config: Config) -> Self:
        """The intervals of a broker's configuration."""
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
    """The periodic tasks; `run` runs them until it is cancelled."""

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
        """Flush the recovered logs once, and run each task at its interval."""
        config = self._config
        async with asyncio.TaskGroup() as group:
            group.create_task(self._caught(self.flush_recovered))
            for interval_ms, task in (
                (lambda: config().flush_check_ms, self.flush),
                (lambda: config().retention_check_ms, self.retain),
                (lambda: config().recovery_point_ms, self.store_recovery_points),
                (lambda: config().log_start_ms, self.store_log_starts),
                (lambda: config().high_watermark_ms, self.store_high_watermarks),
                (lambda: PURGE_INTERVAL_MS, self.purge),
                (lambda: IN_PLACE_INTERVAL_MS, self.check_in_place),
                (lambda: PRODUCER_EXPIRY_INTERVAL_MS, self.expire_producers),
                (lambda: SCRUB_INTERVAL_MS, self.scrub),
            ):
                group.create_task(self._repeat(interval_ms, task))

    async def _repeat(
        self, interval_ms: Callable[[], int], task: Callable[[], Awaitable[None]]
    ) -> None:
        while True:
            await self._logs.clock.sleep(interval_ms() / 1000)
            await self._caught(task)

    async def _caught(self, task: Callable[[], Awaitable[None]]) -> None:
        try:
            await task()
        except Exception:
            _LOG.exception("log maintenance task failed")

    async def flush_recovered(self) -> None:
        """Flush the logs that recovery has checked, and store their recovery points.

        The broker serves meanwhile, because a start with many partitions must not wait for the
        device. Each directory flushes one log at a time and writes its checkpoint once.
        """
        by_directory: dict[str, list[HostedLog]] = {}
        for hosted in self._logs:
            if hosted.log.recovery_point < hosted.recovered_end_offset:
                by_directory.setdefault(hosted.directory.path, []).append(hosted)
        async with asyncio.TaskGroup() as group:
            for recovered in by_directory.values():
                group.create_task(self._flush_directory(recovered[0].directory, recovered))

    async def _flush_directory(
        self, directory: DataDirectory, recovered: Sequence[HostedLog]
    ) -> None:
        started_s = self._logs.clock.elapsed_s()
        for hosted in recovered:
            end_offset = hosted.recovered_end_offset
            await self._attempt(hosted, lambda log=hosted.log, end=end_offset: log.flush(end))
        if directory.failure is None:
            with suppress(StorageFailure):  # which takes it offline
                await self._logs.store(RECOVERY_POINTS, directory)
            _LOG.info(
                "recovered logs flushed",
                {
                    "directory": directory.path,
                    "partitions": len(recovered),
                    "seconds": round(self._logs.clock.elapsed_s() - started_s, 3),
                },
            )

    async def flush(self) -> None:
        """Flush the logs whose flush.ms is over, and the logs that have rolled.

        So a start after a crash checks about one segment per log, as with Kafka. flush.messages is
        handled by appends.
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
        """Delete the segments that retention does not keep."""
        async for hosted in self._usable():
            if self._logs.get(hosted.partition) is not hosted:
                continue  # deleted while other logs were processed
            high_watermark = self._high_watermark(hosted.partition)

            async def work(log: PartitionLog = hosted.log, upto: Offset = high_watermark) -> None:
                count = await log.delete_old_segments(
                    high_watermark=upto, now_ms=self._logs.clock.now_ms()
                )
                if count:
                    _LOG.info("segments deleted", {"directory": log.directory, "segments": count})

            await self._attempt(hosted, work)

    async def purge(self) -> None:
        """Remove deleted files and directories whose delay is over."""
        now_ms = self._logs.clock.now_ms()
        async for hosted in self._usable():
            if hosted.log.has_pending_deletes:
                await self._attempt(hosted, lambda log=hosted.log: log.purge(now_ms))
        await self._logs.purge()

    async def check_in_place(self) -> None:
        """Take the data directories offline that were removed, also partly (rule C10).

        Otherwise the broker would acknowledge records that no start finds again.
        """
        logs, now_ms = self._logs, self._logs.clock.now_ms()
        directories = logs.online
        due: list[tuple[HostedLog, File]] = []
        async for hosted in self._usable():
            end_offset = hosted.log.log_end_offset
            if hosted.seen_end_offset != end_offset or now_ms - hosted.seen_ms >= IDLE_IN_PLACE_MS:
                hosted.seen_end_offset, hosted.seen_ms = end_offset, now_ms
                due.append((hosted, hosted.log.segments.active.file))

        def look() -> tuple[list[StorageFailure | None], list[StorageFailure | None]]:
            return [*map(_misplacement, directories)], [_removal(file) for _, file in due]

        misplacements, removals = await logs.disk.blocking(look)
        for directory, failure in zip(directories, misplacements, strict=True):
            if failure is not None:
                logs.fail(directory, failure)
        for (hosted, file), failure in zip(due, removals, strict=True):
            log = hosted.log
            is_active = file is log.segments.active.file and not log.is_truncating
            # Otherwise the log was rolled, truncated or deleted meanwhile.
            if failure is not None and is_active and logs.get(hosted.partition) is hosted:
                logs.fail(hosted.directory, failure)

    async def expire_producers(self) -> None:
        """Expire producers that have not written for producer.id.expiration.ms."""
        now_ms, limit_ms = self._logs.clock.now_ms(), self._config().producer_expiration_ms
        async for hosted in self._usable():
            hosted.log.producers.expire(now_ms, limit_ms)

    async def scrub(self) -> None:
        """Search for damage below the recovery points, so that it is not served (rule C4)."""

        async def pause(size: int) -> None:
            await self._logs.clock.sleep(size / SCRUB_BYTES_PER_SECOND)

        async for hosted in self._usable():

            async def work(log: PartitionLog = hosted.log) -> None:
                known = log.damaged
                if left := [one for one in await log.scrub(pause) if one in known]:
                    about = {"directory": log.directory, "offsets": offset_ranges(left)}
                    _LOG.error("damage not repaired yet", about)

            await self._attempt(hosted, work)

    async def store_recovery_points(self) -> None:
        """Write the recovery point checkpoints."""
        await self._store(RECOVERY_POINTS)

    async def store_log_starts(self) -> None:
        """Write the log start offset checkpoints."""
        await self._store(LOG_START_OFFSETS)

    async def store_high_watermarks(self) -> None:
        """Write the high watermark checkpoints."""
        async for hosted in self._usable():
            if self._logs.get(hosted.partition) is hosted:
                hosted.high_watermark = self._high_watermark(hosted.partition)
        await self._store(HIGH_WATERMARKS)

    async def _store(self, name: str) -> None:
        for directory in self._logs.online:
            with suppress(StorageFailure):  # which takes it offline
                await self._logs.store(name, directory)

    async def _usable(self) -> AsyncGenerator[HostedLog]:
        """The logs in online directories; yields to the event loop now and then."""
        for number, hosted in enumerate(self._logs, 1):
            if hosted.directory.failure is None:
                yield hosted
            if number % LOGS_PER_SLICE == 0:
                await asyncio.sleep(0)

    async def _attempt(self, hosted: HostedLog, work: Callable[[], Awaitable[None]]) -> None:
        """Run work on a log unless it was deleted; a failure takes its data directory offline."""
        if hosted.directory.failure is not None or self._logs.get(hosted.partition) is not hosted:
            return
        # RequestError: the log was deleted while this waited for its lock.
        with suppress(StorageFailure, RequestError):
            await self._logs.guarded(hosted.directory, work)


def _misplacement(directory: DataDirectory) -> StorageFailure | None:
    """The failure of a directory that is not in its place; waits for the device."""
    try:
        directory.check_in_place()
    except StorageFailure as failure:
        return failure
    except FileNotFoundError as missing:
        return StorageFailure(f"{directory.path}: {missing}")
    return None


def _removal(file: File) -> StorageFailure | None:
    """The failure of a file that is not in its place; waits for the device."""
    try:
        if file.is_in_place():
            return None
    except StorageFailure as failure:
        return failure
    return StorageFailure(f"{file.path}: removed, moved or replaced while the broker runs")
