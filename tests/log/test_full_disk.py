"""A full disk: logs open and are read, appends fail, and they succeed again when there is space."""

import errno
import os
from pathlib import Path
from random import Random

import pytest

from cases import each_case
from log.log_managers import EPOCH, append, created, lead, opened, partition, values
from log.logs import FOLDER, SMALL, contents, fill, new_log
from log.logs import append as append_batch
from log.logs import opened as opened_log
from ottla.errors import DiskFull, StorageFailure
from ottla.ids import LeaderEpoch
from ottla.log.disk import read_whole
from ottla.log.epochs import EpochHistory
from ottla.log.files import OsDisk
from ottla.log.maintenance import Maintenance, MaintenanceConfig
from ottla.log.names import CLEAN_SHUTDOWN, DAMAGED_OFFSETS, LEADER_EPOCHS
from ottla.testing.clock import SimulatedClock, simulated
from ottla.testing.disk import Loss, SimulatedDisk, finish


def used(disk: SimulatedDisk) -> int:
    room = disk.room("/")
    return room.total_bytes - room.usable_bytes


def fill_up(disk: SimulatedDisk, left: int = 0) -> None:
    disk.capacity_bytes = used(disk) + left


def stored_epochs(disk: SimulatedDisk) -> list[tuple[int, int]]:
    text = read_whole(disk, f"{FOLDER}/{LEADER_EPOCHS}").decode()
    return [(epoch, start) for epoch, start in EpochHistory.parse(text)]


@each_case("left", [0, 1, 10, 30, 60, 100, 200, 400, 1000])
@each_case("flushed", [False, True])
def test_log_on_a_full_disk_opens_and_can_be_read(left: int, flushed: bool) -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    fill(log, 40)
    if flushed:
        finish(log.flush())
    expected = contents(log)
    disk.sync_directory(FOLDER)
    for segment in log.segments:
        segment.file.sync()
    disk = disk.after_crash(Loss.ALL, Random(0))
    fill_up(disk, left)
    log = opened_log(disk, clean=False, recovery_point=log.recovery_point).log
    log.begin_epoch(LeaderEpoch(1))
    assert contents(log) == expected
    with pytest.raises(DiskFull):
        fill(log, 100, size=100)
    disk.capacity_bytes = None
    finish(log.flush())
    offset = append_batch(log, b"there is room").base_offset
    assert contents(log)[:40] == expected
    assert contents(log)[-1] == (offset, b"there is room")
    finish(log.flush())
    assert stored_epochs(disk) == [(0, 0), (1, 40)]
    assert not log.flush_files_due
    assert all(one.offset_index.is_in_file for one in list(log.segments)[:-1])
    whole = contents(log)
    again = opened_log(disk.after_crash(Loss.ALL, Random(0)), clean=False, recovery_point=0)
    assert contents(again.log) == whole


def test_epochs_without_space_at_open_are_stored_later() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    fill(log, 5)
    finish(log.close())
    disk.remove(f"{FOLDER}/{LEADER_EPOCHS}")
    fill_up(disk)
    found = opened_log(disk, recovery_point=5)
    assert [*found.log.epochs] == [(0, 0)]
    with pytest.raises(DiskFull):
        finish(found.log.flush())
    disk.capacity_bytes = None
    finish(found.log.flush())
    assert stored_epochs(disk) == [(0, 0)]


def test_a1_recovery_point_waits_for_space_for_the_epoch() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    fill(log, 3)
    finish(log.flush())
    stored = stored_epochs(disk)
    log.begin_epoch(LeaderEpoch(7))
    assert append_batch(log, b"x").base_offset == 3
    fill_up(disk)
    for _ in range(2):
        with pytest.raises(DiskFull):
            finish(log.flush())
        assert log.recovery_point == 3
        assert stored_epochs(disk) == stored
    disk.capacity_bytes = None
    finish(log.flush())
    assert log.recovery_point == 4
    assert stored_epochs(disk) == [*stored, (7, 3)]


def test_damage_without_space_is_stored_by_the_next_flush() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    fill(log, 40)
    finish(log.flush())
    disk.rot(f"{FOLDER}/00000000000000000000.log", 70)
    fill_up(disk)

    async def no_pause(_: int) -> None:
        """Do not pause."""

    assert finish(log.scrub(no_pause))
    assert not disk.exists(f"{FOLDER}/{DAMAGED_OFFSETS}")
    assert log.flush_retry_due
    disk.capacity_bytes = None
    finish(log.flush())
    assert disk.exists(f"{FOLDER}/{DAMAGED_OFFSETS}")
    assert not log.flush_retry_due


def test_c6_full_directory_stays_online_and_recovers() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock)
        hosted = await created(logs, 0)
        for number in range(30):
            append(hosted, b"%d" % number)
        await hosted.log.flush()
        await logs.store_checkpoints(hosted.directory)
        expected = await values(hosted)
        logs.release()
        fill_up(disk)
        logs = await opened(disk, clock)  # as after a kill
        await lead(logs, 1)
        hosted = logs[partition(0)]
        assert await values(hosted) == expected
        duties = Maintenance(logs, MaintenanceConfig, lambda name: logs[name].log.log_end_offset)
        for _ in range(2):
            with pytest.raises(DiskFull) as full:
                append(hosted, b"x")
            logs.fail(hosted.directory, full.value)
            await duties.flush()
            await duties.store_recovery_points()
            await duties.store_high_watermarks()
        with pytest.raises(DiskFull):
            await created(logs, 1)
        assert logs.online == logs.directories
        assert isinstance(hosted.directory.shortage, DiskFull)
        disk.capacity_bytes = None
        await duties.flush()
        await duties.store_recovery_points()
        assert hosted.directory.shortage is None
        append(hosted, b"there is room")
        await created(logs, 1)
        assert await values(hosted) == [*expected, b"there is room"]
        assert not [name for name in disk.names("/data") if "stray" in name]

    simulated(program)


class AlmostFullDisk(SimulatedDisk):
    """Has space for small files only, such as the clean shutdown file."""

    def check_room(self, more: int, path: str) -> None:
        if path.endswith("index.tmp"):
            raise DiskFull(f"{path}: write: no space left on the disk")


def test_c2_directory_full_at_shutdown_is_not_clean() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = AlmostFullDisk()
        logs = await opened(disk, clock)
        hosted = await created(logs, 0)
        for number in range(30):
            append(hosted, b"%d" % number + bytes(50))
        expected = await values(hosted)
        await logs.close(EPOCH)
        assert not disk.exists(f"/data/{CLEAN_SHUTDOWN}")
        again = await opened(disk, clock)
        assert await values(again[partition(0)]) == expected

    simulated(program)


def test_disk_full_means_that_nothing_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = OsDisk()
    file = disk.open(str(tmp_path / "f"), create=True)
    file.write([b"abc"], 0)

    def full(*args: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", full)
        with pytest.raises(DiskFull, match="No space left"):
            file.write([b"def"], 3)
        patch.setattr(os, "ftruncate", full)
        with pytest.raises(StorageFailure) as broken:
            file.write([b"def"], 3)
        assert not isinstance(broken.value, DiskFull)  # the content of the disk is unknown
    other = disk.open(str(tmp_path / "g"), create=True)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        for sync in (other.sync, lambda: disk.sync_directory(str(tmp_path))):
            with pytest.raises(StorageFailure) as failed:
                sync()
            assert not isinstance(failed.value, DiskFull)  # C5: a failed sync is never repeated
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        with pytest.raises(DiskFull):
            disk.open(str(tmp_path / "h"), create=True)
    disk.close()


def test_c6_log_continues_after_its_disk_was_full() -> None:
    disk = SimulatedDisk(capacity_bytes=3000)
    log = new_log(disk, SMALL)
    with pytest.raises(DiskFull):
        fill(log, 100)
    held = contents(log)
    disk.capacity_bytes = None
    assert append_batch(log, b"x").base_offset == len(held)
    assert contents(log) == [*held, (len(held), b"x")]
