"""Closed segments and file descriptors: few are open, and readers do not notice."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from log.logs import SMALL, append, fill, opened
from ottla.errors import DescriptorsExhausted, ErrorCode, RequestError
from ottla.ids import LeaderEpoch
from ottla.log.cached_reads import NotCached
from ottla.log.files import OsDisk
from ottla.log.lazy_files import CAPACITY_MIN, LazyFile, cache_capacity
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.records.batch import batches

# Every batch rolls the segment, as with segment.ms=1.
ROLLING = LogConfig(segment_ms=0, index_interval_bytes=150)
LIMIT = CAPACITY_MIN * 4  # of open files; the cache has its smallest size


def led(disk: OsDisk, folder: Path, config: LogConfig = ROLLING) -> PartitionLog:
    log = opened(disk, config, folder=str(folder)).log
    log.begin_epoch(LeaderEpoch(0))
    return log


def few_are_open(disk: OsDisk, most: int = CAPACITY_MIN + 1) -> bool:
    """Whether at most so many files are open; a thread may still drop those of its last task."""
    until_s = time.monotonic() + 10
    while disk.open_files > most and time.monotonic() < until_s:
        time.sleep(0.001)
    return disk.open_files <= most


def offsets(log: PartitionLog) -> list[int]:
    """The offsets of all records, read in several fetches."""

    async def read() -> list[int]:
        found: list[int] = []
        while (start := len(found)) < log.log_end_offset:
            piece = await (await log.read(start, log.log_end_offset, 300)).read()
            found += [record.offset for one in batches(piece) for record in one.records()]
        return found

    return asyncio.run(read())


def rolled(log: PartitionLog, count: int) -> None:
    """Append records that each roll a segment, and flush."""
    fill(log, count, start=log.log_end_offset)
    asyncio.run(log.flush())


def test_flushed_segments_do_not_keep_descriptors(tmp_path: Path) -> None:
    disk = OsDisk(open_files_max=lambda: LIMIT)
    log = led(disk, tmp_path)
    for _ in range(10):
        rolled(log, 20)
    assert len(log.segments) == 200
    assert few_are_open(disk)
    assert offsets(log) == list(range(200))
    assert few_are_open(disk)
    disk.close()


def test_a_start_opens_segments_only_as_needed(tmp_path: Path) -> None:
    disk = OsDisk()
    log = led(disk, tmp_path)
    rolled(log, 100)
    log.close_files()
    for clean in (True, False):
        few = OsDisk(open_files_max=lambda: LIMIT)
        found = opened(few, ROLLING, folder=str(tmp_path), clean=clean, recovery_point=100).log
        assert few_are_open(few)
        assert offsets(found) == list(range(100))
        found.close_files()
        assert not few.open_files
        few.close()
    disk.close()


def test_a_log_short_of_descriptors_rolls_once_per_flush(tmp_path: Path) -> None:
    disk = OsDisk(open_files_max=lambda: LIMIT)
    log = led(disk, tmp_path)
    fill(log, 500)
    assert disk.open_files == LIMIT // 2  # the other half is for connections
    asyncio.run(log.flush())
    assert few_are_open(disk)
    fill(log, 500, start=500)
    assert disk.open_files == LIMIT // 2
    assert offsets(log) == list(range(1000))
    disk.close()


def test_a_full_segment_rolls_though_descriptors_are_short(tmp_path: Path) -> None:
    disk = OsDisk(open_files_max=lambda: 0)
    log = led(disk, tmp_path, LogConfig(index_bytes_max=16, index_interval_bytes=1))
    fill(log, 20)
    assert len(log.segments) > 2  # the index has no space for more entries
    disk.close()


def test_cached_files_are_closed_if_no_descriptor_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = OsDisk()
    log = led(disk, tmp_path)
    rolled(log, 10)
    before, real_open = disk.open_files, os.open

    def limited(path: str, flags: int, mode: int = 0o777) -> int:
        if disk.open_files >= before:
            raise OSError(24, "Too many open files")
        return real_open(path, flags, mode)

    monkeypatch.setattr(os, "open", limited)
    append(log, b"rolls", timestamp=10)
    assert len(log.segments) == 11
    assert disk.open_files < before
    monkeypatch.setattr(os, "open", _fail)
    with pytest.raises(DescriptorsExhausted):
        log.roll(0)
    monkeypatch.undo()
    disk.close()


def _fail(path: str, flags: int, mode: int = 0o777) -> int:
    raise OSError(24, "Too many open files")


keep: list[object] = []  # files that are closed when nothing refers to them


def evicted(disk: OsDisk, folder: Path) -> Callable[[int, int], bytes]:
    """A reader of a closed file, after the disk has closed it."""
    path = folder / "00000000000000000000.log"
    path.write_bytes(b"0123456789")
    keep.clear()
    file = disk.open(str(path)).released()
    assert isinstance(file, LazyFile)
    assert file.read_cached(2, 3) == b"234"
    for number in range(CAPACITY_MIN):
        other = folder / f"other{number}"
        other.touch()
        keep.append(disk.open(str(other)).released())
    assert file.read_cached(2, 3) is None  # opening it may wait for the device
    return file.read


def test_reader_of_a_deleted_segment_finds_its_records(tmp_path: Path) -> None:
    disk = OsDisk(open_files_max=lambda: LIMIT)
    read = evicted(disk, tmp_path)
    path = tmp_path / "00000000000000000000.log"
    path.rename(f"{path}.deleted")
    assert read(2, 3) == b"234"
    disk.close()


def test_reader_of_a_replaced_segment_gets_an_error(tmp_path: Path) -> None:
    disk = OsDisk(open_files_max=lambda: LIMIT)
    read = evicted(disk, tmp_path)
    cleaned = tmp_path / "cleaned"
    cleaned.write_bytes(b"abcdefghij")
    cleaned.rename(tmp_path / "00000000000000000000.log")
    with pytest.raises(RequestError) as refused:
        read(2, 3)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    disk.close()


def test_pinned_file_is_readable_after_the_cache_closed_it(tmp_path: Path) -> None:
    disk = OsDisk()
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"0123456789")
    file = disk.open(str(path)).released()
    pin = file.pin(5)
    assert pin is not None
    file.close()
    assert pin.read(2, 3) == b"234"
    other = disk.open(str(path)).released()
    other.pin(7)
    assert other.pinned_end == other.held().pinned_end == 7  # a truncation must not change them
    disk.close()


def test_a_truncation_makes_a_closed_segment_writable(tmp_path: Path) -> None:
    disk = OsDisk(open_files_max=lambda: LIMIT)
    log = led(disk, tmp_path, SMALL)
    fill(log, 400)
    asyncio.run(log.flush())
    asyncio.run(log.truncate_to(5))
    append(log, b"after", timestamp=1000)
    assert offsets(log) == list(range(6))
    assert few_are_open(disk)
    disk.close()


def test_a_deleted_segment_gives_its_disk_space_back(tmp_path: Path) -> None:
    disk = OsDisk()
    log = led(disk, tmp_path)
    rolled(log, 10)
    before = disk.open_files
    log.advance_log_start(log.log_end_offset)
    asyncio.run(log.delete_old_segments(high_watermark=log.log_end_offset, now_ms=10**6))
    assert few_are_open(disk, before - 3 * 8 - 1)
    disk.close()


def test_event_loop_does_not_open_a_closed_segment(tmp_path: Path) -> None:
    disk = OsDisk(open_files_max=lambda: LIMIT)
    log = led(disk, tmp_path)
    for _ in range(5):
        rolled(log, 20)
    with pytest.raises(NotCached):
        log.read_cached(0, log.log_end_offset, 1)
    disk.close()


@pytest.mark.parametrize(
    ("limit", "capacity"), [(None, 16_384), (100, 32), (1024, 128), (2**20, 16_384)]
)
def test_capacity_depends_on_the_limit(limit: int | None, capacity: int) -> None:
    assert cache_capacity(limit) == capacity
