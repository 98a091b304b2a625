"""The cost of the log compared with plain files: validated appends and reads by offset.

Invariant: both candidates write the same bytes to files in the same directory, one call per batch.
Ours also validates the batch (CRC and every record), assigns offsets, and updates the indexes. Both
read the same bytes from memory; ours finds them by offset.

Both truncate their files at a limit, so that a long run needs no more disk space than a short one.
"""

import asyncio
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

from harness import Case, run
from ottla.ids import LeaderEpoch, Offset
from ottla.log.files import OsDisk
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import open_log
from ottla.records.builder import BatchBuilder
from ottla.records.validation import ValidationConfig, validate

BYTES_MAX = 512 * 1024 * 1024
NOW_MS = 1_700_000_000_000


def batch(records: int, value_size: int) -> memoryview:
    builder = BatchBuilder(16 * 1024 * 1024)
    for _ in range(records):
        builder.append(NOW_MS, None, os.urandom(value_size))
    return memoryview(builder.build())


def plain(path: Path, data: memoryview) -> Callable[[], object]:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
    position = 0

    def write() -> None:
        nonlocal position
        if position > BYTES_MAX:
            os.ftruncate(descriptor, 0)
            position = 0
        position += os.pwritev(descriptor, [data], position)

    return write


def ours(disk: OsDisk, folder: Path, data: memoryview) -> Callable[[], object]:
    opened = open_log(disk, str(folder), LogConfig(), clean=True, now_ms=NOW_MS, random=lambda: 0.0)
    log, rules = opened.log, ValidationConfig()
    log.begin_epoch(LeaderEpoch(0))

    def append() -> None:
        if log.segments.active.size > BYTES_MAX:
            asyncio.run(log.truncate_fully_and_start_at(Offset(0)))
            log.begin_epoch(LeaderEpoch(0))
        valid = validate(data, rules, now_ms=NOW_MS, produce_version=12)
        log.append(valid, data, leader_epoch=0, now_ms=NOW_MS)

    return append


def read_cases(disk: OsDisk, folder: Path) -> list[Case]:
    """Reads of 1 MB in sequence, and random reads of 16 KB."""
    opened = open_log(disk, str(folder), LogConfig(), clean=True, now_ms=NOW_MS, random=lambda: 0.0)
    log, data = opened.log, batch(150, 100)
    log.begin_epoch(LeaderEpoch(0))
    for _ in range(8000):
        valid = validate(data, ValidationConfig(), now_ms=NOW_MS, produce_version=12)
        log.append(valid, data, leader_epoch=0, now_ms=NOW_MS)
    descriptor = os.open(log.segments.active.file.path, os.O_RDONLY)
    size, end, random = log.segments.active.size, log.log_end_offset, Random(0)
    whole = 1024 * 1024 // len(data) * len(data)
    for at in range(0, size, whole):  # reads the file back into the page cache
        os.pread(descriptor, whole, at)
    offset = position = 0

    def ours_in_order() -> None:
        nonlocal offset
        found = log.read_cached(offset, end, whole).cached()
        assert found is not None
        offset += len(found) // len(data) * 150
        offset = 0 if offset >= end else offset

    def plain_in_order() -> None:
        nonlocal position
        position += len(os.pread(descriptor, whole, position))
        position = 0 if position >= size else position

    def ours_anywhere() -> None:
        log.read_cached(int(random.random() * end), end, len(data)).cached()

    def plain_anywhere() -> None:
        at = int(random.random() * 8000) * len(data)
        os.pread(descriptor, len(data), at)

    return [
        Case("read, 1 MB in order", {"ottla": ours_in_order, "plain": plain_in_order}, whole / 1e6),
        Case(
            "read, 16 KB from anywhere",
            {"ottla": ours_anywhere, "plain": plain_anywhere},
            len(data) / 1e6,
        ),
    ]


def main() -> None:
    disk = OsDisk()
    large, huge = batch(16, 1000), batch(1000, 1000)
    with tempfile.TemporaryDirectory() as folder:
        cases = [
            Case(
                f"append, {name}",
                {
                    "ottla": ours(disk, Path(folder) / f"t-{number}", data),
                    "plain": plain(Path(folder) / str(number), data),
                },
                work,
                target_ratio=ratio,
                target_more_us=more_us,
            )
            for number, (name, data, work, ratio, more_us) in enumerate(
                [
                    ("1 record of 100 B, µs", batch(1, 100), None, None, None),
                    ("16 KB of 100 B, µs", batch(150, 100), None, None, 12),
                    ("16 KB of 1 KB, µs", batch(16, 1000), None, None, 12),
                    ("16 KB of 1 KB, MB/s", large, len(large) / 1e6, None, None),
                    ("1 MB of 1 KB, MB/s", huge, len(huge) / 1e6, 0.8, None),
                ]
            )
        ]
        cases += read_cases(disk, Path(folder) / "r-0")
        run(__file__, "What does the log cost over plain files?", cases, "MB", ("fastcrc",))
    disk.close()


if __name__ == "__main__":
    main()
