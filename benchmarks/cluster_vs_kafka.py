"""Three replicated brokers beside three Apache Kafka brokers, under the same load.

Each topic has three replicas and the producers use acks=all. Ours are three processes, coordinated
by a real ZooKeeper, whose CPU time counts for us. Kafka's are three combined brokers and
controllers. Both clusters run all the time, and take turns.

Invariant: a figure is the median of the rounds; CPU is that of all server processes for the same
work, after a warm-up that does not count.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from rich.console import Console
from rich.table import Table

from harness import write_report
from judges.java import java_command
from judges.kafka_cluster import KafkaCluster
from judges.ottla_broker import OttlaBroker
from judges.wire import Wire
from ottla.coordination.ensemble import LocalServer, pyspark_class_path
from ottla.ids import ZERO_UUID
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

QUESTION = "How do three of our brokers compare with three of Kafka's, replicated, acks=all?"
BROKERS = 3
PARTITIONS = 6
ROUNDS = 3
IDLE_PARTITIONS = 1000
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SETTINGS = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
}


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


@dataclass(slots=True)
class Servers:
    """A cluster: where it listens, and its processes."""

    name: str
    addresses: Sequence[tuple[str, int]]
    processes: Callable[[], Sequence[int]]
    rates: list[float] = field(default_factory=list[float])
    cpu_s: list[float] = field(default_factory=list[float])

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers for clients."""
        return ",".join(f"{host}:{port}" for host, port in self.addresses)

    def used_s(self) -> float:
        """The CPU seconds of all processes so far."""
        return sum(_cpu_s(process) for process in self.processes())

    def memory_mb(self) -> float:
        """The memory of all processes."""
        return sum(_memory_mb(process) for process in self.processes())


def _cpu_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS_PER_S


def _memory_mb(process: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


@contextmanager
def ours() -> Generator[Servers]:
    """Three brokers and a ZooKeeper."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="ottla-cluster-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        zookeeper = stack.enter_context(LocalServer(folder / "zookeeper", pyspark_class_path()))
        brokers = [
            stack.enter_context(
                OttlaBroker(
                    folder,
                    f"node.id={node}",
                    f"zookeeper.connect={zookeeper.connect}",
                    *(f"{name}={value}" for name, value in SETTINGS.items()),
                    "offsets.topic.replication.factor=3",
                    log=folder / f"broker-{node}.log",
                    data=folder / f"broker-{node}",
                )
            )
            for node in range(1, BROKERS + 1)
        ]
        for broker in brokers:
            broker.spawn()
        for broker in brokers:
            broker.wait_until_served()
        server = zookeeper.process_id
        yield Servers(
            "ottla",
            [one.address for one in brokers],
            lambda: [server, *(one.process_id for one in brokers)],
        )


@contextmanager
def kafka() -> Generator[Servers]:
    """Three of Kafka's brokers."""
    with KafkaCluster(SETTINGS) as cluster:
        brokers = cluster.brokers.values()
        yield Servers(
            "kafka", [one.address for one in brokers], lambda: [one.process_id for one in brokers]
        )


def create_topic(servers: Servers, name: str, partitions: int) -> None:
    """Create a replicated topic; returns when every partition has a leader and three replicas."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=BROKERS,
        assignments=(),
        configs=(),
    )
    with Wire(servers.addresses[0], 60) as wire:
        answer = wire.ask(
            CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7, CreateTopicsResponse
        )
        assert answer.topics[0].error_code == 0, answer
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        while True:
            (found,) = wire.ask(asked, 9, MetadataResponse).topics
            if len(found.partitions) == partitions and all(
                one.leader_id >= 0 and len(one.isr_nodes) == BROKERS for one in found.partitions
            ):
                return
            time.sleep(0.1)


def delete_topic(servers: Servers, name: str) -> None:
    """Delete a topic and its files."""
    with Wire(servers.addresses[0], 60) as wire:
        asked = DeleteTopicState(name=name, topic_id=ZERO_UUID)
        wire.ask(DeleteTopicsRequest(topics=[asked], timeout_ms=60_000), 6, DeleteTopicsResponse)


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
