"""The real disk: writes that succeed or are undone, cached reads, locks, directories."""

import asyncio
import gc
import os
import re
import resource
import signal
import stat
import subprocess
import sys
import threading
import weakref
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree, rmtree

import pytest

from log.logs import fill, opened
from ottla.errors import DescriptorsExhausted, StorageFailure
from ottla.ids import LeaderEpoch
from ottla.log.disk import read_whole, replace, write_atomically
from ottla.log.fd_reserve import RESERVED
from ottla.log.files import IOV_MAX, WORK_NICENESS, OsDisk, OsFile


@pytest.fixture
def disk() -> Generator[OsDisk]:
    disk = OsDisk()
    yield disk
    disk.close()


@contextmanager
def too_many_open() -> Generator[None]:
    """Leave no file descriptor free."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = os.open("/dev/null", os.O_RDONLY)
    os.close(taken)
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_memory_of_cached_reads_is_reused_when_nothing_refers_to_it(
    disk: OsDisk, tmp_path: Path
) -> None:
    size = 100_000
    file = disk.open(str(tmp_path / "f"), create=True)
    file.write([b"a" * size, b"b" * size, b"c" * size], 0)
    first = memoryview(file.read_cached(0, size) or b"")
    memory = first.obj
    second = memoryview(file.read_cached(size, size) or b"")
    assert second.obj is not memory
    assert (first, second) == (b"a" * size, b"b" * size)
    assert first.readonly
    del first
    third = memoryview(file.read_cached(2 * size, size) or b"")
    if hasattr(os, "RWF_NOWAIT"):
        assert third.obj is memory
    assert (second, third) == (b"b" * size, b"c" * size)


def test_buffers_are_written_at_a_position_and_read_back(disk: OsDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "f"), create=True)
    assert file.write([b"abc", memoryview(b"xdefx")[1:4]], 0) == 6
    assert file.write([b"!"], 6) == 7
    assert file.size() == 7
    assert file.read(2, 100) == b"cdef!"
    assert file.read_cached(2, 3) == b"cde"
    assert file.read_cached(5, 100) == b"f!"
    assert file.read_cached(50, 10) == b""
    file.truncate(3)
    file.sync()
    assert read_whole(disk, file.path) == b"abc"


def test_more_buffers_than_iov_max_are_written(disk: OsDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "f"), create=True)
    buffers = [b"%d," % number for number in range(2 * IOV_MAX + 3)]
    assert file.write(buffers, 0) == len(b"".join(buffers))
    assert file.read(0, 10**6) == b"".join(buffers)


def test_c6_write_that_does_not_fit_is_undone(disk: OsDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "f"), create=True)
    file.write([b"x" * 1000], 0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, limits[1]))
        with pytest.raises(StorageFailure, match="write"):
            file.write([b"y" * 300, b"z" * 700], 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert file.size() == 1000
    assert file.write([b"after"], 1000) == 1005
    assert file.read(995, 100) == b"xxxxxafter"


def test_file_without_references_is_closed(disk: OsDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "f"), create=True)
    file.write([b"still there"], 0)
    descriptor = file.fileno()
    disk.remove(file.path)
    assert file.read(0, 100) == b"still there"
    del file
    gc.collect()
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(descriptor)


def test_file_can_be_closed_twice(disk: OsDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "f"), create=True)
    file.close()
    file.close()
    with pytest.raises(StorageFailure):
        file.write([b"x"], 0)


def test_existing_and_missing_files_raise(disk: OsDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    with pytest.raises(FileNotFoundError):
        disk.open(path)
    disk.open(path, create=True)
    with pytest.raises(StorageFailure):
        disk.open(path, create=True)
    for change in (
        lambda: disk.remove(path + "2"),
        lambda: disk.rename(path + "2", path),
        lambda: disk.open(path + "/2", create=True),
        lambda: disk.sync_directory(path + "2"),
    ):
        with pytest.raises(StorageFailure):
            change()


def test_files_are_replaced_atomically(disk: OsDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    write_atomically(disk, path, b"one")
    (tmp_path / "f.tmp").write_bytes(b"left by a crash")
    replace(disk, path, b"two")
    assert disk.names(str(tmp_path)) == ["f"]
    assert read_whole(disk, path) == b"two"
    replace(disk, path, b"")
    assert read_whole(disk, path) == b""


def test_directories_are_created_renamed_and_removed(disk: OsDisk, tmp_path: Path) -> None:
    folder = str(tmp_path / "a" / "b")
    disk.make_directory(folder)
    disk.make_directory(folder)
    disk.open(folder + "/f", create=True)
    assert disk.modified_ms(folder + "/f") > 0
    disk.set_modified_ms(folder + "/f", 1_234_567)
    assert disk.modified_ms(folder + "/f") == 1_234_567
    with pytest.raises(StorageFailure):
        disk.remove_directory(folder)
    disk.rename(folder, str(tmp_path / "c"))
    assert not disk.exists(folder)
    disk.remove(str(tmp_path / "c" / "f"))
    disk.remove_directory(str(tmp_path / "c"))
    assert disk.names(str(tmp_path)) == ["a"]
    disk.sync_directory(str(tmp_path))


def test_c9_lock_excludes_a_second_process(disk: OsDisk, tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    held = disk.lock(path)
    assert held is not None
    assert disk.lock(path) is None
    script = (
        f"from ottla.log.files import OsDisk; import sys; sys.exit(OsDisk().lock({path!r}) is None)"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 1
    held.release()
    held.release()
    again = disk.lock(path)
    assert again is not None
    again.release()


def test_started_call_completes_before_a_cancellation(disk: OsDisk) -> None:
    begun, go_on = threading.Event(), threading.Event()
    done: list[str] = []

    def call() -> None:
        begun.set()
        go_on.wait(10)
        done.append("call")

    async def scenario() -> None:
        task = asyncio.ensure_future(disk.blocking(call))
        await asyncio.to_thread(begun.wait, 10)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        done.append("cancelled")

    asyncio.run(scenario())
    assert done == ["call", "cancelled"]


def test_device_calls_do_not_wait_for_cpu_threads(disk: OsDisk) -> None:
    go_on = threading.Event()

    async def scenario() -> None:
        works = [asyncio.ensure_future(disk.working(lambda: go_on.wait(10))) for _ in range(100)]
        assert await disk.blocking(lambda: "read") == "read"
        assert not any(work.done() for work in works)
        go_on.set()
        assert all(await asyncio.gather(*works))

    asyncio.run(scenario())


@pytest.mark.skipif(sys.platform != "linux", reason="only there a thread is more or less urgent")
def test_cpu_threads_have_a_lower_priority(disk: OsDisk) -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, 0)

    async def scenario() -> tuple[int, int]:
        return await disk.blocking(niceness), await disk.working(niceness)

    ours = niceness()
    assert asyncio.run(scenario()) == (ours, min(ours + WORK_NICENESS, 19))
    assert niceness() == ours


def test_failure_in_a_thread_reaches_the_caller(disk: OsDisk, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        asyncio.run(disk.blocking(lambda: disk.names(str(tmp_path / "none"))))


def test_free_space_is_returned(disk: OsDisk, tmp_path: Path) -> None:
    room = disk.room(str(tmp_path))
    assert 0 < room.usable_bytes <= room.total_bytes
    with pytest.raises(StorageFailure):
        disk.room(str(tmp_path / "missing"))


def test_c5_file_stays_failed_after_a_failed_sync(tmp_path: Path) -> None:
    reading, writing = os.pipe()  # a pipe cannot be synced
    file = OsFile(str(tmp_path / "f"), writing, set())
    with pytest.raises(StorageFailure, match="sync"):
        file.sync()
    for change in (file.sync, lambda: file.write([b"x"], 0)):
        with pytest.raises(StorageFailure, match="broken by an earlier failure"):
            change()
    file.close()
    os.close(reading)


def test_cached_read_does_not_wait_for_the_device(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open(str(tmp_path / "f"), create=True)
    file.write([b"abc"], 0)
    assert file.read_cached(0, 3) == b"abc"
    asked: list[int] = []

    def cold(descriptor: int, buffers: object, position: int, flags: int = 0) -> int:
        asked.append(flags)
        raise BlockingIOError

    monkeypatch.setattr(os, "preadv", cold)
    assert file.read_cached(0, 3) is None
    assert asked == [os.RWF_NOWAIT]


def test_too_many_open_files_is_not_a_disk_failure(disk: OsDisk, tmp_path: Path) -> None:
    with too_many_open(), pytest.raises(DescriptorsExhausted) as refused:
        disk.open(f"{tmp_path}/a", create=True)
    limit = r"the process may open \d+ file descriptors; raise the limit: ulimit -n"
    assert re.search(f"/a: open: Too many open files: {limit}", str(refused.value))
    disk.open(f"{tmp_path}/a", create=True).close()


def test_disk_counts_its_open_files(disk: OsDisk, tmp_path: Path) -> None:
    first, second = (disk.open(f"{tmp_path}/{name}", create=True) for name in "ab")
    assert disk.open_files == 2
    first.close()
    first.close()
    assert disk.open_files == 1
    del second
    assert disk.open_files == 0


def test_directory_is_synced_without_free_descriptors(disk: OsDisk, tmp_path: Path) -> None:
    with too_many_open():
        for _ in range(2 * RESERVED):
            disk.sync_directory(str(tmp_path))
        with pytest.raises(StorageFailure, match="No such file"):
            disk.sync_directory(f"{tmp_path}/missing")
        with pytest.raises(DescriptorsExhausted):
            disk.open(f"{tmp_path}/a", create=True)


def test_threads_sync_directories_without_free_descriptors(disk: OsDisk, tmp_path: Path) -> None:
    with ThreadPoolExecutor(RESERVED // 2) as threads, too_many_open():
        for done in [threads.submit(disk.sync_directory, str(tmp_path)) for _ in range(300)]:
            done.result()
        disk.sync_directory(str(tmp_path))


def test_reserve_survives_a_stolen_descriptor(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close, taken = os.close, list[int]()

    def taken_at_once(descriptor: int) -> None:
        close(descriptor)
        if len(taken) < lost:
            taken.append(os.open("/dev/null", os.O_RDONLY))

    with monkeypatch.context() as patched, too_many_open():
        patched.setattr(os, "close", taken_at_once)
        lost = RESERVED - 1
        disk.sync_directory(str(tmp_path))
        lost = RESERVED
        with pytest.raises(DescriptorsExhausted):
            disk.sync_directory(str(tmp_path))
    for descriptor in taken:
        close(descriptor)
    disk.sync_directory(str(tmp_path))  # the call opens the reserved descriptors again
    with too_many_open():
        disk.sync_directory(str(tmp_path))


def test_retention_continues_without_free_descriptors(disk: OsDisk, tmp_path: Path) -> None:
    async def program() -> None:
        log = opened(disk, folder=f"{tmp_path}/t-0").log
        log.begin_epoch(LeaderEpoch(0))
        fill(log, 30)
        await log.flush()
        log.advance_log_start(log.segments.active.base_offset)
        with too_many_open():
            assert await log.delete_old_segments(high_watermark=30, now_ms=0) > 1
        fill(log, 1)
        await log.flush()
        assert log.recovery_point == 31
        log.close_files()

    asyncio.run(program())


def test_reserved_descriptors_are_closed_with_the_disk() -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    disk = OsDisk()
    assert len(os.listdir("/proc/self/fd")) == before + RESERVED
    disk.close()
    disk.sync_directory("/tmp")
    assert len(os.listdir("/proc/self/fd")) == before
    OsDisk()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
    OsDisk(read_only=True).close()


def test_failed_call_frees_its_memory_at_once(disk: OsDisk) -> None:
    """Not only when garbage is collected: the memory may be a decompressed bomb."""

    class Large:
        pass

    used: list[weakref.ref[Large]] = []

    def call() -> None:
        large = Large()
        used.append(weakref.ref(large))
        raise ValueError(large)

    async def scenario() -> None:
        with pytest.raises(ValueError, match="Large"):
            await disk.blocking(call)

    gc.disable()
    try:
        asyncio.run(scenario())
        assert used[0]() is None
    finally:
        gc.enable()


def test_other_users_can_read_neither_files_nor_directories(tmp_path: Path, disk: OsDisk) -> None:
    directory = str(tmp_path / "data" / "orders-0")
    before = os.umask(0)
    try:
        disk.make_directory(directory)
        disk.open(f"{directory}/0.log", create=True).close()
        lock = disk.lock(f"{directory}/.lock")
        assert lock is not None
        lock.release()
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in Path(directory).iterdir()} | {
        "directory": stat.S_IMODE(Path(directory).stat().st_mode)
    }
    assert modes == {"0.log": 0o640, ".lock": 0o640, "directory": 0o750}


def test_c10_sync_of_a_removed_file_fails(disk: OsDisk, tmp_path: Path) -> None:
    path = tmp_path / "f"
    file = disk.open(str(path), create=True)
    assert file.is_in_place()
    file.write([b"x"], 0)
    file.sync()
    path.unlink()
    assert not file.is_in_place()
    file.write([b"y"], 1)  # the descriptor still accepts it
    with pytest.raises(StorageFailure, match="the file was removed"):
        file.sync()
    with pytest.raises(StorageFailure, match="broken"):
        file.write([b"z"], 2)


def test_moved_or_replaced_file_is_not_in_place(disk: OsDisk, tmp_path: Path) -> None:
    directory, away = tmp_path / "d", tmp_path / "away"
    disk.make_directory(str(directory))
    lock = disk.lock(str(directory / ".lock"))
    assert lock is not None
    file = disk.open(str(directory / "f"), create=True)
    assert lock.is_in_place()
    directory.rename(away)
    assert not lock.is_in_place()
    assert not file.is_in_place()
    copytree(away, directory)
    assert not lock.is_in_place()
    assert not file.is_in_place()
    file.sync()  # it still has a name
    rmtree(directory)
    away.rename(directory)
    assert lock.is_in_place()
    assert file.is_in_place()
    lock.release()
