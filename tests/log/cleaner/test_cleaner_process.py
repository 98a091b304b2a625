"""A cleaning in a child process, on a real disk."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cases import each_case
from ottla.ids import LeaderEpoch
from ottla.log.cleaner.child_processes import OsChild, OsProcesses
from ottla.log.cleaner.cleanable import SourceSegment
from ottla.log.cleaner.cleaner_runners import (
    CHILD_MODULE,
    ChildCleaner,
    CleaningAborted,
    CleaningFailed,
    LocalCleaner,
)
from ottla.log.cleaner.compaction import CleaningDone, CleaningJob, CleaningLimits
from ottla.log.files import OsDisk
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog, open_log
from ottla.records.batch import batches
from ottla.records.builder import BatchBuilder
from ottla.records.validation import ValidationConfig, validate

NOW_MS = 1_700_000_000_000
SECRET = bytes(16)
RULES = LogConfig(segment_bytes=20_000, index_interval_bytes=500, compact=True, delete=False)
SLOW = CleaningLimits(bytes_per_second=1000.0, io_bytes=4096)  # takes minutes unless it is stopped


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 60))


async def filled(disk: OsDisk, folder: Path) -> PartitionLog:
    """A log with ten values for each of a hundred keys."""
    log = open_log(disk, str(folder), RULES, clean=True, now_ms=NOW_MS, random=lambda: 0.0).log
    log.begin_epoch(LeaderEpoch(0))
    for number in range(100):
        builder = BatchBuilder()
        for each in range(10):
            key = (number * 10 + each) % 100
            builder.append(NOW_MS + number, b"key-%d" % key, b"%d " % number + bytes(80))
        data = builder.build()
        valid = validate(data, ValidationConfig(), now_ms=NOW_MS, produce_version=11)
        log.append(valid, memoryview(data), leader_epoch=0, now_ms=NOW_MS)
    log.roll(NOW_MS)
    return log


async def compact(
    log: PartitionLog, cleaner: ChildCleaner | LocalCleaner, limits: CleaningLimits | None = None
) -> CleaningDone | None:
    return await log.compact(
        cleaner,
        None,
        high_watermark=log.log_end_offset,
        secret=SECRET,
        clock_ms=lambda: NOW_MS,
        limits=limits,
    )


async def content(log: PartitionLog) -> bytes:
    found, offset = b"", log.log_start_offset
    while piece := await (await log.read(offset, log.log_end_offset, 1 << 20)).read():
        found += piece
        offset = list(batches(piece))[-1].header.next_offset
    return found


class WatchedProcesses(OsProcesses):
    """Records the child processes, and notifies when one has written its first line."""

    def __init__(self) -> None:
        self.children: list[OsChild] = []
        self.began = asyncio.Event()

    @asynccontextmanager
    async def start(self, module: str, line: bytes) -> AsyncGenerator[OsChild, None]:
        async with super().start(module, line) as child:
            self.children.append(child)
            self.began.set()
            yield child


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_child_process_cleans_like_this_process(tmp_path: Path) -> None:
    async def main() -> None:
        disk = OsDisk()
        ours, theirs = await filled(disk, tmp_path / "a-0"), await filled(disk, tmp_path / "b-0")
        full = await filled(disk, tmp_path / "c-0")
        held = await theirs.read(0, theirs.log_end_offset, 5000)
        before = await held.read()
        here = await compact(ours, LocalCleaner())
        there = await compact(theirs, ChildCleaner(OsProcesses()))
        assert here is not None
        assert there is not None
        figures = msgspec.structs.asdict(there)
        assert figures["keys"] == figures["records_kept"] == 100
        assert figures["records_read"] == 1000
        assert figures["first_dirty_offset"] == 1000
        assert figures["bytes_read"] == figures["map_bytes_read"] == len(await content(full))
        assert figures["bytes_written"] == len(await content(theirs))
        for name, value in msgspec.structs.asdict(here).items():
            if not name.endswith("_ms"):
                assert figures[name] == value, name
        assert await content(ours) == await content(theirs)
        # A reader that started before the cleaning still reads the old segments.
        assert await held.read() == before
        await theirs.purge(NOW_MS + RULES.file_delete_delay_ms)
        assert await held.read() == before
        assert not [path for path in (tmp_path / "b-0").iterdir() if path.suffix == ".deleted"]
        disk.close()

    run(main())


async def table(log: PartitionLog) -> dict[bytes | None, bytes | None]:
    return {r.key: r.value for b in batches(await content(log)) for r in b.records()}


def test_killed_cleaner_process_leaves_a_readable_log(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        disk, processes = OsDisk(), WatchedProcesses()
        log = await filled(disk, tmp_path / "t-0")
        before, size = await table(log), log.segments.size

        async def kill() -> None:
            while not (log.has_pending_deletes and list((tmp_path / "t-0").glob("*.log.cleaned"))):
                await asyncio.sleep(0.001)
            os.kill(processes.children[0].pid, signal.SIGKILL)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(kill())
            limits = CleaningLimits(bytes_per_second=200_000.0, io_bytes=4096)
            with pytest.raises(CleaningFailed, match="the cleaner process exited with -9"):
                await compact(log, ChildCleaner(processes), limits)
        assert 20_000 < log.segments.size < size
        assert await table(log) == before
        assert not list((tmp_path / "t-0").glob("*.cleaned"))
        assert await compact(log, ChildCleaner(OsProcesses())) is not None
        assert log.segments.size < 20_000
        assert await table(log) == before
        disk.close()

    run(main())


def test_cancelled_cleaning_ends_its_child(tmp_path: Path) -> None:
    async def main() -> None:
        disk, processes = OsDisk(), WatchedProcesses()
        log = await filled(disk, tmp_path / "t-0")
        before = await content(log)
        task = asyncio.create_task(compact(log, ChildCleaner(processes), SLOW))
        await processes.began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not is_alive(processes.children[0].pid)
        assert await content(log) == before
        assert not list((tmp_path / "t-0").glob("*.cleaned"))
        disk.close()

    run(main())


def test_deleted_partition_ends_its_child(tmp_path: Path) -> None:
    async def main() -> None:
        disk, processes = OsDisk(), WatchedProcesses()
        log = await filled(disk, tmp_path / "c-0")
        work = asyncio.create_task(compact(log, ChildCleaner(processes), SLOW))
        await processes.began.wait()
        (child,) = processes.children
        assert is_alive(child.pid)
        await log.retire("the partition was deleted")
        assert not is_alive(child.pid)
        assert not list(tmp_path.rglob("*.cleaned"))
        with pytest.raises(CleaningAborted, match="closed during the cleaning"):
            await work
        disk.close()

    run(main())


def test_child_ends_after_its_broker_is_killed(tmp_path: Path) -> None:
    """A killed broker sends no message to its child: the operating system closes the pipe."""

    async def main() -> None:
        disk = OsDisk()
        await filled(disk, tmp_path / "t-0")
        size = (tmp_path / "t-0" / ("0" * 20 + ".log")).stat().st_size
        source = SourceSegment(0, 1000, size, 0, 0)
        job = CleaningJob(
            str(tmp_path / "t-0"), (source,), 0, 1000, NOW_MS, 0, 20_000, 1000, 500, SECRET,
            limits=SLOW,
        )  # fmt: skip
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", CHILD_MODULE), stdin=asyncio.subprocess.PIPE
        )
        assert child.stdin is not None
        child.stdin.write(msgspec.json.encode(job) + b"\n")
        await child.stdin.drain()
        assert child.returncode is None
        child.stdin.close()
        assert await child.wait() == 3
        disk.close()

    run(main())


def test_child_reports_damage(tmp_path: Path) -> None:
    async def main() -> None:
        disk = OsDisk()
        log = await filled(disk, tmp_path / "t-0")
        await log.flush()
        path = tmp_path / "t-0" / ("0" * 20 + ".log")
        data = bytearray(path.read_bytes())
        data[200] ^= 1
        path.write_bytes(data)
        for cleaner in (ChildCleaner(OsProcesses()), LocalCleaner()):
            with pytest.raises(CleaningFailed, match=r"0\.log: the batch at offset 0 is damaged"):
                await compact(log, cleaner)
        assert path.read_bytes() == data
        disk.close()

    run(main())


class ScriptedChild:
    def __init__(self, said: list[bytes], code: int, errors: str) -> None:
        self.pid = 0
        self._said = said
        self._end = code, errors

    async def lines(self) -> AsyncIterator[bytes]:
        for line in self._said:
            yield line

    async def ended(self) -> tuple[int, str]:
        return self._end


class ScriptedProcesses:
    def __init__(self, child: ScriptedChild) -> None:
        self.child = child

    @asynccontextmanager
    async def start(self, module: str, line: bytes) -> AsyncGenerator[ScriptedChild, None]:
        assert module == CHILD_MODULE
        assert msgspec.json.decode(line, type=CleaningJob).secret == SECRET
        yield self.child


@each_case(
    ("said", "code", "errors", "reason"),
    [
        ([], 1, "Traceback: no module", "the cleaner process exited with 1: Traceback: no module"),
        ([], 0, "", "the cleaner process exited with 0: no error message"),
        ([b"what?\n"], 0, "", "invalid event b'what"),
        ([b'{"type":"done"}\n'], 0, "", "invalid event"),
    ],
)
def test_failing_child_is_reported(
    tmp_path: Path, said: list[bytes], code: int, errors: str, reason: str
) -> None:
    async def main() -> None:
        disk = OsDisk()
        log = await filled(disk, tmp_path / "t-0")
        before = await content(log)
        child = ChildCleaner(ScriptedProcesses(ScriptedChild(said, code, errors)))
        with pytest.raises(CleaningFailed, match=reason):
            await compact(log, child)
        assert await content(log) == before
        disk.close()

    run(main())
