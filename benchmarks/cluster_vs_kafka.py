"""Three replicated brokers beside three Apache Kafka brokers, under the same load.

Each topic has three replicas and the producers use acks=all. Ours are three processes, coordinated
by a real ZooKeeper, whose CPU time counts for us. Kafka's are three combined brokers and
controllers. Both clusters run all the time, and take turns.

Invariant: a figure is the median of the rounds; CPU is that of all server processes for the same
work, after a warm-up that does not count.
"""

import argparse
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from rich.console import Console
from rich.table import Table

from clusters import Servers, create_topic, delete_topic, kafka, ours
from harness import write_report
from judges.java import java_command

QUESTION = "How do three of our brokers compare with three of Kafka's, replicated, acks=all?"
PARTITIONS = 6
ROUNDS = 3
IDLE_PARTITIONS = 1000


@dataclass(frozen=True, slots=True)
class Load:
    """Records for Java's producer."""

    name: str
    records: int
    size: int
    settings: tuple[str, ...] = ()
    goal_rate: float = 1.2
    goal_cpu: float = 0.5


LOADS = (
    Load("produce 100 B", 1_500_000, 100, goal_rate=1.5),
    Load("produce 1 KB", 200_000, 1000),
    Load("produce 1 KB, 256 KB batches", 300_000, 1000, ("batch.size=262144", "linger.ms=5")),
)


def produce(servers: Servers, topic: str, load: Load, records: int) -> float:
    """Produce at full speed with Java's producer; returns records/s."""
    arguments = ["--topic", topic, "--num-records", str(records), "--record-size", str(load.size)]
    arguments += ["--throughput", "-1", "--bootstrap-server", servers.bootstrap]
    arguments += ["--command-property", "acks=all", *load.settings]
    command = java_command(
        "org.apache.kafka.tools.ProducerPerformance",
        *arguments,
        options=("-Xmx512m", "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"),
    )
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    line = [one for one in done.stdout.splitlines() if "records/sec" in one][-1]
    found = re.search(r"([\d.]+) records/sec", line)
    assert found is not None, line
    return float(found[1])


def measure(load: Load, clusters: Sequence[Servers], rounds: int, share: float) -> None:
    """Run a load on each cluster in turns."""
    records = int(load.records * share)
    for servers in clusters:
        servers.rates, servers.cpu_s = [], []
    for number in range(-1, rounds):  # the first round warms up
        for servers in clusters:
            topic = f"load-{abs(number)}-{load.size}-{time.monotonic_ns()}"
            create_topic(servers, topic, PARTITIONS)
            before_s = servers.used_s()
            rate = produce(servers, topic, load, records if number >= 0 else records // 2)
            if number >= 0:
                servers.rates.append(rate)
                servers.cpu_s.append(servers.used_s() - before_s)
            delete_topic(servers, topic)


def main() -> None:
    """Measure all loads, with and without idle partitions; print and store the figures."""
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--quick", action="store_true", help="a short run, for a first look")
    parser.add_argument("--idle", action="store_true", help="also with 1,000 idle partitions")
    asked = parser.parse_args()
    rounds, share = (1, 0.2) if asked.quick else (ROUNDS, 1.0)
    console = Console()
    table = Table(title=QUESTION)
    for name in ("load", "records/s", "kafka", "x", "CPU s", "kafka", "x", "goal"):
        table.add_column(name, justify="left" if name == "load" else "right")
    cases: list[dict[str, object]] = []
    with ours() as first, kafka() as second:
        clusters = (first, second)
        for idle in (0, IDLE_PARTITIONS) if asked.idle else (0,):
            if idle:
                for servers in clusters:
                    create_topic(servers, "idle", idle)
            for load in LOADS:
                console.print(f"{load.name} ({idle} idle partitions) …", highlight=False)
                measure(load, clusters, rounds, share)
                rate, peer = (statistics.median(one.rates) for one in clusters)
                cpu, peer_cpu = (statistics.median(one.cpu_s) for one in clusters)
                name = f"{load.name}, {idle} idle partitions" if idle else load.name
                table.add_row(
                    name,
                    f"{rate:,.0f}",
                    f"{peer:,.0f}",
                    f"{rate / peer:.2f}",
                    f"{cpu:.2f}",
                    f"{peer_cpu:.2f}",
                    f"{cpu / peer_cpu:.2f}",
                    f"≥{load.goal_rate} ≤{load.goal_cpu} CPU",
                )
                cases.append(
                    {
                        "name": name,
                        "rate": rate,
                        "kafka_rate": peer,
                        "cpu_s": cpu,
                        "kafka_cpu_s": peer_cpu,
                    }
                )
        memory = [round(one.memory_mb()) for one in clusters]
    console.print(table)
    console.print(f"memory of the servers: {memory[0]} MB, Kafka {memory[1]} MB (goal: 500 MB)")
    figures = {"question": QUESTION, "quick": asked.quick, "cases": cases, "memory_mb": memory}
    console.print(f"figures: {write_report(Path(__file__), figures)}")


if __name__ == "__main__":
    main()
