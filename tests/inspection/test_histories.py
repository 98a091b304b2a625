"""The check finds no damage in valid logs: open, crashed and closed ones."""

import os
from random import Random

import pytest

from log.log_managers import EPOCH, append, created, opened, partition
from log.log_model import Owner
from log.logs import FOLDER
from ottla.ids import Offset
from ottla.inspection.directory_check import check_directory
from ottla.inspection.directory_context import DirectoryContext
from ottla.inspection.findings import Finding, Level
from ottla.inspection.partition_check import PartitionCheck
from ottla.inspection.segment_check import Tally
from ottla.testing.clock import SimulatedClock, simulated
from ottla.testing.disk import Loss, SimulatedDisk, finish

SCALE = float(os.environ.get("OTTLA_FUZZ_SCALE", "1"))


def found_in(owner: Owner, *, clean: bool = False, log_start: int | None = None) -> list[Finding]:
    around = DirectoryContext(
        known=True,
        clean=clean,
        recovery_point=owner.recovery_point,
        log_start=log_start,
    )
    calls = len(owner.disk.calls)
    check = PartitionCheck(owner.disk, FOLDER, around, Tally(), lambda path, done, of: None)
    found = list(check.run())
    assert len(owner.disk.calls) == calls, "it changed something"
    assert check.end_offset == owner.end
    return found


def step(owner: Owner, random: Random) -> None:
    match random.randrange(12):
        case 0:
            owner.begin_epoch()
        case 1:
            owner.roll()
        case 2:
            owner.flush()
        case 3:
            first = owner.log.segments.first.base_offset
            owner.truncate(max(owner.end - random.randrange(20), first, owner.log_start))
        case 4:
            owner.trim(min(owner.log_start + random.randrange(8), owner.end))
        case 5:
            owner.retain()
        case 6 | 7:
            owner.end_transaction(commit=random.random() < 0.3)
        case 8:
            owner.crash(random.choice(list(Loss)), random)
        case _:
            producer = random.choice([-1, -1, 1, 9])
            owner.append(random.randrange(1, 4), random.choice([0, 60, 140]), producer)


@pytest.mark.parametrize("part", range(4))
def test_log_has_no_damage_at_any_step(part: int) -> None:
    for seed in range(int(40 * SCALE)):
        random = Random(f"{part} {seed}")
        owner = Owner(SimulatedDisk())
        for _ in range(25):
            step(owner, random)
            found = found_in(owner)
            assert [one for one in found if one.level is not Level.NOTE] == [], (part, seed)
        finish(owner.log.close())
        owner.recovery_point = owner.log.recovery_point
        start = owner.log.log_start_offset
        found = found_in(owner, clean=True, log_start=start)
        assert [one for one in found if one.level is not Level.NOTE] == [], (part, seed)


def test_brokers_directory_verifies_running_and_stopped() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock, ("/data",))
        for number in range(3):
            hosted = await created(logs, number)
            for turn in range(number * 6):
                append(hosted, b"%d %d" % (number, turn), bytes(100))
            hosted.high_watermark = hosted.log.log_end_offset
        logs[partition(2)].log.advance_log_start(Offset(7))
        found = list(check_directory(disk, "/data", Tally(), lambda path, done, of: None))
        assert [one for one in found if one.level is not Level.NOTE] == []
        await logs.close(EPOCH)
        assert list(check_directory(disk, "/data", Tally(), lambda path, done, of: None)) == []

    simulated(program)


def test_unfinished_write_is_incomplete_not_damaged() -> None:
    owner = Owner(SimulatedDisk())
    owner.append(2, 60)
    owner.flush()
    owner.append(2, 60)
    path = f"{FOLDER}/00000000000000000000.log"
    size = owner.disk.open(path).size()
    flushed = size // 2
    for cut in range(flushed + 1, size):
        copy = Owner(SimulatedDisk())
        copy.append(2, 60)
        copy.flush()
        copy.append(2, 60)
        copy.disk.open(path).truncate(cut)
        around = DirectoryContext(known=True, recovery_point=copy.recovery_point)
        check = PartitionCheck(copy.disk, FOLDER, around, Tally(), lambda path, done, of: None)
        (finding,) = [one for one in check.run() if one.path == path]
        assert (finding.level, finding.position) == (Level.INCOMPLETE, flushed)
        clean = DirectoryContext(known=True, clean=True, recovery_point=copy.recovery_point)
        check = PartitionCheck(copy.disk, FOLDER, clean, Tally(), lambda path, done, of: None)
        assert {one.level for one in check.run() if one.path == path} == {Level.DAMAGE}
