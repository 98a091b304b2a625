"""The simulated disk: what survives a crash, and how it fails."""

from random import Random

import pytest

from ottla.errors import StorageFailure
from ottla.log.disk import read_whole, replace, write_atomically
from ottla.testing.disk import Crashed, Loss, SimulatedDisk, finish

PATH = "/d/f"


def fresh() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/d")
    return disk


def outcomes(disk: SimulatedDisk, loss: Loss) -> set[bytes | None]:
    """Return the possible contents of a file after a crash; None if it is missing."""
    found: set[bytes | None] = set()
    for seed in range(300):
        after = disk.after_crash(loss, Random(seed))
        found.add(read_whole(after, PATH) if after.exists(PATH) else None)
    return found


def test_synced_file_survives_a_crash() -> None:
    disk = fresh()
    file = disk.open(PATH, create=True)
    file.write([b"ab", b"c"], 0)
    file.sync()
    assert outcomes(disk, Loss.ALL) == {None}
    disk.sync_directory("/d")
    for loss in Loss:
        assert outcomes(disk, loss) == {b"abc"}


def test_unsynced_writes_are_lost_torn_or_have_holes() -> None:
    disk = fresh()
    file = disk.open(PATH, create=True)
    file.write([b"ab"], 0)
    file.sync()
    disk.sync_directory("/d")
    file.write([b"cd"], 2)
    file.write([b"ef"], 4)
    assert outcomes(disk, Loss.ALL) == {b"ab"}
    torn = {b"ab", b"abc", b"abcd", b"abcde", b"abcdef"}
    assert outcomes(disk, Loss.TORN) == torn
    holes = outcomes(disk, Loss.HOLES)
    assert torn <= holes
    assert b"ab\0\0ef" in holes


def test_unsynced_truncation_may_be_lost() -> None:
    disk = fresh()
    file = disk.open(PATH, create=True)
    file.write([b"abcdef"], 0)
    file.sync()
    disk.sync_directory("/d")
    file.truncate(2)
    assert file.read(0, 9) == b"ab"
    assert outcomes(disk, Loss.ALL) == {b"abcdef"}
    assert outcomes(disk, Loss.TORN) == {b"abcdef", b"ab"}


def test_renames_reach_the_device_in_order() -> None:
    disk = fresh()
    for name in ("a", "b", "c"):
        disk.open(f"/d/{name}", create=True)
    found = {tuple(disk.after_crash(Loss.TORN, Random(seed)).names("/d")) for seed in range(50)}
    assert found == {(), ("a",), ("a", "b"), ("a", "b", "c")}


@pytest.mark.parametrize("loss", list(Loss))
def test_rename_is_atomic(loss: Loss) -> None:
    disk = fresh()
    write_atomically(disk, PATH, b"old")
    replace(disk, PATH, b"new")
    assert outcomes(disk, loss) <= {b"old", b"new"}
    disk.sync_directory("/d")
    assert outcomes(disk, loss) == {b"new"}


def test_no_call_takes_effect_after_the_crash() -> None:
    disk = fresh()
    file = disk.open(PATH, create=True)
    disk.crash_at = len(disk.calls) + 1
    file.write([b"a"], 0)
    for _ in range(2):
        with pytest.raises(Crashed):
            file.write([b"b"], 1)
    assert file.read(0, 9) == b"a"


def test_write_to_a_full_disk_changes_nothing() -> None:
    disk = SimulatedDisk(capacity_bytes=4)
    disk.make_directory("/d")
    file = disk.open(PATH, create=True)
    file.write([b"abc"], 0)
    with pytest.raises(StorageFailure, match="no space"):
        file.write([b"de"], 3)
    assert file.read(0, 9) == b"abc"
    file.write([b"d"], 3)


def test_file_is_unusable_after_a_failed_sync() -> None:
    disk = fresh()
    file = disk.open(PATH, create=True)
    disk.fails = lambda what, path: what == "sync"
    with pytest.raises(StorageFailure):
        file.sync()
    disk.fails = lambda what, path: False
    with pytest.raises(StorageFailure, match="broken"):
        file.write([b"a"], 0)


def test_locks_and_directories() -> None:
    disk = fresh()
    held = disk.lock("/d/.lock")
    assert held is not None
    assert disk.lock("/d/.lock") is None
    held.release()
    assert disk.lock("/d/.lock") is not None
    disk.open(PATH, create=True)
    disk.rename("/d", "/e")
    assert disk.names("/e") == ["f"]
    with pytest.raises(StorageFailure):
        disk.remove_directory("/e")
    disk.remove("/e/f")
    disk.remove_directory("/e")
    assert not disk.exists("/e")


def test_finish_refuses_a_coroutine_that_really_waits() -> None:
    import asyncio

    async def waits() -> None:
        await asyncio.sleep(0)

    with pytest.raises(AssertionError):
        finish(waits())


def test_writes_of_a_killed_process_remain_unsynced() -> None:
    disk = SimulatedDisk()
    file = disk.open("/f", create=True)
    disk.sync_directory("/")
    file.write([b"written"], 0)
    assert disk.lock("/lock") is not None
    next_one = disk.after_kill()
    assert next_one.open("/f").read(0, 100) == b"written"
    assert next_one.lock("/lock") is not None
    with pytest.raises(Crashed):
        file.write([b"by a ghost"], 0)
    assert next_one.after_crash(Loss.ALL, Random(0)).open("/f").read(0, 100) == b""
