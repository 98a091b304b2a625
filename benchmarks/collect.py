"""The collector of files, beside `tail -F` and a pipe into a producer.

The peer is `tail -n +1 -F FILE | producer`. Usually that producer is kcat, which pip does not
install; here it is a loop over stdin with confluent-kafka, which is librdkafka as in kcat. It sends
the same records: key, headers, acks=all, idempotence. Unlike the collector, it stores no position.

Invariant: one broker in its own process. Both collect the same file in turns, each with new
processes and a new topic. The time is from the start of the processes until the topic has all
lines. The CPU time is that of their processes, with their start, without the broker.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.table import Table

from harness import write_report

sys.path.append(str(Path(__file__).parents[1]))

from judges.ottla_broker import UNCOMPILED, OttlaBroker, ottla_broker
from ottla.client.admin import NewTopic
from ottla.sync import Admin, Consumer

QUESTION: Final = "Does the collector keep up with tail and a pipe?"
BIN: Final = Path(sys.executable).parent
SIZES: Final = (100, 1_000)
PATIENCE_S: Final = 300
POLL_S: Final = 0.01


class Figures(NamedTuple):
    """The figures of one run."""

    mb_per_s: float
    cpu_s_per_gb: float


def environment() -> dict[str, str]:
    """The environment of a user: modules are compiled, and there is no profile."""
    kept = {name: value for name, value in os.environ.items() if name != UNCOMPILED}
    return {**kept, "OTTLA_CONFIG": os.devnull}


def collector(path: Path, servers: str, topic: str) -> "list[subprocess.Popen[bytes]]":
    state = tempfile.mkdtemp(dir=path.parent)
    command = [str(BIN / "ottla"), "collect", "files", str(path), "--topic", topic]
    command += ["--state", state, "-b", servers]
    return [subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment())]


def pipe(path: Path, servers: str, topic: str) -> "list[subprocess.Popen[bytes]]":
    tail = subprocess.Popen(["tail", "-n", "+1", "-F", str(path)], stdout=subprocess.PIPE)
    command = [sys.executable, __file__, "--pipe", servers, topic, str(path)]
    producer = subprocess.Popen(command, stdin=tail.stdout, env=environment())
    assert tail.stdout is not None
    tail.stdout.close()
    return [tail, producer]


def send_stdin(servers: str, topic: str, path: str) -> None:
    """Send each line of stdin, as kcat does."""
    from confluent_kafka import Producer as ConfluentProducer

    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "enable.idempotence": True,
        "linger.ms": 5,
    }
    producer: Any = ConfluentProducer(settings)
    key, headers = path.encode(), [("file", path.encode()), ("host", socket.gethostname())]
    for line in sys.stdin.buffer:
        value = line[:-1]
        while True:
            try:
                producer.produce(topic, value, key, headers=headers)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()


def measured(
    start: "Callable[[Path, str, str], list[subprocess.Popen[bytes]]]",
    path: Path,
    lines: int,
    broker: OttlaBroker,
    topic: str,
) -> Figures:
    """Collect a file once."""
    settings = {"bootstrap.servers": broker.bootstrap}
    with Admin(settings) as admin:
        admin.create_topics([NewTopic(topic, partitions=1)]).or_raise()
    with Consumer(settings) as consumer:
        partitions = consumer.partitions(topic)
        begun_s = time.perf_counter()
        processes = start(path, broker.bootstrap, topic)
        while sum(consumer.end_offsets(*partitions).values()) < lines:
            assert time.perf_counter() < begun_s + PATIENCE_S
            assert all(one.poll() is None for one in processes)
            time.sleep(POLL_S)
        taken_s = time.perf_counter() - begun_s
    cpu_s = 0.0
    for one in reversed(processes):  # a producer without its pipe would only flush
        one.terminate()
        _, _, usage = os.wait4(one.pid, 0)
        one.returncode = 0
        cpu_s += usage.ru_utime + usage.ru_stime
    size = path.stat().st_size
    return Figures(size / 1e6 / taken_s, cpu_s / (size / 1e9))


def main() -> None:
    arguments = argparse.ArgumentParser(description=QUESTION)
    arguments.add_argument("--quick", action="store_true", help="smaller files, one round")
    arguments.add_argument("--pipe", nargs=3, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.pipe:
        send_stdin(*given.pipe)
        return
    rounds, file_bytes = (1, 40_000_000) if given.quick else (3, 200_000_000)
    console = Console(width=None if sys.stdout.isatty() else 130)
    table = Table("line", "", title=QUESTION)
    for heading in ("MB/s", "CPU s/GB"):
        table.add_column(heading, justify="right")
    cases: list[dict[str, object]] = []
    candidates = {"ottla collect files": collector, "tail -F | confluent-kafka": pipe}
    numbers = count()
    with ottla_broker() as broker, tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            path = Path(folder) / f"{size}.log"
            lines = file_bytes // size
            with path.open("wb") as file:
                file.writelines(b"%09d %s\n" % (at, b"." * (size - 11)) for at in range(lines))
            found: dict[str, list[Figures]] = {name: [] for name in candidates}
            for turn in range(rounds):
                for name in candidates if turn % 2 == 0 else reversed([*candidates]):
                    start = candidates[name]
                    figures = measured(start, path, lines, broker, f"lines-{next(numbers)}")
                    found[name].append(figures)
                    console.print(f"{size} B  {name}: {figures.mb_per_s:.1f} MB/s", highlight=False)
            for name, every in found.items():
                mb_per_s = statistics.median(one.mb_per_s for one in every)
                cpu = statistics.median(one.cpu_s_per_gb for one in every)
                table.add_row(f"{size} B", name, f"{mb_per_s:.1f}", f"{cpu:.1f}")
                row = {"line_bytes": size, "candidate": name}
                cases.append({**row, "mb_per_s": mb_per_s, "cpu_s_per_gb": cpu})
            path.unlink()
    console.print(table)
    report = {"question": QUESTION, "quick": given.quick, "cases": cases}
    console.print(f"figures: {write_report(Path(__file__), report)}", soft_wrap=True)


if __name__ == "__main__":
    main()
