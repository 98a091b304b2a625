"""Three replicated brokers beside three Apache Kafka brokers, under the same load.

Each topic has three replicas, of which two must be in sync, and the producers use acks=all. Ours
are three processes, coordinated by a real ZooKeeper, whose CPU time and memory count for us.
Kafka's are three combined brokers and controllers. Both clusters run all the time, and take turns.

Invariant: a figure is the median of the rounds; CPU is that of all server processes per
acknowledged record, after a warm-up that does not count. A latency is measured from when a record
was due, not from when the client sent it.

    python benchmarks/cluster_vs_kafka.py --idle
"""

import argparse
import json
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
from harness import PIPED_WIDTH, write_report
from judges.java import java_command

QUESTION = "How do three of our brokers compare with three of Kafka's, replicated, acks=all?"
PARTITIONS = 6
ROUNDS = 3
IDLE_PARTITIONS = 1000
PACE_MB = 10  # per second
PACE_SECONDS = 6
MEMORY_MB_MAX = 500
LIBRDKAFKA = Path(__file__).parent / "broker_vs_kafka" / "librdkafka.py"


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


@dataclass(frozen=True, slots=True)
class Result:
    """The medians of one row, ours and Kafka's."""

    name: str
    figures: dict[str, tuple[float, float]]  # by unit
    goals: dict[str, float]  # the factor for a unit: at least for a rate, else at most

    def is_met(self, unit: str) -> bool:
        """Whether our figure reaches its goal."""
        mine, other = self.figures[unit]
        goal = self.goals[unit] * other
        return mine >= goal if unit == RATE else mine <= goal


RATE, CPU, P50, P99 = "records/s", "CPU µs/record", "p50 ms", "p99 ms"
UNITS = (RATE, CPU, P50, P99)


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


def pace(servers: Servers, topic: str, seconds: float) -> dict[str, float]:
    """Send records at a steady rate with librdkafka; returns the latencies."""
    job = {
        "load": "pace",
        "topic": topic,
        "settings": {"bootstrap.servers": servers.bootstrap, "acks": "all"},
        "rate": PACE_MB * 1000,
        "size": 1000,
        "seconds": seconds,
    }
    command = [sys.executable, str(LIBRDKAFKA), json.dumps(job)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(load: Load, clusters: Sequence[Servers], rounds: int, share: float) -> Result:
    """Run a load on each cluster in turns."""
    records = int(load.records * share)
    found: dict[str, dict[str, list[float]]] = {one.name: {RATE: [], CPU: []} for one in clusters}
    for number in range(-1, rounds):  # the first round warms up
        for servers in clusters:
            topic = f"load-{time.monotonic_ns()}"
            create_topic(servers, topic, PARTITIONS)
            before_s = servers.used_s()
            rate = produce(servers, topic, load, records if number >= 0 else records // 2)
            if number >= 0:
                found[servers.name][RATE].append(rate)
                used_s = servers.used_s() - before_s
                found[servers.name][CPU].append(used_s / records * 1e6)
            delete_topic(servers, topic)
    return result(load.name, clusters, found, {RATE: load.goal_rate, CPU: load.goal_cpu})


def measure_latency(clusters: Sequence[Servers], rounds: int, seconds: float) -> Result:
    """Offer a steady load to each cluster in turns."""
    units = {"p50_ms": P50, "p99_ms": P99}
    found: dict[str, dict[str, list[float]]] = {
        one.name: {CPU: [], P50: [], P99: []} for one in clusters
    }
    for number in range(-1, rounds):
        for servers in clusters:
            topic = f"pace-{time.monotonic_ns()}"
            create_topic(servers, topic, PARTITIONS)
            before_s = servers.used_s()
            outcome = pace(servers, topic, seconds if number >= 0 else seconds / 2)
            if number >= 0:
                used_s = servers.used_s() - before_s
                sent = PACE_MB * 1000 * seconds
                found[servers.name][CPU].append(used_s / sent * 1e6)
                for name, unit in units.items():
                    found[servers.name][unit].append(outcome[name])
            delete_topic(servers, topic)
    name = f"offered load of {PACE_MB} MB/s, 1 KB"
    return result(name, clusters, found, {P99: 1.0})


def result(
    name: str,
    clusters: Sequence[Servers],
    found: dict[str, dict[str, list[float]]],
    goals: dict[str, float],
) -> Result:
    """The medians of all rounds."""
    mine, other = (found[one.name] for one in clusters)
    figures = {
        unit: (statistics.median(mine[unit]), statistics.median(other[unit])) for unit in mine
    }
    return Result(name, figures, goals)


def table_of(results: Sequence[Result]) -> Table:
    """A row for each figure."""
    table = Table(title=QUESTION, caption="medians; CPU: of all server processes")
    for name in ("load", "figure", "ottla", "kafka", "x", "goal", "met?"):
        table.add_column(name, justify="left" if name in ("load", "figure") else "right")
    for one in results:
        for unit in (unit for unit in UNITS if unit in one.figures):
            mine, other = one.figures[unit]
            goal = one.goals.get(unit)
            sign = "≥" if unit == RATE else "≤"
            table.add_row(
                one.name,
                unit,
                *(
                    f"{figure:,.0f}" if unit == RATE else f"{figure:.1f}"
                    for figure in (mine, other)
                ),
                f"{mine / other:.2f}",
                "" if goal is None else f"{sign} {goal:g} x",
                "" if goal is None else "yes" if one.is_met(unit) else "[bold]no[/bold]",
            )
        table.add_section()
    return table


def main() -> None:
    """Measure all loads, with and without idle partitions; print and store the figures."""
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--quick", action="store_true", help="a short run, for a first look")
    parser.add_argument("--idle", action="store_true", help="also with 1,000 idle partitions")
    parser.add_argument("--only", default="", help="the loads with these words in their names")
    asked = parser.parse_args()
    rounds, share = (1, 0.15) if asked.quick else (ROUNDS, 1.0)
    console = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)
    results: list[Result] = []

    def add(found: Result, idle: int) -> None:
        name = f"{found.name}, {idle:,} idle partitions" if idle else found.name
        results.append(Result(name, found.figures, found.goals))
        console.print(f"{name}: {found.figures}", highlight=False, soft_wrap=True)

    with ours() as first, kafka() as second:
        clusters = (first, second)
        for idle in (0, IDLE_PARTITIONS) if asked.idle else (0,):
            if idle:
                for servers in clusters:
                    create_topic(servers, "idle", idle)
            for load in LOADS:
                if asked.only in load.name:
                    add(measure(load, clusters, rounds, share), idle)
            if asked.only in "offered load":
                add(measure_latency(clusters, rounds, PACE_SECONDS * (0.5 + share / 2)), idle)
        memory = {
            one.name: {"now": one.memory_mb(), "peak": one.memory_mb("VmHWM")} for one in clusters
        }
    console.print(table_of(results))
    zookeeper, *brokers = memory["ottla"]["now"]
    total, peak = (sum(memory["ottla"][which]) for which in ("now", "peak"))
    console.print(
        f"memory: brokers {', '.join(f'{one:.0f}' for one in brokers)} MB, ZooKeeper "
        f"{zookeeper:.0f} MB, together {total:.0f} MB, peak {peak:.0f} MB "
        f"(goal {MEMORY_MB_MAX} MB: {'met' if peak <= MEMORY_MB_MAX else 'not met'}); "
        f"Kafka {sum(memory['kafka']['now']):,.0f} MB",
        highlight=False,
        soft_wrap=True,
    )
    figures = {
        "question": QUESTION,
        "quick": asked.quick,
        "cases": [
            {
                "name": one.name,
                "figures": one.figures,
                "goals": one.goals,
                "met": {unit: one.is_met(unit) for unit in one.goals},
            }
            for one in results
        ],
        "memory_mb": memory,
        "memory_goal_mb": MEMORY_MB_MAX,
    }
    console.print(f"figures: {write_report(Path(__file__), figures)}", soft_wrap=True)


if __name__ == "__main__":
    main()
