"""Indexes of closed segments stay in files: no read blocks the loop, and damage is repaired."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from cases import each_case
from log.logs import FOLDER, append, contents, new_log, opened
from ottla.ids import LeaderEpoch
from ottla.log.cached_reads import NotCached
from ottla.log.disk import read_whole
from ottla.log.files import OsDisk
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.records.batch import batches
from ottla.testing.disk import SimulatedDisk, finish

T = TypeVar("T")


class ThreadCountingDisk(SimulatedDisk):
    """Counts the calls that run in a thread."""

    def __init__(self) -> None:
        super().__init__()
        self.in_threads = 0

    async def blocking(self, call: Callable[[], T]) -> T:
        self.in_threads += 1
        return await super().blocking(call)


def log_of_closed_segments(disk: SimulatedDisk) -> PartitionLog:
    log = new_log(disk, LogConfig(segment_bytes=20_000, index_interval_bytes=150))
    for number in range(300):
        append(log, b"x" * 100, timestamp=1000 + number)
    finish(log.flush())
    closed = list(log.segments)[:-1]
    assert len(closed) > 1
    assert all(one.offset_index.is_in_file and one.time_index.is_in_file for one in closed)
    return log


def test_cold_index_is_read_in_a_thread() -> None:
    disk = ThreadCountingDisk()
    log = log_of_closed_segments(disk)
    disk.is_cold = lambda path: path.endswith("index")
    disk.in_threads = 0
    with pytest.raises(NotCached) as cold:
        log.read_cached(50, 300, 100)
    assert cold.value.file.path.endswith("00000000000000000000.index")
    assert disk.in_threads == 0
    found = finish(log.read(50, 300, 100))
    assert disk.in_threads == 1  # one block has the position of the offset and the end of the bytes
    assert next(batches(finish(found.read()))).header.base_offset == 50
    assert finish(log.find_timestamp(1060)) == (60, 1060, 0)


@each_case("name", ["00000000000000000000.index", "00000000000000000000.timeindex"])
@each_case("left", [0, 8, 100])
def test_index_truncated_at_runtime_is_rebuilt(name: str, left: int) -> None:
    disk = SimulatedDisk()
    log = log_of_closed_segments(disk)
    whole = read_whole(disk, f"{FOLDER}/{name}")
    disk.open(f"{FOLDER}/{name}").truncate(left)
    assert finish(log.find_timestamp(1060)) == (60, 1060, 0)
    if not name.endswith("timeindex"):
        assert next(batches(finish(finish(log.read(50, 300, 100)).read()))).header.base_offset == 50
    first = log.segments.first
    assert not first.offset_index.is_in_file
    assert not log.damaged
    finish(log.flush())
    assert first.offset_index.is_in_file
    assert read_whole(disk, f"{FOLDER}/{name}") == whole


def test_index_damaged_at_runtime_is_rebuilt() -> None:
    disk = SimulatedDisk()
    log = log_of_closed_segments(disk)
    path = f"{FOLDER}/00000000000000000000.index"
    whole = read_whole(disk, path)
    for position in range(7, len(whole), 8):
        disk.rot(path, position)
    with pytest.raises(NotCached):  # if the caller must not block
        log.read_cached(50, 300, 100)
    assert next(batches(finish(finish(log.read(50, 300, 100)).read()))).header.base_offset == 50
    finish(log.flush())
    assert read_whole(disk, path) == whole


def test_log_with_a_truncated_index_can_be_truncated() -> None:
    disk = SimulatedDisk()
    log = log_of_closed_segments(disk)
    disk.open(f"{FOLDER}/00000000000000000000.index").truncate(9)
    finish(log.truncate_to(70))
    assert log.log_end_offset == 70
    append(log, b"new")
    assert [offset for offset, _ in contents(log)] == list(range(71))
    finish(log.close())
    again = opened(disk, recovery_point=71)
    assert again.log.log_end_offset == 71
    assert contents(again.log) == contents(log)


def test_truncated_index_file_does_not_end_the_process(tmp_path: Path) -> None:
    disk = OsDisk()
    rules = LogConfig(segment_bytes=20_000, index_interval_bytes=150)
    log = opened(disk, rules, folder=str(tmp_path / "t-0")).log
    log.begin_epoch(LeaderEpoch(0))
    for _ in range(300):
        append(log, b"x" * 100)
    asyncio.run(log.flush())
    for path in tmp_path.glob("t-0/*index"):
        os.truncate(path, 0)
    for offset in range(0, 300, 7):
        found = asyncio.run(log.read(offset, 300, 100))
        assert next(batches(asyncio.run(found.read()))).header.base_offset == offset
    asyncio.run(log.close())
    disk.close()


@each_case("byte", range(8))
@each_case("bit", [0x01, 0x40])
def test_c4_flipped_offset_index_bit_skips_no_record(byte: int, bit: int) -> None:
    disk = SimulatedDisk()
    log = log_of_closed_segments(disk)
    path = f"{FOLDER}/00000000000000000000.index"
    number = 5
    entry = read_whole(disk, path)[8 * number :]
    offset = int.from_bytes(entry[:4], "big")
    disk.rot(path, 8 * number + byte, bit)
    for asked in range(offset - 3, offset + 4):
        found = finish(log.read(asked, 300, 200))
        assert next(batches(finish(found.read()))).header.base_offset == asked


def test_c4_wrong_index_does_not_mislead_truncation() -> None:
    disk = SimulatedDisk()
    log = log_of_closed_segments(disk)
    path = f"{FOLDER}/00000000000000000000.index"
    offset = int.from_bytes(read_whole(disk, path)[40:44], "big")
    disk.rot(path, 44, 0x40)
    finish(log.truncate_to(offset + 1))
    assert [one for one, _ in contents(log)] == list(range(offset + 1))
    append(log, b"new")
    assert [one for one, _ in contents(log)] == list(range(offset + 2))
