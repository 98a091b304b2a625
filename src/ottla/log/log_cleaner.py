"""The log cleaner of a broker: cleans the log with the highest dirty ratio first.

Invariant: a log is cleaned by one cleaner at a time. The first dirty offset is stored before it is
used: after a crash a part is cleaned again, never skipped. A log that cannot be cleaned is
suspended for a while and does not delay others.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Self

from ottla.errors import OttlaError, RequestError, StorageExhausted, StorageFailure
from ottla.ids import Offset, TopicPartition
from ottla.log.cleaner.cleanable import Cleanable, next_to_clean
from ottla.log.cleaner.cleaner_runners import Cleaner, CleaningAborted, CleaningFailed
from ottla.log.cleaner.compaction import CleaningDone, CleaningLimits
from ottla.log.loading import HostedLog
from ottla.log.log_manager import LogManager
from ottla.log.names import CLEANED_OFFSETS
from ottla.settings import broker
from ottla.settings.config import Config

_LOG = logging.getLogger(__name__)

SUSPEND_SECONDS: Final = 600.0  # after a failed cleaning


@dataclass(frozen=True, slots=True)
class LogCleanerConfig:
    """The settings `log.cleaner.*` of a broker; the defaults are Kafka's."""

    cleaners: int = 1
    backoff_ms: int = 15_000
    limits: CleaningLimits = CleaningLimits()  # noqa: RUF009 - it never changes

    @classmethod
    def of(cls, config: Config) -> Self:
        """The settings of a broker's configuration."""
        enabled = config[broker.LOG_CLEANER_ENABLE]
        return cls(
            config[broker.LOG_CLEANER_THREADS] if enabled else 0,
            config[broker.LOG_CLEANER_BACKOFF_MS],
            CleaningLimits.of(config),
        )


@dataclass(slots=True, eq=False)
class CleanerStats:
    """The figures of the log cleaner: of its last check, of all cleanings, of the last cleaning."""

    max_dirty_ratio: float = 0.0
    max_compaction_delay_ms: int = 0
    backlog_partitions: int = 0  # due, and not being cleaned
    backlog_bytes: int = 0

    cleanings: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    recopy_ratio: float = 0.0
    last_clean_ms: int = 0

    def note_check(
        self, found: Mapping[TopicPartition, Cleanable], chosen: TopicPartition | None = None
    ) -> None:
        """Note the logs that are not being cleaned; the chosen one is cleaned next."""
        waiting = [one for name, one in found.items() if one.is_due and name != chosen]
        self.max_dirty_ratio = max((one.ratio for one in found.values()), default=0.0)
        self.max_compaction_delay_ms = max((one.overdue_ms for one in found.values()), default=0)
        self.backlog_partitions = len(waiting)
        self.backlog_bytes = sum(one.dirty_bytes for one in waiting)

    def note_cleaning(self, done: CleaningDone) -> None:
        """Note a completed cleaning."""
        self.cleanings += 1
        self.bytes_read += done.bytes_read
        self.bytes_written += done.bytes_written
        self.recopy_ratio = done.bytes_written / max(done.bytes_read, 1)
        self.last_clean_ms = done.took_ms


class LogCleaner:
    """Cleans logs that are due until it is cancelled."""

    def __init__(
        self,
        logs: LogManager,
        cleaner: Cleaner,
        config: Callable[[], LogCleanerConfig],
        high_watermark: Callable[[TopicPartition], Offset],
        secret: bytes,
    ) -> None:
        self._logs = logs
        self._cleaner = cleaner
        self._config = config
        self._high_watermark = high_watermark
        self._secret = bytes(secret)  # to hash keys; plain bytes, because the job is sent as JSON
        self.stats = CleanerStats()
        self._last_run_s = logs.clock.elapsed_s()
        self._busy: dict[TopicPartition, asyncio.Task[None]] = {}
        self._suspended: dict[TopicPartition, float] = {}  # with the end of the suspension

    @property
    def suspended_count(self) -> int:
        """The number of logs that could not be cleaned and are suspended."""
        now_s = self._logs.clock.elapsed_s()
        return sum(until > now_s for until in self._suspended.values())

    @property
    def since_last_run_s(self) -> float:
        """The time since a free cleaner last looked for a log to clean."""
        return self._logs.clock.elapsed_s() - self._last_run_s

    async def run(self) -> None:
        """Clean one log after the other."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    await self._begin_due(group)
                    backoff_s = max(self._config().backoff_ms / 1000, 0.1)
                    if self._busy:
                        await asyncio.wait(
                            self._busy.values(),
                            timeout=backoff_s,
                            return_when=asyncio.FIRST_COMPLETED,
                        )
                    else:
                        await self._logs.clock.sleep(backoff_s)
        finally:
            self._busy.clear()

    async def _begin_due(self, group: asyncio.TaskGroup) -> None:
        while True:
            while len(self._busy) < self._config().cleaners:
                hosted = await self.next_due()
                if hosted is None:
                    return
                task = group.create_task(self._run_cleaning(hosted))
                self._busy[hosted.partition] = task
            # No cleaner is free, but the backlog may have changed.
            self.stats.note_check(await self._find_cleanable())
            if len(self._busy) >= self._config().cleaners:
                return

    async def _run_cleaning(self, hosted: HostedLog) -> None:
        try:
            await self.clean(hosted)
        except Exception as error:
            # A bug; the other logs are still cleaned.
            _LOG.exception("log cleaning failed", {"partition": hosted.partition})
            self._suspend(hosted, error)
        finally:
            self._busy.pop(hosted.partition, None)

    async def next_due(self) -> HostedLog | None:
        """The log with the highest dirty ratio, of those that are due and not being cleaned."""
        self._last_run_s = self._logs.clock.elapsed_s()
        found = await self._find_cleanable()
        chosen = next_to_clean(found)
        self.stats.note_check(found, chosen)
        return None if chosen is None else self._logs.get(chosen)

    async def _find_cleanable(self) -> dict[TopicPartition, Cleanable]:
        """What can be cleaned of each log that is neither being cleaned nor suspended."""
        now_s = self._logs.clock.elapsed_s()
        self._suspended = {name: until for name, until in self._suspended.items() if until > now_s}
        found: dict[TopicPartition, Cleanable] = {}
        for hosted in self._logs:
            name = hosted.partition
            if not hosted.log.config.compact or hosted.directory.failure is not None:
                continue
            if self._logs.get(name) is not hosted:
                continue  # deleted while other logs were examined
            if name not in self._busy and name not in self._suspended:
                try:
                    found[name] = await hosted.log.find_cleanable(
                        hosted.first_dirty_offset,
                        high_watermark=self._high_watermark(name),
                        now_ms=self._logs.clock.now_ms(),
                    )
                except (OttlaError, FileNotFoundError) as error:
                    self._suspend(hosted, error)
        return found

    async def clean(self, hosted: HostedLog) -> CleaningDone | None:
        """Clean a log and store its first dirty offset; None if nothing was cleaned."""
        done: CleaningDone | None = None
        if self._logs.get(hosted.partition) is not hosted:
            return None  # deleted before the cleaning started
        try:
            done = await hosted.log.compact(
                self._cleaner,
                hosted.first_dirty_offset,
                high_watermark=self._high_watermark(hosted.partition),
                secret=self._secret,
                clock_ms=self._logs.clock.now_ms,
                limits=self._config().limits,
            )
            if done is not None:
                end = hosted.log.log_end_offset  # the log may have been truncated meanwhile
                hosted.first_dirty_offset = Offset(min(done.first_dirty_offset, end))
                await self._logs.store(CLEANED_OFFSETS, hosted.directory)
                self.stats.note_cleaning(done)
                _log_result(hosted, done)
        except StorageExhausted as full:
            self._logs.fail(hosted.directory, full)
            self._suspend(hosted, full)  # do not try again at once
        except StorageFailure as failure:
            self._logs.fail(hosted.directory, failure)
        except (CleaningAborted, RequestError) as aborted:  # truncated, or deleted
            about = {"partition": hosted.partition, "reason": str(aborted)}
            _LOG.info("log cleaning aborted", about)
        except CleaningFailed as failure:
            self._suspend(hosted, failure)
        return done

    def _suspend(self, hosted: HostedLog, error: Exception) -> None:
        about = {"partition": hosted.partition, "reason": str(error), "seconds": SUSPEND_SECONDS}
        _LOG.error("log cleaning suspended", about)
        self._suspended[hosted.partition] = self._logs.clock.elapsed_s() + SUSPEND_SECONDS


def _log_result(hosted: HostedLog, done: CleaningDone) -> None:
    _LOG.info(
        "log cleaned",
        {
            "partition": hosted.partition,
            "up_to": done.first_dirty_offset,
            "seconds": round(done.took_ms / 1000, 1),
            "records_kept": done.records_kept,
            "records_read": done.records_read,
            "bytes_written": done.bytes_written,
            "bytes_read": done.bytes_read,
        },
    )
