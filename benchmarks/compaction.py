"""The speed of log cleaning, and its effect on the latency of appends.

Invariant: the appends are the same in both phases, on one event loop. The phases differ only in a
child process that cleans another log, and they take turns.

The child has a low priority: if all cores are busy it gets little time. So its speed is measured
without appends.
"""

import argparse
import asyncio
import os
import secrets
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from random import Random

from rich.console import Console
from rich.table import Table

from harness import write_report
from ottla.ids import LeaderEpoch
from ottla.log.cleaner.child_processes import OsProcesses
from ottla.log.cleaner.cleaner_runners import ChildCleaner, LocalCleaner
from ottla.log.cleaner.compaction import CleaningDone
from ottla.log.files import OsDisk
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog, open_log
from ottla.records.builder import BatchBuilder
from ottla.records.compression import Compression
from ottla.records.validation import ValidationConfig, validate

NOW_MS = 1_700_000_000_000
P99_TARGET_RATIO = 2.0
RULES = LogConfig(segment_bytes=16 * 1024 * 1024, compact=True, delete=False)


async def opened(disk: OsDisk, folder: Path) -> PartitionLog:
    recovered = open_log(disk, str(folder), RULES, clean=True, now_ms=NOW_MS, random=lambda: 0.0)
    recovered.log.begin_epoch(LeaderEpoch(0))
    return recovered.log


def batch(random: Random, keys: int, compression: Compression) -> bytes:
    """A batch of 16 KB with records of 100 bytes."""
    builder = BatchBuilder(1 << 20, compression=compression)
    for _ in range(130):
        key = b"user-%012d" % random.randrange(keys)
        builder.append(NOW_MS, key, random.randbytes(40) + bytes(43))
    return builder.build()


def append(log: PartitionLog, data: bytes) -> None:
    valid = validate(data, ValidationConfig(), now_ms=NOW_MS, produce_version=12)
    log.append(valid, memoryview(data), leader_epoch=0, now_ms=NOW_MS)


async def filled(
    disk: OsDisk, folder: Path, size: int, keys: int, compression: Compression
) -> PartitionLog:
    log, random = await opened(disk, folder), Random(0)
    while log.segments.size < size:
        append(log, batch(random, keys, compression))
    log.roll(NOW_MS)
    await log.flush()
    return log


async def cleaned(log: PartitionLog, cleaner: LocalCleaner | ChildCleaner) -> CleaningDone:
    done = await log.compact(
        cleaner,
        None,
        high_watermark=log.log_end_offset,
        secret=secrets.token_bytes(16),
        clock_ms=lambda: NOW_MS,
    )
    assert done is not None
    return done


Taken = tuple[float, float]
"""Microseconds of an append: the call alone, and from when it was due, including the loop's delay.
"""


async def latencies(log: PartitionLog, data: bytes, until: asyncio.Event) -> list[Taken]:
    """The latencies of appends at a steady rate."""
    taken: list[Taken] = []
    due = time.perf_counter()
    while not until.is_set():
        due += 0.0005
        await asyncio.sleep(max(due - time.perf_counter(), 0))
        began = time.perf_counter()
        append(log, data)
        ended = time.perf_counter()
        taken.append(((ended - began) * 1e6, (ended - due) * 1e6))
        if log.segments.active.size > RULES.segment_bytes // 2:
            await log.truncate_fully_and_start_at(log.log_end_offset)
            log.begin_epoch(LeaderEpoch(0))
            due = time.perf_counter()
    return taken


async def beside(
    log: PartitionLog, data: bytes, work: Coroutine[object, object, object]
) -> list[Taken]:
    """The latencies of appends while some work runs."""
    until = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(work).add_done_callback(lambda _: until.set())
        return await latencies(log, data, until)


def percentile(taken: list[float], share: float) -> float:
    return sorted(taken)[min(int(len(taken) * share), len(taken) - 1)]


async def measure_speed(disk: OsDisk, folder: Path, size: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name, keys, compression in [
        ("few keys", 10_000, Compression.NONE),
        ("a key each", 1 << 40, Compression.NONE),
        ("few keys, lz4", 10_000, Compression.LZ4),
        ("few keys, zstd", 10_000, Compression.ZSTD),
    ]:
        log = await filled(disk, folder / f"{len(rows)}-0", size, keys, compression)
        done = await cleaned(log, LocalCleaner())
        rows.append(
            {
                "log": name,
                "MB/s": done.bytes_read / 1e3 / done.took_ms,
                "records/s": done.records_read * 1e3 / done.took_ms,
                "share of the time for keys": done.map_ms / done.took_ms,
                "left": done.bytes_written / done.bytes_read,
            }
        )
        for path in (folder / f"{len(rows) - 1}-0").iterdir():
            path.unlink()
    return rows


async def measure_appends(
    disk: OsDisk, folder: Path, size: int, rounds: int
) -> dict[str, dict[str, float]]:
    target = await opened(disk, folder / "target-0")
    data = batch(Random(1), 10_000, Compression.NONE)
    idle: list[Taken] = []
    busy: list[Taken] = []
    for number in range(rounds):
        source = await filled(disk, folder / f"source-{number}", size, 100_000, Compression.NONE)
        started = time.perf_counter()
        busy += await beside(target, data, cleaned(source, ChildCleaner(OsProcesses())))
        idle += await beside(target, data, asyncio.sleep(time.perf_counter() - started))
    return {
        f"p{share}, {what}": {
            "idle µs": (alone := percentile([one[which] for one in idle], share / 100)),
            "cleaning µs": (slowed := percentile([one[which] for one in busy], share / 100)),
            "ratio": slowed / alone,
            "appends": len(idle) + len(busy),
        }
        for which, what in enumerate(("the append", "from when it was due"))
        for share in (50, 99)
    }


async def main(quick: bool) -> None:
    size = (32 if quick else 128) * 1024 * 1024
    console = Console(width=110)
    disk = OsDisk()
    with tempfile.TemporaryDirectory() as name:
        speed = await measure_speed(disk, Path(name), size)
        table = Table(title="How fast is a log cleaned?", caption="one core, in this process")
        for column in speed[0]:
            table.add_column(column, justify="right")
        for row in speed:
            table.add_row(*(v if isinstance(v, str) else f"{v:,.2f}" for v in row.values()))
        console.print(table)
        appends = await measure_appends(disk, Path(name), 2 * size, 2 if quick else 4)
    disk.close()
    table = Table(
        title="What do appends of 16 KB take while a child process cleans another log?",
        caption=f"target: p99 of the append at most {P99_TARGET_RATIO:g} x of idle",
    )
    for column in ("", *next(iter(appends.values()))):
        table.add_column(column, justify="right")
    for what, figures in appends.items():
        table.add_row(what, *(f"{figure:,.2f}" for figure in figures.values()))
    console.print(table)
    report = {"quick": quick, "cores": os.cpu_count(), "speed": speed, "appends": appends}
    console.print(f"figures: {write_report(Path(__file__), report)}", soft_wrap=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run, for a first look")
    asyncio.run(main(parser.parse_args().quick))
