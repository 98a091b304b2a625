"""The maintenance tasks of logs at their intervals, in simulated time."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import TypeVar

import pytest

from cases import each_case
from log.log_managers import EPOCH, append, created, lead, opened, partition, run_for
from log.logs import SMALL
from log.logs import append as append_batch
from ottla.errors import ErrorCode, RequestError, StorageFailure
from ottla.ids import Offset, TopicPartition
from ottla.log import maintenance
from ottla.log.disk import read_whole
from ottla.log.log_manager import Cut, LogManager
from ottla.log.maintenance import Maintenance, MaintenanceConfig
from ottla.log.names import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from ottla.settings.config_parser import broker_config
from ottla.testing.clock import SimulatedClock, simulated
from ottla.testing.disk import Loss, SimulatedDisk

NEVER = MaintenanceConfig(*[10**9] * 6)

T = TypeVar("T")


class BlockingOnceDisk(SimulatedDisk):
    """Holds the next blocking call until it is released, but not the calls after it."""

    held: asyncio.Event | None = None

    @property
    def holds_next(self) -> bool:
        return self.held is not None

    async def blocking(self, call: Callable[[], T]) -> T:
        if (held := self.held) is not None:
            self.held = None
            await held.wait()
        return call()


def upkeep(logs: LogManager, rules: MaintenanceConfig = NEVER) -> Maintenance:
    def end(partition: TopicPartition) -> Offset:
        return logs[partition].log.log_end_offset

    return Maintenance(logs, lambda: rules, end)


def test_intervals_equal_the_settings() -> None:
    assert MaintenanceConfig.of(broker_config()) == MaintenanceConfig()
    changed = broker_config(
        overrides=(
            "log.flush.scheduler.interval.ms=20",
            "log.retention.check.interval.ms=30",
            "log.flush.offset.checkpoint.interval.ms=40",
            "log.flush.start.offset.checkpoint.interval.ms=50",
            "replica.high.watermark.checkpoint.interval.ms=60",
            "producer.id.expiration.ms=70",
        )
    )
    assert MaintenanceConfig.of(changed) == MaintenanceConfig(20, 30, 40, 50, 60, 70)


def test_log_is_flushed_after_flush_ms() -> None:
    async def program(clock: SimulatedClock) -> None:
        logs = await opened(SimulatedDisk(), clock)
        often = await created(logs, 0, replace(SMALL, flush_ms=3000))
        never = await created(logs, 1)
        duties = upkeep(logs, replace(NEVER, flush_check_ms=1000))
        append(often, b"x")
        append(never, b"x")
        await run_for(duties, 2.5)
        assert (often.log.recovery_point, never.log.recovery_point) == (0, 0)
        await run_for(duties, 1.5)
        assert (often.log.recovery_point, never.log.recovery_point) == (1, 0)
        # The interval of a log without records to flush starts with its first append.
        await run_for(duties, 30)
        append(often, b"y")
        await run_for(duties, 1.5)
        assert often.log.recovery_point == 1
        await run_for(duties, 3.5)
        assert often.log.recovery_point == 2

    simulated(program)


def test_snapshot_keeps_producers_without_records() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock)
        hosted = await created(logs, 0)
        append_batch(hosted.log, b"x", producer_id=4)
        assert await hosted.log.delete_old_segments(high_watermark=1, now_ms=10**12) == 1
        await run_for(upkeep(logs, replace(NEVER, flush_check_ms=1000)), 2)
        assert disk.exists(f"{hosted.log.directory}/{1:020d}.snapshot")

    simulated(program)


def test_log_is_flushed_after_a_roll() -> None:
    async def program(clock: SimulatedClock) -> None:
        logs = await opened(SimulatedDisk(), clock)
        hosted = await created(logs, 0)
        append(hosted, bytes(600))
        duties = upkeep(logs, replace(NEVER, flush_check_ms=1000))
        await run_for(duties, 30)
        assert hosted.log.recovery_point == 0
        append(hosted, bytes(600))
        assert len(hosted.log.segments) == 2
        await run_for(duties, 2)
        assert hosted.log.recovery_point == 2

    simulated(program)


def test_recovered_logs_are_not_recovered_again() -> None:
    """After `kill -9`, the start flushes what it has recovered and stores the recovery points."""

    async def program(clock: SimulatedClock) -> None:
        disk, paths = SimulatedDisk(), ("/one", "/two")
        logs = await opened(disk, clock, paths)
        for number in range(4):
            append(await created(logs, number), b"x", b"y")
        logs.release()  # as the operating system does after `kill -9`
        logs = await opened(disk, clock, paths)
        assert [hosted.log.recovery_point for hosted in logs] == [0] * 4
        began = len(disk.calls)
        await run_for(upkeep(logs), 0.5)
        assert [hosted.log.recovery_point for hosted in logs] == [2] * 4
        stored = [path for what, path in disk.calls[began:] if what == "rename"]
        assert sorted(path for path in stored if RECOVERY_POINTS in path) == [
            f"{path}/{RECOVERY_POINTS}.tmp" for path in paths
        ]
        again = await opened(disk.after_crash(Loss.ALL, Random(0)), clock, paths)
        assert [hosted.log.recovery_point for hosted in again] == [2] * 4

    simulated(program)


def test_clean_start_flushes_nothing() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock)
        append(await created(logs, 0), b"x")
        await logs.close(EPOCH)
        logs = await opened(disk, clock)
        await lead(logs, 1)
        append(logs[partition(0)], b"y")
        await run_for(upkeep(logs), 0.5)
        assert logs[partition(0)].log.recovery_point == 1

    simulated(program)


def test_files_of_old_segments_are_removed_after_the_delay() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock)
        hosted = await created(logs, 0, replace(SMALL, retention_ms=3_600_000))
        for _ in range(10):
            append(hosted, bytes(300), timestamp=clock.now_ms())
        duties = upkeep(logs, replace(NEVER, retention_check_ms=300_000))
        await run_for(duties, 3500)
        assert hosted.log.log_start_offset == 0
        await run_for(duties, 340)
        assert hosted.log.log_start_offset == 10
        waiting = [name for name in disk.names("/data/t-0") if name.endswith(".deleted")]
        assert len(waiting) > 3
        await run_for(duties, 60)
        assert not any(name.endswith(".deleted") for name in disk.names("/data/t-0"))

    simulated(program)


def test_checkpoints_are_stored_at_their_intervals() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock)
        hosted = await created(logs, 0)
        append(hosted, b"x", b"y")
        await hosted.log.flush()
        hosted.log.advance_log_start(Offset(1))
        rules = replace(NEVER, high_watermark_ms=5000, recovery_point_ms=60_000, log_start_ms=9000)
        duties = upkeep(logs, rules)
        await run_for(duties, 6)
        assert read_whole(disk, f"/data/{HIGH_WATERMARKS}") == b"0\n1\nt 0 2\n"
        assert not disk.exists(f"/data/{LOG_START_OFFSETS}")
        await run_for(duties, 10)
        assert read_whole(disk, f"/data/{LOG_START_OFFSETS}") == b"0\n1\nt 0 1\n"
        assert not disk.exists(f"/data/{RECOVERY_POINTS}")
        await run_for(duties, 61)
        assert read_whole(disk, f"/data/{RECOVERY_POINTS}") == b"0\n1\nt 0 2\n"

    simulated(program)


def test_d4_idle_producers_expire() -> None:
    async def program(clock: SimulatedClock) -> None:
        logs = await opened(SimulatedDisk(), clock)
        hosted = await created(logs, 0)
        append_batch(
            hosted.log, b"x", timestamp=clock.now_ms(), now_ms=clock.now_ms(), producer_id=7
        )
        duties = upkeep(logs, replace(NEVER, producer_expiration_ms=3_600_000))
        await run_for(duties, 3000)
        assert hosted.log.producers.count == 1
        await run_for(duties, 1300)
        assert hosted.log.producers.count == 0

    simulated(program)


def test_c4_scrub_finds_unread_damage_within_a_week(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Without this, 14 simulated days run each of these tasks 1.2 million times for nothing.
    monkeypatch.setattr(maintenance, "PURGE_INTERVAL_MS", NEVER.flush_check_ms)
    monkeypatch.setattr(maintenance, "IN_PLACE_INTERVAL_MS", NEVER.flush_check_ms)

    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock)
        hosted = await created(logs, 0)
        for number in range(10):
            append(hosted, b"%d" % number + bytes(300))
        await hosted.log.flush()
        file = disk.open("/data/t-0/00000000000000000000.log")
        rotten = file.read(150, 1)[0] ^ 1
        file.write([bytes([rotten])], 150)
        duties = upkeep(logs)
        await run_for(duties, 6 * 86_400)
        assert hosted.log.damaged == ()
        await run_for(duties, 8 * 86_400)
        assert [(one.first_offset, one.end_offset) for one in hosted.log.damaged] == [(0, 1)]
        with pytest.raises(RequestError) as refused:
            await hosted.log.read(0, 10, 1000)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
        assert (await (await hosted.log.read(1, 10, 1000)).read()) != b""

    simulated(program)


def test_directories_of_deleted_partitions_are_removed() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock)
        append(await created(logs, 0), b"x")
        await logs.delete([partition(0)])
        await run_for(upkeep(logs), 62)
        assert not any(name.startswith("t-") for name in disk.names("/data"))

    simulated(program)


def test_failed_directory_does_not_stop_a_task_for_others() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock, ("/one", "/two"))
        for number in range(2):
            append(await created(logs, number, replace(SMALL, flush_ms=1)), b"x")
        disk.fails = lambda what, path: path.startswith("/one") and what == "sync"
        rules = MaintenanceConfig(1000, 1000, 1000, 1000, 1000, 1000)
        await run_for(upkeep(logs, rules), 5)
        assert [one.path for one in logs.online] == ["/two"]
        assert logs[partition(1)].log.recovery_point == 1
        assert b"t 1 1" in read_whole(disk, f"/two/{RECOVERY_POINTS}")

    simulated(program)


def test_log_deleted_meanwhile_does_not_fail_its_directory() -> None:
    async def program(clock: SimulatedClock) -> None:
        logs = await opened(SimulatedDisk(), clock)
        for number in range(2):
            append(await created(logs, number, replace(SMALL, flush_ms=1)), b"x")
        gone = logs[partition(0)]
        await gone.log.retire("it is being deleted")
        await run_for(upkeep(logs, replace(NEVER, flush_check_ms=1000)), 3)
        assert logs.online == logs.directories
        assert logs[partition(1)].log.recovery_point == 1

    simulated(program)


def test_log_deleted_during_a_task_is_skipped() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = BlockingOnceDisk()
        logs = await opened(disk, clock)
        for number in range(3):
            append(await created(logs, number), b"x")
        asked: list[TopicPartition] = []

        def end(partition: TopicPartition) -> Offset:
            asked.append(partition)
            return logs[partition].log.log_end_offset

        device = disk.held = asyncio.Event()
        flush = asyncio.create_task(logs[partition(0)].log.flush())
        while disk.holds_next:
            await asyncio.sleep(0)
        duty = asyncio.create_task(Maintenance(logs, lambda: NEVER, end).retain())
        await clock.sleep(0)
        await clock.sleep(0)
        await logs.delete([partition(1)])
        device.set()
        await flush
        await duty
        assert asked == [partition(0), partition(2)]

    simulated(program)


def test_directory_is_not_renamed_during_file_removal() -> None:
    """Otherwise a file could disappear with its directory before it is removed."""

    async def program(clock: SimulatedClock) -> None:
        disk = BlockingOnceDisk()
        logs = await opened(disk, clock)
        hosted = await created(logs, 0, replace(SMALL, file_delete_delay_ms=0))
        for _ in range(30):
            append(hosted, bytes(100))
        hosted.log.advance_log_start(Offset(20))
        await hosted.log.delete_old_segments(high_watermark=30, now_ms=clock.now_ms())
        removal = disk.held = asyncio.Event()
        duty = asyncio.create_task(upkeep(logs).purge())
        while disk.holds_next:
            await asyncio.sleep(0)
        deletion = asyncio.create_task(logs.delete([partition(0)]))
        await clock.sleep(60)
        assert disk.exists("/data/t-0")
        # It does not block creating a log either.
        append(await created(logs, 1), b"x")
        removal.set()
        await duty
        await deletion
        assert not disk.exists("/data/t-0")
        assert logs.online == logs.directories
        await clock.sleep(1)
        await logs.purge()
        assert [name for name in disk.names("/data") if name.startswith("t-")] == ["t-1"]

    simulated(program)


def test_flush_runs_between_two_file_removals() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = BlockingOnceDisk()
        logs = await opened(disk, clock)
        hosted = await created(logs, 0)
        for _ in range(30):
            append(hosted, bytes(100))
        hosted.log.advance_log_start(Offset(20))
        await hosted.log.delete_old_segments(high_watermark=30, now_ms=0)
        waiting = [name for name in disk.names("/data/t-0") if name.endswith(".deleted")]
        removal = disk.held = asyncio.Event()
        duty = asyncio.create_task(hosted.log.purge(SMALL.file_delete_delay_ms))
        while disk.holds_next:
            await asyncio.sleep(0)
        append(hosted, b"x")
        flush = asyncio.create_task(hosted.log.flush())
        await clock.sleep(1)
        calls = len(disk.calls)
        removal.set()
        await flush
        await duty
        done = [what for what, _ in disk.calls[calls:]]
        assert done[:2] == ["remove", "sync"]
        assert done.count("remove") == len(waiting) > 3

    simulated(program)


@each_case("duty", ["flush", "purge", "expire_producers", "store_high_watermarks"])
def test_maintenance_of_many_logs_yields_to_the_loop(
    duty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.log.maintenance.LOGS_PER_SLICE", 2)

    async def program(clock: SimulatedClock) -> None:
        logs = await opened(SimulatedDisk(), clock)
        for number in range(9):
            await created(logs, number)
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        beside = asyncio.create_task(other())
        await asyncio.sleep(0)
        before = turns
        await getattr(upkeep(logs), duty)()
        assert turns - before >= 4
        beside.cancel()

    simulated(program)


def remove_everything(disk: SimulatedDisk, directory: str) -> None:
    """Remove a directory as `rm -r` does."""
    for name in disk.names(directory):
        path = f"{directory}/{name}"
        if disk.is_directory(path):
            remove_everything(disk, path)
        else:
            disk.remove(path)
    disk.remove_directory(directory)


def removed(disk: SimulatedDisk) -> None:
    remove_everything(disk, "/one")


def moved(disk: SimulatedDisk) -> None:
    disk.rename("/one", "/elsewhere")


def replaced(disk: SimulatedDisk) -> None:
    remove_everything(disk, "/one")
    disk.make_directory("/one/t-0")


def without_a_partition(disk: SimulatedDisk) -> None:
    remove_everything(disk, "/one/t-0")


def with_a_moved_partition(disk: SimulatedDisk) -> None:
    disk.rename("/one/t-0", "/one/elsewhere")


@each_case(
    "change", [removed, moved, replaced, without_a_partition, with_a_moved_partition], ids=repr
)
@each_case("idle", [True, False])
def test_c10_removed_directory_goes_offline(
    change: Callable[[SimulatedDisk], None], idle: bool
) -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        failed: list[str] = []
        logs = await opened(
            disk, clock, ("/one", "/two"), offline=lambda one, partitions: failed.append(one.path)
        )
        for number in range(2):
            append(await created(logs, number), b"x")
        tasks = upkeep(logs)
        await run_for(tasks, 5)
        assert failed == []
        change(disk)
        if not idle:
            append(logs[partition(0)], b"still accepted")
        await run_for(tasks, 61 if idle else 2)
        assert failed == ["/one"]
        with pytest.raises(StorageFailure, match="removed, moved or replaced"):
            append(logs[partition(0)], b"y")
        append(logs[partition(1)], b"y")

    simulated(program)


class InterruptedDisk(SimulatedDisk):
    """Awaits something before each of the next blocking calls."""

    before: list[Callable[[], Awaitable[None]]]

    def __init__(self) -> None:
        super().__init__()
        self.before = []

    async def blocking(self, call: Callable[[], T]) -> T:
        if self.before:
            await self.before.pop(0)()
        return call()


def test_file_that_a_truncation_replaces_is_not_missed() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = InterruptedDisk()
        logs = await opened(disk, clock)
        append(await created(logs, 0), b"x")
        tasks = upkeep(logs)
        log = logs[partition(0)].log
        state = log._state  # pyright: ignore[reportPrivateUsage]

        async def replace_file() -> None:
            state.truncating = True
            path = log.segments.active.file.path
            disk.rename(path, f"{path}.old")

        disk.before = [replace_file]
        await tasks.check_in_place()
        assert disk.before == []
        assert logs.online == logs.directories
        state.truncating = False

    simulated(program)


def test_deleted_and_truncated_logs_are_not_missed() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = InterruptedDisk()
        logs = await opened(disk, clock)
        for number in range(2):
            append(await created(logs, number), b"x")
        tasks = upkeep(logs)

        async def change() -> None:
            await logs.delete([partition(0)])
            assert not await logs.truncate_all([Cut(partition(1), Offset(7), fully=True)])

        disk.before = [change]
        await tasks.check_in_place()
        assert disk.before == []
        await tasks.check_in_place()
        assert logs.online == logs.directories
        assert logs[partition(1)].log.log_end_offset == 7

    simulated(program)
