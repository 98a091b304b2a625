"""Closing the logs of a broker: open files, and what is not marked as clean."""

import asyncio
from contextlib import suppress
from pathlib import Path

from log.log_managers import EPOCH, append, created, opened, partition
from ottla.clock import SystemClock
from ottla.errors import DescriptorsExhausted
from ottla.log.files import OsDisk, OsFile
from ottla.log.names import CLEAN_SHUTDOWN
from ottla.testing.clock import SimulatedClock, simulated
from ottla.testing.disk import SimulatedDisk


class LimitedDescriptorsDisk(OsDisk):
    """Fails to open more files of a directory than a limit."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.most: int | None = None
        self._folder = folder

    @property
    def held(self) -> int:
        found = 0
        for one in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):  # the descriptor of the listing itself
                found += one.readlink().is_relative_to(self._folder)
        return found

    def _check(self, path: str) -> None:
        if self.most is not None and self.held >= self.most:
            raise DescriptorsExhausted(f"{path}: open: Too many open files")

    def open(self, path: str, *, create: bool = False, private: bool = False) -> OsFile:
        self._check(path)
        return super().open(path, create=create, private=private)

    def sync_directory(self, path: str) -> None:
        self._check(path)
        super().sync_directory(path)


def test_close_needs_no_more_open_files_than_running(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = LimitedDescriptorsDisk(tmp_path)
        logs = await opened(disk, SystemClock(), (str(tmp_path),))
        for number in range(40):
            hosted = await created(logs, number)
            for turn in range(number):  # some logs roll, and some of these are flushed
                append(hosted, b"%d" % turn, bytes(100))
            if number % 2:
                await hosted.log.flush()
        disk.most = disk.held
        assert await logs.close(EPOCH) == {}
        assert (tmp_path / CLEAN_SHUTDOWN).exists()
        assert disk.held == 0
        disk.close()

    asyncio.run(scenario())


def test_c2_close_returns_the_unclean_directories() -> None:
    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock, ("/offline", "/failing", "/unmarked", "/fine"))
        for number in range(4):
            append(await created(logs, number), b"x")
        disk.fails = lambda what, path: what == "sync" and path.startswith("/offline/")
        await asyncio.gather(
            logs.guarded(logs.directories[0], logs[partition(0)].log.flush), return_exceptions=True
        )
        disk.fails = lambda what, path: (
            (what == "sync" and path.startswith("/failing/t-1"))
            or (what == "write" and path.startswith(f"/unmarked/{CLEAN_SHUTDOWN}"))
        )
        unclean = await logs.close(EPOCH)
        assert [*unclean] == ["/offline", "/failing", "/unmarked"]
        assert all("injected failure" in str(one) for one in unclean.values())
        marked = [
            one.path for one in logs.directories if disk.exists(f"{one.path}/{CLEAN_SHUTDOWN}")
        ]
        assert marked == ["/fine"]

    simulated(program)
