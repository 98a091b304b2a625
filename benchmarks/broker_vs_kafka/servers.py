"""The two servers that are compared, Ottla and Apache Kafka, each in its own process.

Invariant: both run on loopback with their default settings and the few that a single node needs.
Their data is on one disk. The cost of a server is what the operating system counts for its process
and its children.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from judges.kafka_broker import SERVER_JVM, KafkaBroker
from judges.ottla_broker import OttlaBroker
from judges.wire import Wire
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

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SETTINGS = {
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "group.initial.rebalance.delay.ms": 0,
    "auto.create.topics.enable": "false",
    "max.connections.per.ip": 20_000,
    "socket.listen.backlog.size": 1000,
}


class Server(Protocol):
    """A running broker."""

    name: str

    @property
    def address(self) -> tuple[str, int]:
        """The address on which it listens."""
        ...

    @property
    def process_id(self) -> int:
        """The id of its process."""
        ...


class OttlaServer(OttlaBroker):
    """Ottla, run by `ottla broker`."""

    name = "ottla"

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="ottla-"))
        super().__init__(self._folder, *(f"{name}={value}" for name, value in SETTINGS.items()))

    def close(self) -> None:
        """Stop it, and delete its files."""
        super().close()
        shutil.rmtree(self._folder, ignore_errors=True)


class KafkaServer(KafkaBroker):
    """Apache Kafka, run with the options of its own scripts."""

    name = "kafka"

    def __init__(self) -> None:
        super().__init__(SETTINGS, jvm=SERVER_JVM, maps_archive=False, timeout_s=300)


def bootstrap(server: Server) -> str:
    """The bootstrap servers for clients."""
    host, port = server.address
    return f"{host}:{port}"


def cpu_s(server: Server) -> float:
    """The CPU seconds of a server so far, including its children."""
    fields = Path(f"/proc/{server.process_id}/stat").read_text().rpartition(")")[2].split()
    own_and_waited_for = sum(map(int, fields[11:15]))
    return own_and_waited_for / TICKS_PER_S


def memory_mb(server: Server, which: str = "VmRSS") -> float:
    """The memory of a server in MB: current, or the peak (VmHWM)."""
    status = Path(f"/proc/{server.process_id}/status").read_text()
    found = re.search(rf"{which}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


@contextmanager
def pinned(server: Server, core: int) -> Generator[None]:
    """Keep a server with all its threads on one core."""
    anywhere = os.sched_getaffinity(0)
    _pin(server, {core})
    try:
        yield
    finally:
        _pin(server, anywhere)


def _pin(server: Server, cores: set[int]) -> None:
    for thread in Path(f"/proc/{server.process_id}/task").iterdir():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), cores)


def create_topic(server: Server, name: str, partitions: int) -> None:
    """Create a topic; returns when it can be used."""
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=()
    )
    with Wire(server.address) as wire:
        request = CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
        answer = wire.ask(request, 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == 0, answer


def delete_topic(server: Server, name: str) -> None:
    """Delete a topic and its files."""
    with Wire(server.address) as wire:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID)], timeout_ms=60_000
        )
        wire.ask(request, 6, DeleteTopicsResponse)


def connections(server: Server, count: int) -> ExitStack:
    """Open a number of connections until the stack is closed."""
    stack = ExitStack()
    for _ in range(count):
        with suppress(TimeoutError):
            stack.enter_context(Wire(server.address, 10))
    return stack
