"""Cleaning of all logs of a broker, in simulated time."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from log.log_managers import EPOCH, created, opened, partition, values
from log.logs import SMALL
from ottla.errors import RequestError
from ottla.ids import Offset, TopicPartition
from ottla.log.cleaner.cleanable import Cleanable
from ottla.log.cleaner.cleaner_runners import Cleaner, CleaningFailed, LocalCleaner
from ottla.log.cleaner.compaction import CleaningEvent, CleaningJob, CleaningLimits
from ottla.log.disk import Disk, read_whole
from ottla.log.loading import HostedLog
from ottla.log.log_cleaner import SUSPEND_SECONDS, LogCleaner, LogCleanerConfig
from ottla.log.log_manager import LogManager
from ottla.log.names import CLEANED_OFFSETS
from ottla.log.partition_log import PartitionLog
from ottla.records.builder import BatchBuilder
from ottla.records.validation import ValidationConfig, validate
from ottla.settings.config_parser import broker_config
from ottla.testing.clock import SimulatedClock, simulated
from ottla.testing.disk import SimulatedDisk

COMPACT = replace(SMALL, compact=True, delete=False, min_cleanable_dirty_ratio=0.3)
SECRET = bytes(range(16))


def put(hosted: HostedLog, key: bytes, value: bytes) -> None:
    builder = BatchBuilder()
    builder.append(0, key, value)
    data = builder.build()
    valid = validate(data, ValidationConfig(), now_ms=0, produce_version=11)
    hosted.log.append(valid, memoryview(data), leader_epoch=0, now_ms=0)


def fill(hosted: HostedLog, count: int, *, keys: int = 3) -> None:
    for number in range(count):
        put(hosted, b"k%d" % (number % keys), b"%d" % number + bytes(150))


def compactor(
    logs: LogManager, cleaner: Cleaner | None = None, rules: LogCleanerConfig | None = None
) -> LogCleaner:
    def end(partition: TopicPartition) -> Offset:
        return logs[partition].log.log_end_offset

    now = rules or LogCleanerConfig()
    return LogCleaner(logs, cleaner or LocalCleaner(lambda: 0.0), lambda: now, end, SECRET)


async def run_for(work: LogCleaner, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await work.run()


def test_cleaner_config_equals_the_settings() -> None:
    assert LogCleanerConfig.of(broker_config()) == LogCleanerConfig(
        limits=CleaningLimits.of(broker_config())
    )
    config = broker_config(
        overrides=(
            "log.cleaner.threads=4",
            "log.cleaner.backoff.ms=20",
            "log.cleaner.dedupe.buffer.size=40000000",
            "log.cleaner.io.buffer.load.factor=0.5",
            "log.cleaner.io.buffer.size=4000",
            "log.cleaner.io.max.bytes.per.second=100",
        )
    )
    limits = CleaningLimits(10_000_000, 0.5, 500, 25.0)
    assert LogCleanerConfig.of(config) == LogCleanerConfig(4, 20, limits)
    off = broker_config(overrides=("log.cleaner.enable=false",))
    assert LogCleanerConfig.of(off).cleaners == 0


def test_due_log_is_cleaned_once_and_checkpointed() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock, rules=COMPACT)
        dirty, kept = await created(logs, 0, COMPACT), await created(logs, 1)
        fill(dirty, 40)
        fill(kept, 40)
        before = await values(kept)
        await run_for(compactor(logs), 60)
        assert await values(kept) == before
        assert dirty.first_dirty_offset == dirty.log.segments.active.base_offset
        assert len(await values(dirty)) <= 3 + 7  # keys, plus the active segment
        stored = read_whole(disk, f"/data/{CLEANED_OFFSETS}").decode()
        assert stored == f"0\n1\nt 0 {dirty.first_dirty_offset}\n"
        await logs.close(EPOCH)
        again = await opened(disk, clock, rules=COMPACT)
        assert again[partition(0)].first_dirty_offset == dirty.first_dirty_offset
        calls = len(disk.calls)
        await run_for(compactor(again), 60)
        assert not any("t-0" in path for _, path in disk.calls[calls:])

    simulated(program)


def test_dirtiest_log_is_cleaned_first() -> None:
    async def program(clock: SimulatedClock) -> None:
        logs = await opened(SimulatedDisk(), clock, rules=COMPACT)
        for number, count in enumerate((30, 60)):
            fill(await created(logs, number, COMPACT), count)
        work = compactor(logs)
        first = await work.next_due()
        assert first is not None
        await work.clean(first)
        fill(logs[partition(1)], 20)
        fill(logs[partition(0)], 2)
        chosen = await work.next_due()
        assert chosen is logs[partition(1)]

    simulated(program)


def test_no_log_is_cleaned_without_cleaners() -> None:
    async def program(clock: SimulatedClock) -> None:
        logs = await opened(SimulatedDisk(), clock, rules=COMPACT)
        fill(await created(logs, 0, COMPACT), 40)
        await run_for(compactor(logs, rules=LogCleanerConfig(cleaners=0)), 600)
        assert logs[partition(0)].first_dirty_offset is None

    simulated(program)


class FailingCleaner(LocalCleaner):
    """Fails for one log, and counts the attempts."""

    def __init__(self, folder: str) -> None:
        super().__init__(lambda: 0.0)
        self._folder = folder
        self.failures = 0

    async def clean(self, disk: Disk, job: CleaningJob) -> AsyncGenerator[CleaningEvent, None]:
        if job.directory == self._folder:
            self.failures += 1
            raise CleaningFailed(f"{job.directory}: it is not to be")
        async for news in super().clean(disk, job):
            yield news


def test_log_that_cannot_be_cleaned_is_suspended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def program(clock: SimulatedClock) -> None:
        logs = await opened(SimulatedDisk(), clock, rules=COMPACT)
        for number in range(3):
            fill(await created(logs, number, COMPACT), 60 - 10 * number)
        cleaner = FailingCleaner("/data/t-0")
        work = compactor(logs, cleaner)
        await run_for(work, 100)
        assert cleaner.failures == 1
        assert work.suspended_count == 1
        assert [one.first_dirty_offset is None for one in logs] == [True, False, False]
        await run_for(compactor(logs, cleaner), SUSPEND_SECONDS + 100)
        assert cleaner.failures == 3

    simulated(program)
    assert "it is not to be" in suspension_reasons(caplog)


class BuggyCleaner(LocalCleaner):
    """Raises an unexpected exception for one log."""

    async def clean(self, disk: Disk, job: CleaningJob) -> AsyncGenerator[CleaningEvent, None]:
        if job.directory == "/data/t-0":
            raise TypeError("our mistake")
        async for news in super().clean(disk, job):
            yield news


def suspension_reasons(caplog: pytest.LogCaptureFixture) -> str:
    """The logged reasons for suspending a log."""
    told = [one.args for one in caplog.records if one.msg == "log cleaning suspended"]
    assert isinstance(told[0], Mapping)
    return str(told[0]["reason"])


def test_unexpected_error_does_not_stop_other_cleanings(caplog: pytest.LogCaptureFixture) -> None:
    async def program(clock: SimulatedClock) -> None:
        logs = await opened(SimulatedDisk(), clock, rules=COMPACT)
        for number in range(3):
            fill(await created(logs, number, COMPACT), 60 - 10 * number)
        await run_for(compactor(logs, BuggyCleaner(lambda: 0.0)), 100)
        assert [one.first_dirty_offset is None for one in logs] == [True, False, False]

    simulated(program)
    assert "our mistake" in suspension_reasons(caplog)


class SlowCleaner(LocalCleaner):
    """Waits ten seconds before each cleaning, and counts the concurrent ones."""

    no_pause = most = 0

    def __init__(self, clock: SimulatedClock) -> None:
        super().__init__(lambda: 0.0)
        self._wait = clock

    async def clean(self, disk: Disk, job: CleaningJob) -> AsyncGenerator[CleaningEvent, None]:
        self.no_pause += 1
        self.most = max(self.most, self.no_pause)
        try:
            await self._wait.sleep(10)
            async for news in super().clean(disk, job):
                yield news
        finally:
            self.no_pause -= 1


def test_concurrent_cleanings_are_limited_by_cleaners() -> None:
    async def program(clock: SimulatedClock) -> None:
        logs = await opened(SimulatedDisk(), clock, rules=COMPACT)
        for number in range(5):
            fill(await created(logs, number, COMPACT), 40)
        cleaner = SlowCleaner(clock)
        rules = LogCleanerConfig(cleaners=2, backoff_ms=100)
        await run_for(compactor(logs, cleaner, rules), 31)
        assert cleaner.most == 2
        assert all(one.first_dirty_offset is not None for one in logs)

    simulated(program)


def test_stats_have_the_dirt_and_the_bytes_of_cleanings() -> None:
    async def program(clock: SimulatedClock) -> None:
        logs = await opened(SimulatedDisk(), clock, rules=COMPACT)
        for number in range(2):
            fill(await created(logs, number, COMPACT), 40)
        work = compactor(logs)
        await clock.sleep(50)
        assert work.since_last_run_s == 50
        first = await work.next_due()
        assert first is not None
        assert work.since_last_run_s == 0
        stats = work.stats
        assert stats.max_dirty_ratio == 1.0
        assert stats.backlog_partitions == 1  # the chosen log does not wait
        active = first.log.segments.active
        assert stats.backlog_bytes == sum(
            one.size
            for one in logs[partition(1)].log.segments
            if one.base_offset < active.base_offset
        )
        done = await work.clean(first)
        assert done is not None
        assert 0 < done.bytes_written < done.bytes_read
        assert (stats.cleanings, stats.bytes_read) == (1, done.bytes_read)
        assert stats.bytes_written == done.bytes_written
        assert stats.recopy_ratio == done.bytes_written / done.bytes_read
        await run_for(work, 60)
        assert (stats.cleanings, stats.bytes_read) == (2, 2 * done.bytes_read)
        assert (stats.backlog_partitions, stats.backlog_bytes, stats.max_dirty_ratio) == (0, 0, 0.0)
        assert work.suspended_count == 0

    simulated(program)


def test_backlog_is_known_while_all_cleaners_are_busy() -> None:
    async def program(clock: SimulatedClock) -> None:
        logs = await opened(SimulatedDisk(), clock, rules=COMPACT)
        fill(await created(logs, 0, COMPACT), 40)
        work = compactor(logs, SlowCleaner(clock), LogCleanerConfig(backoff_ms=1000))
        running = asyncio.create_task(run_for(work, 30))
        await clock.sleep(2)
        assert (work.stats.backlog_partitions, work.stats.max_dirty_ratio) == (0, 0.0)
        fill(await created(logs, 1, COMPACT), 40)
        await clock.sleep(3)
        assert (work.stats.backlog_partitions, work.stats.max_dirty_ratio) == (1, 1.0)
        assert work.since_last_run_s == 5
        await running
        assert (work.stats.backlog_partitions, work.stats.cleanings) == (0, 2)

    simulated(program)


def test_compaction_delay_is_the_longest_overdue_time() -> None:
    late = replace(COMPACT, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=5_000)

    async def program(clock: SimulatedClock) -> None:
        logs = await opened(SimulatedDisk(), clock, rules=late)
        hosted = await created(logs, 0, late)
        now_ms = clock.now_ms()
        for number in range(40):
            builder = BatchBuilder()
            builder.append(now_ms, b"k", b"%d" % number + bytes(150))
            data = builder.build()
            valid = validate(data, ValidationConfig(), now_ms=now_ms, produce_version=11)
            hosted.log.append(valid, memoryview(data), leader_epoch=0, now_ms=now_ms)
        await clock.sleep(8)
        work = compactor(logs)
        assert await work.next_due() is hosted
        assert work.stats.max_compaction_delay_ms == 3_000

    simulated(program)


def test_truncation_or_deletion_aborts_a_waiting_cleaning() -> None:
    async def program(clock: SimulatedClock) -> None:
        logs = await opened(SimulatedDisk(), clock, rules=COMPACT)
        for number in range(2):
            fill(await created(logs, number, COMPACT), 40)
        work = compactor(logs, SlowCleaner(clock), LogCleanerConfig(cleaners=2))
        async with asyncio.TaskGroup() as group:
            group.create_task(run_for(work, 12))
            await clock.sleep(5)
            await logs.truncate(partition(0), 20)
            await logs.delete([partition(1)])
        assert logs[partition(0)].first_dirty_offset is None
        assert logs.online == logs.directories

    simulated(program)


class WritingCleaner(LocalCleaner):
    """Writes a file, and continues in the directory of that name until it is cancelled."""

    def __init__(self, clock: SimulatedClock) -> None:
        super().__init__(lambda: 0.0)
        self._wait = clock
        self.ended = False

    async def clean(self, disk: Disk, job: CleaningJob) -> AsyncGenerator[CleaningEvent, None]:
        try:
            for number in range(100):
                disk.open(f"{job.directory}/{number:020}.log.cleaned", create=True)
                await self._wait.sleep(1)
            async for news in super().clean(disk, job):
                yield news
        finally:
            self.ended = True


def test_c7_cleaning_ends_with_its_partition() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock, rules=COMPACT)
        fill(await created(logs, 0, COMPACT), 40)
        cleaner = WritingCleaner(clock)
        work = compactor(logs, cleaner)
        running = asyncio.create_task(run_for(work, 60))
        await clock.sleep(5.5)
        old = logs[partition(0)].log
        assert any(name.endswith(".cleaned") for name in disk.names("/data/t-0"))
        await logs.delete([partition(0)])
        assert cleaner.ended
        await created(logs, 0, COMPACT)
        await clock.sleep(30)
        assert not running.done()  # the other logs are cleaned
        assert not any(name.endswith(".cleaned") for name in disk.names("/data/t-0"))
        with pytest.raises(RequestError, match="deleted"):
            await old.compact(cleaner, None, high_watermark=0, secret=SECRET, clock_ms=clock.now_ms)
        await running

    simulated(program)


def test_failed_directory_in_a_cleaning_goes_offline() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock, rules=COMPACT)
        fill(await created(logs, 0, COMPACT), 40)
        await logs[partition(0)].log.flush()
        disk.fails = lambda what, path: what == "rename"
        await run_for(compactor(logs), 30)
        assert logs.online == []

    simulated(program)


def test_failing_cleanable_check_does_not_stop_others() -> None:
    async def program(clock: SimulatedClock) -> None:
        rules = replace(COMPACT, max_compaction_lag_ms=1000)
        logs = await opened(SimulatedDisk(), clock, rules=rules)
        for number in range(2):
            fill(await created(logs, number, rules), 40)
        broken = logs[partition(0)].log

        async def refuse(*args: object, **kwargs: object) -> Cleanable:
            raise CleaningFailed("it cannot be looked at")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                type(broken),
                "find_cleanable",
                _except_for(broken, refuse, type(broken).find_cleanable),
            )
            await run_for(compactor(logs), 60)
        assert [one.first_dirty_offset is None for one in logs] == [True, False]

    simulated(program)


def test_deleting_a_log_does_not_stop_the_cleaner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def program(clock: SimulatedClock) -> None:
        logs = await opened(SimulatedDisk(), clock)
        for number in range(3):
            fill(await created(logs, number, COMPACT), 12)
        first, dirt = logs[partition(0)].log, PartitionLog.find_cleanable

        async def look(log: PartitionLog, *args: Any, **options: Any) -> Cleanable:
            if log is first and logs.get(partition(1)) is not None:
                await logs.delete([partition(1)])
            return await dirt(log, *args, **options)

        monkeypatch.setattr(PartitionLog, "find_cleanable", look)
        work = compactor(logs)
        await run_for(work, 60)
        assert logs[partition(2)].first_dirty_offset
        gone = logs[partition(2)]
        await logs.delete([partition(2)])
        assert await work.clean(gone) is None  # chosen, but deleted before its turn

    simulated(program)


def _except_for(
    broken: object, refuse: Callable[..., Any], otherwise: Callable[..., Any]
) -> Callable[..., Any]:
    """A method that calls `refuse` for one log and `otherwise` for the others."""

    def chosen(self: object, *args: object, **kwargs: object) -> Any:
        return (refuse if self is broken else otherwise)(self, *args, **kwargs)

    return chosen


def test_log_is_suspended_if_the_disk_is_full() -> None:
    """The cleaner does not repeat it without a pause."""

    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock)
        hosted = await created(logs, 0, COMPACT)
        fill(hosted, 20)
        room = disk.room("/")
        disk.capacity_bytes = room.total_bytes - room.usable_bytes
        work = compactor(logs)
        before = len(disk.calls)
        await run_for(work, SUSPEND_SECONDS / 2)
        assert len(disk.calls) - before < 100
        assert logs.online == logs.directories
        disk.capacity_bytes = None
        await run_for(work, SUSPEND_SECONDS)
        assert hosted.first_dirty_offset

    simulated(program)
