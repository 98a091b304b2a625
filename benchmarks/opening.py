"""Time to open logs: many after a clean shutdown, a large one after a crash.

Invariant: ours opens a copy of the directory that Kafka wrote, in turns with Kafka, all of it in
the page cache. Both times end when every log is open, without the start of the process.

    python benchmarks/opening.py --gigabytes 2 --partitions 2000
"""

import argparse
import asyncio
import logging
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from harness import OURS, Case, Row, Timing, report
from kafka_server import (
    NoJudge,
    create_topic,
    forget_clean_stop,
    kafka_server,
    start_s,
    write_bytes,
    write_to_each,
)
from ottla.clock import SystemClock
from ottla.ids import BrokerEpoch, BrokerId, Uuid
from ottla.log.checkpoints import parse_meta_properties
from ottla.log.files import OsDisk
from ottla.log.log_config import LogConfig
from ottla.log.log_manager import LogManager
from ottla.log.names import META_PROPERTIES

QUESTION = "How soon does a broker have its logs open?"
PEER = "kafka"
ROUNDS = 3
GIGABYTE = 1024**3


async def open_directory(data: Path) -> tuple[LogManager, float]:
    """Open all logs of a directory as our broker does; the logs and the seconds."""
    meta = parse_meta_properties((data / META_PROPERTIES).read_text())
    assert meta.cluster_id is not None
    began_s = time.perf_counter()
    logs = await LogManager.open(
        OsDisk(),
        [str(data)],
        lambda topic: LogConfig(),
        cluster_id=meta.cluster_id,
        node_id=meta.node_id or BrokerId(1),
        clock=SystemClock(),
        random=random.random,
        new_id=lambda: Uuid(random.randbytes(16)),
    )
    return logs, time.perf_counter() - began_s


async def open_and_close_s(data: Path, logs_expected: int) -> float:
    logs, taken_s = await open_directory(data)
    assert len(logs) == logs_expected
    await logs.close(BrokerEpoch(1))
    return taken_s


async def open_and_crash_s(data: Path, logs_expected: int) -> float:
    logs, taken_s = await open_directory(data)
    assert len(logs) == logs_expected
    logs.release()
    return taken_s


def in_turns(ours: Callable[[], float], theirs: Callable[[], float]) -> dict[str, Timing]:
    taken: dict[str, list[float]] = {OURS: [], PEER: []}
    for _ in range(ROUNDS):
        taken[OURS].append(ours())
        taken[PEER].append(theirs())
    return {
        name: Timing(min(times), statistics.median(times), ROUNDS, 1)
        for name, times in taken.items()
    }


def clean(copies: Path, partitions: int) -> Row:
    """Many partitions with one record each, after a clean shutdown."""
    with kafka_server() as kafka:
        create_topic(kafka, partitions)
        write_to_each(kafka, partitions, time.time_ns() // 1_000_000)
        kafka.stop()
        copy = shutil.copytree(kafka.data, copies / "clean")

        def theirs() -> float:
            taken_s = start_s(kafka, partitions)
            kafka.stop()
            return taken_s

        timings = in_turns(lambda: asyncio.run(open_and_close_s(copy, partitions)), theirs)
    case = Case(f"partitions, {partitions:,} after a clean stop", {}, partitions, target_ratio=1)
    return Row(case, timings)


def unclean(copies: Path, gigabytes: float) -> Row:
    """One large log that is recovered completely."""
    with kafka_server() as kafka:
        create_topic(kafka, 1)
        write_bytes(kafka, int(gigabytes * GIGABYTE))
        kafka.kill()
        forget_clean_stop(kafka.data)
        copy = shutil.copytree(kafka.data, copies / "unclean")

        def ours() -> float:
            forget_clean_stop(copy)
            return asyncio.run(open_and_crash_s(copy, 1))

        def theirs() -> float:
            forget_clean_stop(kafka.data)
            taken_s = start_s(kafka, 1)
            kafka.kill()
            return taken_s

        timings = in_turns(ours, theirs)
    return Row(Case(f"GB, {gigabytes:g} after kill -9", {}, gigabytes, target_ratio=1), timings)


def main() -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--quick", action="store_true", help="less data, for a first look")
    parser.add_argument("--gigabytes", type=float, help="of the log that is checked (2)")
    parser.add_argument("--partitions", type=int, help="that are opened after a clean stop (2000)")
    options = parser.parse_args()
    logging.disable()  # our broker logs the metadata directory of Kafka as unknown
    quick: bool = options.quick
    gigabytes: float = options.gigabytes or (0.1 if quick else 2)
    partitions: int = options.partitions or (100 if quick else 2000)
    with tempfile.TemporaryDirectory() as folder:
        try:
            rows = [clean(Path(folder), partitions), unclean(Path(folder), gigabytes)]
        except NoJudge as missing:
            print(f"{QUESTION} Not measured: {missing}")
            return
    report(__file__, QUESTION, rows, "GB or partitions", ("fastcrc",), quick=quick)


if __name__ == "__main__":
    main()
