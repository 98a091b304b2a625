"""What it costs to give a fourth broker its share of 300 partitions, beside an optimal plan.

Three broker processes have a topic with three replicas of each partition, whose sizes differ by a
factor of five. A fourth broker starts, and `ottla cluster balance --execute` moves replicas to it
until no broker has more than 1.2 times the mean.

| figure | meaning |
|---|---|
| copied | bytes that are copied between brokers |
| bound | bytes that three brokers have above the goal: no plan can copy less |
| kafka | bytes that the plan of `kafka-reassign-partitions --generate` copies |
| plan | time to measure the loads and to plan |
| time | time until all reassignments are complete, without a throttle |
| highest | load of the highest broker after it, relative to the mean: bytes, leaders |

Invariant: the executed plan copies the bytes that it promised.

    python benchmarks/balance.py --partitions 300 --megabytes 300
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
from rich.console import Console
from rich.table import Table

from clusters import BROKERS, Servers, create_topic, metadata, ours, partitions_of, wait_until
from harness import write_report

QUESTION = "How many bytes move, and how long does it take, when a broker joins a cluster of three?"
TOPIC = "load"
GOAL = 1.2
SIZES = 5  # partitions have one to five times the smallest size
RECORD_BYTES = 20_000
COMMANDS = Path(sys.executable).parent

Replicas = Mapping[int, Sequence[int]]

client_library: Any = confluent_kafka  # the client's types are not complete


def fill(servers: Servers, partitions: int, total_bytes: int) -> None:
    """Write records, in partitions of different sizes."""
    producer = client_library.Producer(
        {
            "bootstrap.servers": servers.bootstrap,
            "linger.ms": 20,
            "queue.buffering.max.messages": 5000,
        }
    )
    unit = total_bytes / sum(1 + index % SIZES for index in range(partitions))
    value = bytes(RECORD_BYTES)
    for index in range(partitions):
        for _ in range(max(1, round(unit * (1 + index % SIZES) / RECORD_BYTES))):
            while True:
                try:
                    producer.produce(TOPIC, value, partition=index)
                    break
                except BufferError:
                    producer.poll(0.1)
    assert producer.flush(120) == 0


def replicas_of(servers: Servers) -> dict[int, list[int]]:
    """Return the replicas of each partition."""
    first = next(iter(servers.brokers.values()))
    return {one.partition_index: [*one.replica_nodes] for one in partitions_of(first, TOPIC)}


def command(*words: str) -> str:
    """Run one of our commands and return its output."""
    done = subprocess.run(
        [COMMANDS / words[0], *words[1:]], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def balance(servers: Servers, *options: str) -> tuple[float, dict[str, Any]]:
    """Run `ottla cluster balance`; return its duration and its output."""
    began_s = time.monotonic()
    out = command("ottla", "cluster", "balance", "-b", servers.bootstrap, "-o", "json", *options)
    return time.monotonic() - began_s, json.loads(out)


def copied_by(before: Replicas, after: Replicas, sizes: Mapping[int, int]) -> int:
    """Return the bytes that brokers copy to get from one assignment to another."""
    return sum(len({*after[index]} - {*before[index]}) * size for index, size in sizes.items())


def bytes_of_kafkas_plan(servers: Servers, before: Replicas, sizes: Mapping[int, int]) -> int:
    """Return what the plan of Kafka's tool would copy; ours computes it as Kafka does."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as topics:
        json.dump({"version": 1, "topics": [{"topic": TOPIC}]}, topics)
        topics.flush()
        out = command(
            "kafka-reassign-partitions",
            *("--bootstrap-server", servers.bootstrap, "--generate"),
            *("--topics-to-move-json-file", topics.name, "--broker-list", "1,2,3,4"),
        )
    plan = json.loads(out.strip().splitlines()[-1])
    after = {one["partition"]: one["replicas"] for one in plan["partitions"]}
    return copied_by(before, after, sizes)


def sizes_of(servers: Servers) -> dict[int, int]:
    """Return the bytes of a replica of each partition."""
    out = command(
        "kafka-log-dirs",
        *("--bootstrap-server", servers.bootstrap, "--describe"),
        *("--topic-list", TOPIC, "--broker-list", "1,2,3"),
    )
    found: dict[int, int] = {}
    for broker in json.loads(out.strip().splitlines()[-1])["brokers"]:
        for directory in broker["logDirs"]:
            for one in directory["partitions"]:
                index = int(one["partition"].rpartition("-")[2])
                found[index] = max(found.get(index, 0), one["size"])
    return found


def held(replicas: Replicas, sizes: Mapping[int, int]) -> Counter[int]:
    """Return the bytes of each broker."""
    found: Counter[int] = Counter()
    for index, brokers in replicas.items():
        for broker in brokers:
            found[broker] += sizes[index]
    return found


def measure(partitions: int, total_bytes: int) -> dict[str, float]:
    """Fill three brokers, add a fourth one, and balance."""
    with ours(later=1) as servers:
        create_topic(servers, TOPIC, partitions)
        fill(servers, partitions, total_bytes)
        before, sizes = replicas_of(servers), sizes_of(servers)
        (added,) = servers.later
        added.start()
        first = next(iter(servers.brokers.values()))
        wait_until(lambda: len(metadata(first).brokers) == BROKERS + 1)
        plan_s, planned = balance(servers)
        kafka = bytes_of_kafkas_plan(servers, before, sizes)
        took_s, done = balance(servers, "--execute")
        assert done["state"] == "complete", done["state"]
        after = replicas_of(servers)
        copied = copied_by(before, after, sizes)
        assert copied == done["moved_bytes"], (copied, done["moved_bytes"])
        loads = held(after, sizes)
        mean = sum(loads.values()) / (BROKERS + 1)
        bound = sum(max(0.0, one - GOAL * mean) for one in held(before, sizes).values())
        leaders = Counter(brokers[0] for brokers in after.values())
        return {
            "copied_mb": copied / 1e6,
            "bound_mb": bound / 1e6,
            "kafka_mb": kafka / 1e6,
            "total_mb": sum(loads.values()) / 1e6,
            "plan_s": plan_s,
            "time_s": took_s,
            "highest_bytes": max(loads.values()) / mean,
            "highest_leaders": max(leaders.values()) * (BROKERS + 1) / partitions,
            "moves": len(planned["moves"]),
        }


def main() -> None:
    """Measure, print a table, and write the figures."""
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--partitions", type=int, default=300)
    parser.add_argument("--megabytes", type=int, default=300, help="records, before replication")
    asked = parser.parse_args()
    figures = measure(asked.partitions, asked.megabytes * 1_000_000)
    table = Table(title=QUESTION)
    for name in figures:
        table.add_column(name, justify="right")
    table.add_row(*(f"{value:,.2f}" for value in figures.values()))
    console = Console(width=140)
    console.print(table)
    report = {"question": QUESTION, "partitions": asked.partitions, "figures": figures}
    console.print(f"figures: {write_report(Path(__file__), report)}")


if __name__ == "__main__":
    main()
