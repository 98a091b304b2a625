"""Shielded work runs to its end if its caller is cancelled."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest

from log.log_managers import EPOCH, append, created, lead, opened, partition, values
from log.logs import SMALL
from ottla.errors import StorageFailure
from ottla.ids import Offset
from ottla.log.disk import read_whole
from ottla.log.log_manager import Cut
from ottla.log.names import CLEAN_SHUTDOWN
from ottla.log.shield import shielded
from ottla.testing.clock import SimulatedClock, simulated
from ottla.testing.disk import SimulatedDisk

T = TypeVar("T")


class SlowDisk(SimulatedDisk):
    """Takes a second for every blocking call."""

    slow = False

    async def blocking(self, call: Callable[[], T]) -> T:
        if self.slow:
            await asyncio.sleep(1)
        return call()


async def cancelled_after(work: "asyncio.Task[object]", after_s: float) -> None:
    """Cancel work that has started, and wait until it has ended."""
    await asyncio.sleep(after_s)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


def test_cancellation_waits_for_shielded_work() -> None:
    async def program(clock: SimulatedClock) -> None:
        done: list[float] = []

        async def work() -> None:
            await clock.sleep(10)
            done.append(clock.elapsed_s())

        await cancelled_after(asyncio.create_task(shielded(work())), 3)
        assert done == [10.0]

    simulated(program)


def test_cancelled_restart_at_an_offset_completes() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SlowDisk()
        logs = await opened(disk, clock)
        hosted = await created(logs, 0)
        for _ in range(30):
            append(hosted, b"old", bytes(100))
        disk.slow = True
        restart = logs.truncate_all([Cut(partition(0), Offset(1000), fully=True)])
        await cancelled_after(asyncio.create_task(restart), 0.5)
        disk.slow = False
        assert hosted.log.log_end_offset == 1000
        await lead(logs, 1)
        append(hosted, b"new")
        await logs.close(EPOCH)
        again = await opened(disk, clock)
        assert await values(again[partition(0)]) == [b"new"]

    simulated(program)


@pytest.mark.parametrize("after_s", [0.5, 1.5, 2.5])
def test_d3_cancelled_truncation_completes(after_s: float) -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SlowDisk()
        logs = await opened(disk, clock)
        hosted = await created(logs, 0)
        for _ in range(30):
            append(hosted, b"x")
        await hosted.log.flush()
        disk.slow = True
        await cancelled_after(asyncio.create_task(logs.truncate(partition(0), 10)), after_s)
        disk.slow = False
        assert (hosted.log.log_end_offset, hosted.log.recovery_point) == (10, 10)
        assert b"t 0 10" in read_whole(disk, "/data/recovery-point-offset-checkpoint")

    simulated(program)


def test_c5_failed_sync_of_a_cancelled_caller_is_known() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SlowDisk()
        logs = await opened(disk, clock)
        hosted = await created(logs, 0)
        append(hosted, b"x")
        disk.slow = True
        disk.fails = lambda what, path: what == "sync"
        work = logs.guarded(hosted.directory, hosted.log.flush)
        await cancelled_after(asyncio.create_task(work), 0.5)
        disk.slow = False
        disk.fails = lambda what, path: False
        assert logs.online == []
        with pytest.raises(StorageFailure):
            append(hosted, b"y")
        await logs.close(EPOCH)
        assert not disk.exists(f"/data/{CLEAN_SHUTDOWN}")

    simulated(program)


def test_cancelled_retention_removes_its_files() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SlowDisk()
        logs = await opened(disk, clock)
        hosted = await created(logs, 0)
        for _ in range(30):
            append(hosted, bytes(100))
        hosted.log.advance_log_start(Offset(20))
        disk.slow = True
        retain = hosted.log.delete_old_segments(high_watermark=30, now_ms=0)
        await cancelled_after(asyncio.create_task(retain), 0.5)
        disk.slow = False
        await hosted.log.purge(SMALL.file_delete_delay_ms)
        assert not any(name.endswith(".deleted") for name in disk.names("/data/t-0"))

    simulated(program)


def test_appends_during_retention_are_kept() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SlowDisk()
        logs = await opened(disk, clock)
        hosted = await created(logs, 0)
        for _ in range(26):
            append(hosted, bytes(100))
        assert hosted.log.segments.active.size < SMALL.segment_bytes / 2  # there is space for more
        disk.slow = True
        retention = asyncio.create_task(
            hosted.log.delete_old_segments(high_watermark=26, now_ms=10**12)
        )
        added: list[bytes | None] = []
        await clock.sleep(0.3)
        while not retention.done():
            added.append(b"%d" % len(added) + bytes(200))
            append(hosted, added[-1] or b"")
            await clock.sleep(0.3)
        assert await retention > 1
        assert len(added) > 5
        assert hosted.log.log_start_offset == 26
        disk.slow = False
        assert await values(hosted) == added
        await hosted.log.purge(2 * 10**12)
        await logs.close(EPOCH)
        again = await opened(disk, clock)
        assert await values(again[partition(0)]) == added

    simulated(program)
