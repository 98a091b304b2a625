"""A recreated partition starts at offset 0, whatever its deleted predecessor left behind."""

from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest

from log.log_managers import TOPIC_ID, append, created, opened, partition, values
from log.logs import SMALL
from ottla.errors import DiskFull
from ottla.ids import Offset
from ottla.log.log_manager import LogManager
from ottla.log.names import DirectoryState
from ottla.testing.clock import SimulatedClock, simulated
from ottla.testing.disk import Crashed, Loss, SimulatedDisk

COMPACTED = replace(SMALL, compact=True)
NEW: list[bytes | None] = [b"new %d" % number for number in range(5)]


async def with_checkpoints(disk: SimulatedDisk, clock: SimulatedClock) -> LogManager:
    """A partition that is in every checkpoint file of its directory."""
    logs = await opened(disk, clock, rules=COMPACTED)
    hosted = await created(logs, 0, COMPACTED)
    for number in range(20):
        append(hosted, b"old %d" % number)
    await hosted.log.flush()
    hosted.log.advance_log_start(Offset(15))
    hosted.first_dirty_offset = Offset(18)
    hosted.high_watermark = Offset(20)
    await logs.store_checkpoints(hosted.directory)
    assert len(hosted.directory.checkpoints_with(partition(0))) == 4
    return logs


async def made_again(logs: LogManager) -> None:
    hosted = await created(logs, 0, COMPACTED)
    for value in NEW:
        append(hosted, value or b"")
    await hosted.log.flush()


async def check_after_crash(disk: SimulatedDisk, clock: SimulatedClock, loss: Loss) -> None:
    """Check that all flushed records exist, and no offset of the earlier partition."""
    logs = await opened(disk.after_crash(loss, Random(0)), clock, rules=COMPACTED)
    hosted = logs[partition(0)]
    assert await values(hosted) == NEW
    log = hosted.log
    assert (log.log_start_offset, log.recovery_point, log.log_end_offset) == (0, 0, len(NEW))
    assert (hosted.high_watermark, hosted.first_dirty_offset) == (0, None)


@pytest.mark.parametrize("loss", list(Loss))
def test_c1_crashed_deletion_keeps_the_recreated_partition(
    loss: Loss,
) -> None:
    async def program(clock: SimulatedClock) -> None:
        more, ended = 0, False
        while not ended:
            disk = SimulatedDisk()
            logs = await with_checkpoints(disk, clock)
            disk.crash_at = len(disk.calls) + more
            try:
                await logs.delete([partition(0)])
                await made_again(logs)
                ended = True
            except Crashed:
                pass
            disk = disk.after_crash(loss, Random(more))
            logs = await opened(disk, clock, rules=COMPACTED)
            if logs.get(partition(0)):
                await logs.delete([partition(0)])
            await logs.purge()
            await made_again(logs)
            await check_after_crash(disk, clock, loss)
            more += 1
        assert more > 10

    simulated(program)


def test_c1_full_disk_deletion_keeps_the_next_partition() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await with_checkpoints(disk, clock)
        room = disk.room("/")
        disk.capacity_bytes = room.total_bytes - room.usable_bytes
        await logs.delete([partition(0)])
        with pytest.raises(DiskFull):  # a checkpoint has the old offsets
            await created(logs, 0, COMPACTED)
        assert logs.get(partition(0)) is None
        assert not disk.exists("/data/t-0")
        disk.capacity_bytes = None
        await made_again(logs)
        await check_after_crash(disk, clock, Loss.ALL)

    simulated(program)


def test_failed_checkpoint_write_counts_old_and_new_offsets() -> None:
    """Otherwise a partition could be created while an older checkpoint is being written."""

    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await with_checkpoints(disk, clock)
        directory = logs.directories[0]
        await created(logs, 1, COMPACTED)
        with suppress(DiskFull):
            disk.capacity_bytes = 0
            await logs.store_checkpoints(directory)
        told = directory.checkpoints_with(partition(0)), directory.checkpoints_with(partition(1))
        assert list(map(len, told)) == [4, 1]

    simulated(program)


class ShortNamesDisk(SimulatedDisk):
    """Has no space for longer names, and no space at all once it is full."""

    narrow = False

    def rename(self, old: str, new: str) -> None:
        if self.narrow and len(new) > len(old):
            raise DiskFull(f"{old}: rename: no space left on the disk")
        super().rename(old, new)


def test_stray_directory_stays_if_a_full_disk_cannot_rename() -> None:
    """An operator must decide about it, not the creation of a partition with its name."""

    async def program(clock: SimulatedClock) -> None:
        disk = ShortNamesDisk()
        hosted = await created(await opened(disk, clock), 0)
        append(hosted, b"a person decides")
        await hosted.log.flush()
        disk = disk.after_kill()
        assert isinstance(disk, ShortNamesDisk)
        logs = await opened(disk, clock)
        before = disk.names("/data/t-0")
        disk.narrow = True
        with pytest.raises(DiskFull):
            await logs.delete([partition(0)], DirectoryState.STRAY)
        for _ in range(2):  # the creation is repeated
            with pytest.raises(DiskFull):
                await created(logs, 0)
            assert disk.names("/data/t-0") == before
        disk.narrow = False
        await created(logs, 0)
        (stray,) = [name for name in disk.names("/data") if name.endswith("-stray")]
        assert disk.names(f"/data/{stray}") == before

    simulated(program)


def test_failed_creation_on_a_full_disk_leaves_nothing() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock)
        room, calls = disk.room("/"), 0
        for left in range(200):
            disk.capacity_bytes = room.total_bytes - room.usable_bytes + left
            try:
                await logs.create(partition(0), TOPIC_ID, SMALL)
                break
            except DiskFull:
                calls += 1
                assert not disk.exists("/data/t-0")
                assert logs.get(partition(0)) is None
        assert calls > 10
        assert logs.get(partition(0)) is not None

    simulated(program)
