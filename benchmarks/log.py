"""What the log costs over plain writes of the same bytes: check, index, append.

Invariant: both candidates write the same bytes to files of the same folder, one call a batch; ours
also validates the batch (CRC and every record), places it, and keeps the indexes.

The files are cut back when they reach a limit, by both alike, so that a long run needs no more
disk than a short one.
"""

import asyncio
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from harness import Case, run
from ottla.ids import LeaderEpoch, Offset
from ottla.log.files import OsDisk
from ottla.log.recovery import open_log
from ottla.log.rules import LogRules
from ottla.records.builder import BatchBuilder
from ottla.records.validation import TopicRules, validate

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
    opened = open_log(disk, str(folder), LogRules(), clean=True, now_ms=NOW_MS, chance=lambda: 0.0)
    log, rules = opened.log, TopicRules()
    asyncio.run(log.begin_epoch(LeaderEpoch(0)))

    def append() -> None:
        if log.segments.active.size > BYTES_MAX:
            asyncio.run(log.truncate_fully_and_start_at(Offset(0)))
            asyncio.run(log.begin_epoch(LeaderEpoch(0)))
        valid = validate(data, rules, now_ms=NOW_MS, produce_version=12)
        log.append(valid, data, leader_epoch=0, now_ms=NOW_MS)

    return append


def main() -> None:
    disk = OsDisk()
    with tempfile.TemporaryDirectory() as folder:
        cases = [
            Case(
                f"append, {name}",
                {
                    "ottla": ours(disk, Path(folder) / f"t-{number}", data),
                    "plain write": plain(Path(folder) / str(number), data),
                },
            )
            for number, (name, data) in enumerate(
                [
                    ("1 record of 100 B", batch(1, 100)),
                    ("16 KB of 100 B", batch(150, 100)),
                    ("16 KB of 1 KB", batch(16, 1000)),
                    ("1 MB of 1 KB", batch(1000, 1000)),
                ]
            )
        ]
        run(__file__, "What does the log cost over plain writes?", cases, "batch", ("fastcrc",))
    disk.close()


if __name__ == "__main__":
    main()
