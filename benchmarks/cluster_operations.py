"""What happens to three brokers besides load, beside three Apache Kafka brokers.

| case | from | until |
|---|---|---|
| start of all, new | all servers were started, ours with a ZooKeeper | all brokers serve requests |
| restart of all | all brokers were stopped | every partition has all replicas in sync |
| controller fail-over | kill -9 of the controller | no partition is led by the dead broker |
| catch-up | start of a broker that missed records | its replicas are in sync |
| rolling restart | the first broker stops | the last one is in sync again |

The rolling restart reports the longest time in which a producer (librdkafka, acks=all, a record
every few milliseconds) got no acknowledgement, and the records that failed.

Directories of Kafka's brokers are formatted before their first start, which does not count.

Invariant: both clusters have the same topics with three replicas and the default settings for the
detection of dead brokers. They run one after the other, so that neither disturbs the other.

    python benchmarks/cluster_operations.py --partitions 1000 10000
"""

import argparse
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
from rich.console import Console
from rich.table import Table

from clusters import (
    Server,
    Servers,
    are_whole,
    controller_of,
    create_topic,
    delete_topic,
    kafka,
    metadata,
    ours,
    partitions_of,
    wait_until,
)
from harness import PIPED_WIDTH, write_report
from judges.java import java_command

QUESTION = "How fast are three brokers when brokers come and go, beside Apache Kafka?"
PARTITIONS = (1000, 10_000)
LOAD_PARTITIONS = 6
TOPICS = 10  # for many partitions: Kafka refuses 10,000 in one request
ROUNDS = 3
MISSED_RECORDS = 1_000_000
RECORD_BYTES = 1000
SEND_EVERY_S = 0.005
GOALS = {"controller fail-over, 10,000 partitions": 3.0, "rolling restart, records failed": 0.0}
MOVING = "moving"

client_library: Any = confluent_kafka  # the client's types are not complete


@dataclass(slots=True)
class Figures:
    """The figures of one cluster by case, and the unit of each case."""

    values: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    units: dict[str, str] = field(default_factory=dict[str, str])

    def add(self, case: str, value: float, unit: str = "s") -> None:
        """Add one measurement."""
        self.values.setdefault(case, []).append(value)
        self.units[case] = unit
        print(f"  {case}: {value:.2f} {unit}", flush=True)


def is_whole(broker: Server, topics: Sequence[str], partitions: int) -> bool:
    """Whether a broker knows that all replicas of all topics are in sync."""
    return all(are_whole(partitions_of(broker, topic), partitions) for topic in topics)


def all_at_once(servers: Servers, act: Callable[[Server], object]) -> None:
    """Do the same with all brokers in parallel."""
    with ThreadPoolExecutor(len(servers.brokers)) as threads:
        for done in [threads.submit(act, one) for one in servers.brokers.values()]:
            done.result()


def restart_all(servers: Servers, figures: Figures, topics: Sequence[str], partitions: int) -> None:
    """Stop and start all brokers."""
    total = len(topics) * partitions
    began_s = time.monotonic()
    all_at_once(servers, lambda broker: broker.stop())
    figures.add(f"stop of all, {total:,} partitions", time.monotonic() - began_s)
    began_s = time.monotonic()
    all_at_once(servers, lambda broker: broker.start())
    first = next(iter(servers.brokers.values()))
    wait_until(lambda: is_whole(first, topics, partitions))
    figures.add(f"restart of all, {total:,} partitions", time.monotonic() - began_s)


def fail_over(servers: Servers, figures: Figures, topics: Sequence[str], partitions: int) -> None:
    """Kill the controller, which leads a share of the partitions."""
    total = len(topics) * partitions
    victim = controller_of(servers)
    survivor = next(one for number, one in servers.brokers.items() if number != victim)

    def is_led() -> bool:
        # One request: the topics of one answer belong to one version of the metadata.
        found = [
            one
            for topic in metadata(survivor).topics
            if topic.name in topics
            for one in topic.partitions
        ]
        return len(found) == total and all(one.leader_id not in (-1, victim) for one in found)

    began_s = time.monotonic()
    servers.brokers[victim].kill()
    wait_until(is_led)
    figures.add(f"controller fail-over, {total:,} partitions", time.monotonic() - began_s)
    servers.brokers[victim].start()
    wait_until(lambda: is_whole(survivor, topics, partitions))


def catch_up(servers: Servers, figures: Figures, records: int) -> None:
    """Start a broker that missed records."""
    absent, *present = servers.brokers.values()
    absent.stop()
    arguments = ["--topic", MOVING, "--num-records", str(records), "--throughput", "-1"]
    arguments += ["--record-size", str(RECORD_BYTES), "--bootstrap-server", servers.bootstrap]
    arguments += ["--command-property", "acks=all", "batch.size=262144", "linger.ms=5"]
    command = java_command("org.apache.kafka.tools.ProducerPerformance", *arguments)
    subprocess.run(command, check=True, capture_output=True)
    began_s = time.monotonic()
    absent.start()
    wait_until(lambda: is_whole(present[0], [MOVING], LOAD_PARTITIONS))
    seconds = time.monotonic() - began_s
    figures.add("catch-up, with the start of the broker", seconds)
    figures.add("catch-up", records * RECORD_BYTES / 1e6 / seconds, "MB/s")


@dataclass(slots=True)
class Load:
    """The acknowledgements of a producer."""

    longest_s: float = 0.0
    acknowledged: int = 0
    failed: int = 0
    last_s: float = field(default_factory=time.monotonic)

    def note(self, error: object, message: object) -> None:
        """Count an acknowledgement or an error."""
        if error is not None:
            self.failed += 1
            return
        now_s = time.monotonic()
        self.longest_s = max(self.longest_s, now_s - self.last_s)
        self.last_s = now_s
        self.acknowledged += 1


@contextmanager
def producing(servers: Servers) -> Generator[Load]:
    """Send a record every few milliseconds."""
    producer = client_library.Producer(
        {"bootstrap.servers": servers.bootstrap, "enable.idempotence": True, "log_level": 0}
    )
    producer.produce(MOVING, b"first")
    assert producer.flush(60) == 0
    load, ends = Load(), threading.Event()

    def run() -> None:
        while not ends.wait(SEND_EVERY_S):
            producer.produce(MOVING, b"record", on_delivery=load.note)
            producer.poll(0)
        assert producer.flush(120) == 0

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield load
    finally:
        ends.set()
        thread.join()


def rolling_restart(servers: Servers, figures: Figures) -> None:
    """Restart one broker after the other under load."""
    began_s = time.monotonic()
    with producing(servers) as load:
        for number, broker in servers.brokers.items():
            other = next(one for id_, one in servers.brokers.items() if id_ != number)
            broker.stop()
            broker.start()
            wait_until(lambda other=other: is_whole(other, [MOVING], LOAD_PARTITIONS))
    figures.add("rolling restart", time.monotonic() - began_s)
    figures.add("rolling restart, longest gap", load.longest_s)
    figures.add("rolling restart, records failed", load.failed, "")


def measure(servers: Servers, sizes: Sequence[int], rounds: int, missed: int) -> Figures:
    """Run every case on one cluster."""
    print(servers.name, flush=True)
    figures = Figures()
    figures.add("start of all, new", servers.start_s)
    figures.add("memory after the start", sum(servers.memory_mb()), "MB")
    create_topic(servers, MOVING, LOAD_PARTITIONS)
    for _ in range(rounds):
        rolling_restart(servers, figures)
    catch_up(servers, figures, missed)
    delete_topic(servers, MOVING)
    for size in sizes:
        topics = [f"many-{size}-{number}" for number in range(TOPICS)]
        began_s = time.monotonic()
        for topic in topics:
            create_topic(servers, topic, size // TOPICS)
        figures.add(f"creation of {size:,} partitions", time.monotonic() - began_s)
        for _ in range(rounds):
            fail_over(servers, figures, topics, size // TOPICS)
        restart_all(servers, figures, topics, size // TOPICS)
        figures.add(f"memory, {size:,} partitions", sum(servers.memory_mb()), "MB")
        for topic in topics:
            delete_topic(servers, topic)
    return figures


def main() -> None:
    """Measure both clusters; print and store the figures."""
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--quick", action="store_true", help="a short run, for a first look")
    parser.add_argument("--partitions", type=int, nargs="+", help="for fail-overs (1000 10000)")
    parser.add_argument("--rounds", type=int, help=f"of restarts and fail-overs ({ROUNDS})")
    parser.add_argument("--only", choices=("ottla", "kafka"), help="measure one of the clusters")
    asked = parser.parse_args()
    sizes: Sequence[int] = asked.partitions or ([100] if asked.quick else PARTITIONS)
    rounds: int = asked.rounds or (1 if asked.quick else ROUNDS)
    missed = MISSED_RECORDS // 10 if asked.quick else MISSED_RECORDS
    results: dict[str, Figures] = {}
    if asked.only != "kafka":
        with ours({"ottla.partitions.max": max(sizes) + 100}) as servers:
            results["ottla"] = measure(servers, sizes, rounds, missed)
    if asked.only != "ottla":
        with kafka() as servers:
            results["kafka"] = measure(servers, sizes, rounds, missed)
    table = Table(title=QUESTION)
    table.add_column("case")
    for name in results:
        table.add_column(f"{name} median", justify="right")
        table.add_column("worst", justify="right")
    table.add_column("goal", justify="right")
    table.add_column("met?", justify="right")
    shown = next(iter(results.values()))
    for case, unit in shown.units.items():
        row = [f"{case}, {unit}" if unit else case]
        for figures in results.values():
            found = figures.values[case]
            row += [f"{statistics.median(found):.2f}", f"{max(found):.2f}"]
        if (goal := GOALS.get(case)) is not None and "ottla" in results:
            is_met = max(results["ottla"].values[case]) <= goal
            row += [f"≤ {goal:g}", "yes" if is_met else "[bold]no[/bold]"]
        table.add_row(*row)
    console = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)
    console.print(table)
    report = {
        "question": QUESTION,
        "quick": asked.quick,
        "cases": {name: figures.values for name, figures in results.items()},
        "units": shown.units,
        "goals": GOALS,
    }
    console.print(f"figures: {write_report(Path(__file__), report)}", soft_wrap=True)


if __name__ == "__main__":
    main()
