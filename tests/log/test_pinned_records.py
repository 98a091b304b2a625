"""Records that are sent from their file: what becomes of them when the log changes meanwhile."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from log.logs import append, opened
from ottla.ids import LeaderEpoch, Offset
from ottla.log.cached_reads import PinnedRecords
from ottla.log.cleaner.cleaner_runners import LocalCleaner
from ottla.log.files import OsDisk
from ottla.log.lazy_files import LazyFile
from ottla.log.log_config import LogConfig
from ottla.log.page_cache import is_cached
from ottla.log.partition_log import PartitionLog
from ottla.records import count_records
from page_cache import needs_cachestat

pytestmark = needs_cachestat

RULES: Final = LogConfig(segment_bytes=40_000, index_interval_bytes=4000, file_delete_delay_ms=0)
VALUE: Final = b"v" * 900


def new_log(folder: Path, batches: int = 60, rules: LogConfig = RULES) -> PartitionLog:
    log = opened(OsDisk(), rules, folder=str(folder / "t-0")).log
    log.begin_epoch(LeaderEpoch(0))
    for number in range(batches):
        append(log, b"%d" % number + VALUE, timestamp=number)
    return log


def pinned(log: PartitionLog, offset: int, bytes_max: int = 20_000) -> PinnedRecords:
    found = log.read_cached(offset, log.log_end_offset, bytes_max).pinned()
    assert found is not None
    return found


class Peer:
    """A TCP connection whose client reads late: until then its socket refers to the file."""

    def __init__(self) -> None:
        with closing(socket.create_server(("127.0.0.1", 0))) as server:
            self.client = socket.create_connection(server.getsockname(), 5)
            self.server, _ = server.accept()

    def send(self, part: PinnedRecords) -> None:
        sent = 0
        while sent < len(part):
            sent += os.sendfile(
                self.server.fileno(), part.fileno(), part.position + sent, len(part) - sent
            )

    def received(self) -> bytes:
        self.server.close()
        data = b""
        while more := self.client.recv(1 << 20):
            data += more
        self.client.close()
        return data


async def truncate(log: PartitionLog, offset: int) -> None:
    await log.truncate_to(offset)
    log.begin_epoch(LeaderEpoch(1))
    for number in range(60):
        append(log, b"%d" % number + b"w" * 900)


async def roll(log: PartitionLog) -> None:
    log.roll(0)
    append(log, VALUE)
    await log.flush()


async def delete(log: PartitionLog) -> None:
    log.advance_log_start(log.log_end_offset)
    await log.flush()
    await log.delete_old_segments(high_watermark=log.log_end_offset, now_ms=10**9)
    await log.purge(10**10)


async def compact(log: PartitionLog) -> None:
    log.roll(0)
    log.config = replace(RULES, compact=True, delete=False)
    done = await log.compact(
        LocalCleaner(),
        None,
        high_watermark=log.log_end_offset,
        secret=bytes(16),
        clock_ms=lambda: 10**9,
    )
    assert done is not None


async def close(log: PartitionLog) -> None:
    await log.close()
    # The numbers of the closed descriptors are used for other files.
    for number in range(40):
        path = Path(log.directory) / f"other-{number}"
        path.write_bytes(bytes(100_000))
        OTHERS.append(os.open(path, os.O_RDONLY))


OTHERS: list[int] = []

CHANGES: dict[str, Callable[[PartitionLog], Awaitable[None]]] = {
    "truncate in the middle of the records": lambda log: truncate(log, 46),
    "truncate below the records": lambda log: truncate(log, 1),
    "truncate everything": lambda log: truncate(log, 0),
    "restart": lambda log: log.truncate_fully_and_start_at(Offset(1000)),
    "append": lambda log: truncate(log, log.log_end_offset),
    "roll": roll,
    "delete": delete,
    "compact": compact,
    "close": close,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("base", [0, 42])
def test_pinned_records_do_not_change(tmp_path: Path, change: str, base: int) -> None:
    async def scenario() -> None:
        log = new_log(tmp_path)
        part = pinned(log, base)
        expected = log.read_cached(base, log.log_end_offset, 20_000).cached()
        assert expected is not None
        before, after = Peer(), Peer()
        before.send(part)  # its pages are in the socket while the log changes
        await CHANGES[change](log)
        after.send(part)
        assert before.received() == expected
        assert after.received() == expected
        assert await part.read(100, len(part) - 100) == expected[100:]

    asyncio.run(scenario())
    while OTHERS:
        os.close(OTHERS.pop())


def test_log_goes_on_after_a_truncation_of_pinned_records(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = new_log(tmp_path)
        file = log.segments.active.file
        pinned(log, 50)
        await truncate(log, 52)
        assert log.segments.active.file is not file
        whole = log.read_cached(42, log.log_end_offset, 1 << 20).cached()
        assert whole is not None
        assert [name for name in os.listdir(log.directory) if name.endswith(".tmp")] == []
        end = log.log_end_offset
        await log.close()
        again = opened(OsDisk(), RULES, folder=str(tmp_path / "t-0"), recovery_point=end)
        assert again.notes == []
        assert again.log.log_end_offset == end
        assert again.log.read_cached(42, end, 1 << 20).cached() == whole

    asyncio.run(scenario())


def test_pinned_end_survives_the_cache_of_open_files(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = new_log(tmp_path)
        await log.flush()
        closed = log.segments.first.file
        assert isinstance(closed, LazyFile)
        part, peer = pinned(log, 0), Peer()
        expected = log.read_cached(0, log.log_end_offset, 20_000).cached()
        peer.send(part)
        disk = log.disk
        assert isinstance(disk, OsDisk)
        assert disk._cache.clear()  # pyright: ignore[reportPrivateUsage]
        assert closed.pin(0) is None  # opening the file again may wait for the device
        await truncate(log, 5)
        assert peer.received() == expected

    asyncio.run(scenario())


def test_truncation_above_pinned_records_keeps_the_file(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = new_log(tmp_path)
        file = log.segments.active.file
        part = pinned(log, 45, 5000)
        await truncate(log, 45 + part.records)
        assert file.path == log.segments.from_offset(45)[0].file.path
        assert log.segments.from_offset(45)[0].file is file

    asyncio.run(scenario())


def test_no_records_are_pinned_during_a_truncation(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = new_log(tmp_path)
        state = log._state  # pyright: ignore[reportPrivateUsage]
        task, looks = asyncio.create_task(log.truncate_to(50)), 0
        while not task.done():
            await asyncio.sleep(0)
            if state.truncating:
                assert log.read_cached(43, log.log_end_offset, 5000).pinned() is None
                looks += 1
        assert looks
        assert log.read_cached(43, log.log_end_offset, 5000).pinned() is not None

    asyncio.run(scenario())


def test_pinned_records_are_counted_by_their_offsets(tmp_path: Path) -> None:
    log = new_log(tmp_path, 10, replace(RULES, index_interval_bytes=1 << 20))
    for size in (1, 7, 30, 2):
        append(log, *[b"x" * 100] * size)
    end = log.log_end_offset
    for offset in range(end):
        for bytes_max in (1, 1000, 3000, 9000, 1 << 20):
            found = log.read_cached(offset, end, bytes_max)
            data, part = found.cached(), found.pinned()
            assert data is not None
            assert part is not None
            assert (len(part), part.records) == (len(data), count_records(data))


def test_records_that_are_not_cached_are_not_pinned(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = new_log(tmp_path)
        await log.flush()
        part = pinned(log, 0)
        assert part.is_cached(0, len(part))
        assert is_cached(part.fileno(), part.position, len(part))
        found = log.read_cached(0, log.log_end_offset, 20_000)
        # The first and the last page stay in the page cache.
        os.posix_fadvise(part.fileno(), 4096, 8192, os.POSIX_FADV_DONTNEED)
        assert not is_cached(part.fileno(), part.position, len(part))
        assert not part.is_cached(4096, 8192)
        assert part.is_cached(0, 4096)
        assert part.is_cached(12_288, len(part) - 12_288)
        assert found.pinned() is None
        await part.read(0, len(part))
        assert part.is_cached(0, len(part))

    asyncio.run(scenario())


def test_descriptor_is_closed_with_its_last_reference(tmp_path: Path) -> None:
    disk = OsDisk()
    file = disk.open(str(tmp_path / "f"), create=True)
    file.write([b"abc"], 0)
    pin = file.pin(3)
    assert pin is not None
    descriptor = pin.fileno()
    file.close()
    assert (disk.open_files, pin.read(0, 3)) == (1, b"abc")
    assert file.pin(3) is None
    del pin
    assert disk.open_files == 0
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_compacted_topic_is_copied(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.config = replace(RULES, compact=True)
    assert log.read_cached(0, log.log_end_offset, 20_000).pinned() is None
