"""The two clusters that the benchmarks compare: three of our brokers, and three of Kafka's.

Ours are three processes, coordinated by a real ZooKeeper, whose CPU time and memory count for us.
Kafka's are three combined brokers and controllers, with the JVM options of Kafka's own scripts.

Invariant: both get the same settings, and both detect dead brokers with Kafka's defaults.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

# The module path of a script has only its own directory, not the repository.
sys.path.append(str(Path(__file__).parents[1]))

from judges.java import java_command
from judges.kafka_broker import SERVER_JVM
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
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)

BROKERS: Final = 3
SETTINGS: Final[Mapping[str, object]] = {
    "min.insync.replicas": 2,
    "default.replication.factor": BROKERS,
    "auto.leader.rebalance.enable": "false",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
}
KAFKA_DEFAULTS: Final[Mapping[str, object]] = {
    "broker.session.timeout.ms": 9000,
    "broker.heartbeat.interval.ms": 2000,
}
TIMEOUT_S: Final = 600.0
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_POLL_S: Final = 0.02


class Server(Protocol):
    """A broker that can be started repeatedly."""

    @property
    def address(self) -> tuple[str, int]:
        """The address on which it listens."""
        ...

    @property
    def process_id(self) -> int:
        """The id of its process."""
        ...

    def start(self) -> None:
        """Start it; returns when it serves requests."""
        ...

    def stop(self) -> object:
        """Stop it cleanly."""
        ...

    def kill(self) -> None:
        """Kill it."""
        ...


@dataclass(slots=True)
class Servers:
    """A cluster: its brokers by id, and its other processes."""

    name: str
    brokers: Mapping[int, Server]
    others: Sequence[int] = ()
    start_s: float = 0.0  # until every broker served requests
    later: Sequence[Server] = ()  # that have not started

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers for clients."""
        addresses = (one.address for one in self.brokers.values())
        return ",".join(f"{host}:{port}" for host, port in addresses)

    @property
    def processes(self) -> list[int]:
        """The ids of all processes, which run."""
        return [*self.others, *(one.process_id for one in self.brokers.values())]

    def used_s(self) -> float:
        """The CPU seconds of all processes so far."""
        return sum(map(_cpu_s, self.processes))

    def memory_mb(self, which: str = "VmRSS") -> list[float]:
        """The memory of each process, first of those that are no broker; VmHWM is its peak."""
        return [_memory_mb(process, which) for process in self.processes]


def _cpu_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS_PER_S


def _memory_mb(process: int, which: str) -> float:
    found = re.search(rf"{which}:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


@contextmanager
def ours(settings: Mapping[str, object] | None = None, later: int = 0) -> Generator[Servers]:
    """Three brokers and a ZooKeeper; so many brokers more are in `later`, not started."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="ottla-cluster-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        began_s = time.monotonic()
        zookeeper = stack.enter_context(LocalServer(folder / "zookeeper", pyspark_class_path()))
        brokers = {
            node: stack.enter_context(
                OttlaBroker(
                    folder,
                    f"node.id={node}",
                    f"zookeeper.connect={zookeeper.connect}",
                    *(
                        f"{name}={value}"
                        for name, value in {**SETTINGS, **(settings or {})}.items()
                    ),
                    "offsets.topic.replication.factor=3",
                    log=folder / f"broker-{node}.log",
                    data=folder / f"broker-{node}",
                )
            )
            for node in range(1, BROKERS + later + 1)
        }
        added = [brokers.pop(BROKERS + number) for number in range(1, later + 1)]
        for broker in brokers.values():
            broker.spawn()
        for broker in brokers.values():
            broker.wait_until_served()
        # A broker listens before it is registered.
        wait_until(lambda: all(len(metadata(one).brokers) == BROKERS for one in brokers.values()))
        start_s = time.monotonic() - began_s
        yield Servers("ottla", brokers, [zookeeper.process_id], start_s, later=added)


@contextmanager
def kafka(settings: Mapping[str, object] | None = None) -> Generator[Servers]:
    """Three of Kafka's brokers."""
    asked = {**SETTINGS, **KAFKA_DEFAULTS, **(settings or {})}
    with KafkaCluster(asked, jvm=SERVER_JVM, timeout_s=TIMEOUT_S) as cluster:
        yield Servers("kafka", cluster.brokers, start_s=cluster.start_s)


def create_topic(servers: Servers, name: str, partitions: int) -> None:
    """Create a replicated topic; returns when every partition has a leader and three replicas."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=BROKERS,
        assignments=(),
        configs=(),
    )
    first = next(iter(servers.brokers.values()))
    with Wire(first.address, TIMEOUT_S) as wire:
        asked = CreateTopicsRequest(topics=[topic], timeout_ms=int(TIMEOUT_S * 1000))
        answer = wire.ask(asked, 7, CreateTopicsResponse)
        assert answer.topics[0].error_code == 0, answer
    wait_until(lambda: are_whole(partitions_of(first, name), partitions))


def delete_topic(servers: Servers, name: str) -> None:
    """Delete a topic and its files."""
    with Wire(next(iter(servers.brokers.values())).address, TIMEOUT_S) as wire:
        asked = DeleteTopicState(name=name, topic_id=ZERO_UUID)
        wire.ask(DeleteTopicsRequest(topics=[asked], timeout_ms=60_000), 6, DeleteTopicsResponse)


def metadata(broker: Server, topic: str | None = None) -> MetadataResponse:
    """Return what a broker knows about the cluster, and about one or all topics."""
    topics = None if topic is None else [MetadataRequestTopic(name=topic)]
    with Wire(broker.address, TIMEOUT_S) as wire:
        return wire.ask(MetadataRequest(topics=topics), 9, MetadataResponse)


def controller_of(servers: Servers) -> int:
    """Return the id of the active controller; waits until all brokers agree on it."""
    if servers.name != "kafka":
        brokers = [*servers.brokers.values()]
        wait_until(lambda: len({metadata(one).controller_id for one in brokers}) == 1)
        return metadata(brokers[0]).controller_id
    # Metadata of Kafka names any broker: clients do not see its controllers.
    command = java_command(
        "org.apache.kafka.tools.MetadataQuorumCommand",
        *("--bootstrap-server", servers.bootstrap, "describe", "--status"),
    )
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = re.search(r"LeaderId:\s+(\d+)", done.stdout)
    assert found is not None, done.stdout
    return int(found[1])


def partitions_of(broker: Server, topic: str) -> Sequence[MetadataResponsePartition]:
    """Return what a broker knows about the partitions of a topic."""
    (found,) = metadata(broker, topic).topics
    return found.partitions


def are_whole(found: Sequence[MetadataResponsePartition], partitions: int) -> bool:
    """Whether every partition has a leader and all its replicas in sync."""
    return len(found) == partitions and all(
        one.leader_id >= 0 and len(one.isr_nodes) == BROKERS for one in found
    )


def wait_until(reached: Callable[[], bool], *, every_s: float = _POLL_S) -> None:
    """Poll a condition; a broker that is not ready yet may refuse connections."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        with suppress(ConnectionError, TimeoutError):
            if reached():
                return
        time.sleep(every_s)
    raise TimeoutError(f"not reached after {TIMEOUT_S:g} s")
