"""A broker with many partitions, beside Apache Kafka: create, start, delete, stop.

Invariant: both servers have the same topics, with one record in every tenth partition, on the same
disk, and run one after the other, so that neither disturbs the other. Each time is measured from
outside: from the command or the request until clients see its effect.

| case | ends when |
|---|---|
| create | every tenth partition has acknowledged a record |
| start | a Metadata response has a leader for every partition |
| delete | no directory of a live partition is left |
| stop | the process has ended after SIGTERM |

    python benchmarks/many_partitions.py --partitions 10000
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

# The module path of a script has only its own directory, not the repository.
sys.path.append(str(Path(__file__).parents[1]))

from harness import OURS, Case, Row, Timing, report
from judges.ottla_broker import OttlaBroker
from judges.single_node import SINGLE_NODE
from judges.wire import Wire
from kafka_server import NoJudge, kafka_server
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
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.records.builder import BatchBuilder

QUESTION: Final = "How does our broker handle many partitions, beside Apache Kafka?"
PEER: Final = "kafka"
TOPICS: Final = 10
ROUNDS: Final = 2  # of starts and stops
TIMEOUT_S: Final = 600.0  # for one request, and for one start
START_S_MAX: Final = 5.0
WRITTEN: Final = 10  # every tenth partition has a record
POLL_S: Final = 0.02


class Server(Protocol):
    """A broker that can be started repeatedly."""

    data: Path

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
class Figures:
    """The seconds of each case, and what the server needs."""

    seconds: dict[str, list[float]]
    memory_mb: float
    descriptors: int


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics of equal size."""

    names: Sequence[str]
    partitions: int  # of each topic

    @property
    def total(self) -> int:
        """The number of partitions of all topics."""
        return len(self.names) * self.partitions

    def create(self, server: Server) -> None:
        """Create the topics, and write a record to some partitions as soon as they accept it."""
        with Wire(server.address, TIMEOUT_S) as wire:
            for name in self.names:  # Kafka refuses 10,000 partitions in one request
                topic = CreatableTopic(
                    name=name,
                    num_partitions=self.partitions,
                    replication_factor=1,
                    assignments=(),
                    configs=(),
                )
                request = CreateTopicsRequest(topics=[topic], timeout_ms=int(TIMEOUT_S * 1000))
                answer = wire.ask(request, 7, CreateTopicsResponse)
                assert answer.topics[0].error_code == 0, answer
        self.write(server)

    def write(self, server: Server) -> None:
        """Write a record to every tenth partition; returns when all are acknowledged."""
        builder = BatchBuilder()
        builder.append(time.time_ns() // 1_000_000, b"key", b"value" * 20)
        batch = builder.build()
        left = {name: set(range(0, self.partitions, WRITTEN)) for name in self.names}
        with Wire(server.address, TIMEOUT_S) as wire:
            while left:  # Kafka elects leaders one after the other
                data = [
                    TopicProduceData(
                        name=name,
                        partition_data=[
                            PartitionProduceData(index=index, records=batch) for index in indexes
                        ],
                    )
                    for name, indexes in left.items()
                ]
                request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=data)
                for topic in wire.ask(request, 9, ProduceResponse).responses:
                    left[topic.name] -= {
                        one.index for one in topic.partition_responses if one.error_code == 0
                    }
                left = {name: indexes for name, indexes in left.items() if indexes}

    def are_led(self, server: Server) -> bool:
        """Whether clients see a leader of every partition."""
        with Wire(server.address, TIMEOUT_S) as wire:
            answer = wire.ask(MetadataRequest(topics=None), 12, MetadataResponse)
        led = [
            one.error_code == 0 and one.leader_id >= 0
            for topic in answer.topics
            if topic.name in self.names
            for one in topic.partitions
        ]
        return len(led) == self.total and all(led)

    def delete(self, server: Server) -> None:
        """Delete the topics; returns when their directories are gone or renamed."""
        topics = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in self.names]
        request = DeleteTopicsRequest(topics=topics, timeout_ms=int(TIMEOUT_S * 1000))
        with Wire(server.address, TIMEOUT_S) as wire:
            answer = wire.ask(request, 6, DeleteTopicsResponse)
        assert all(one.error_code == 0 for one in answer.responses), answer
        prefixes = tuple(f"{name}-" for name in self.names)
        wait_until(
            lambda: (
                not any(
                    name.startswith(prefixes) and not name.endswith("-delete")
                    for name in os.listdir(server.data)
                )
            )
        )


def wait_until(reached: Callable[[], bool]) -> None:
    """Poll a condition; a server that is not ready yet may refuse connections."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        with suppress(ConnectionError, TimeoutError):
            if reached():
                return
        time.sleep(POLL_S)
    raise TimeoutError(f"not reached after {TIMEOUT_S:g} s")


def measured(server: Server, topics: Topics, rounds: int) -> Figures:
    """Run every case on one server, which runs and is empty."""
    seconds: dict[str, list[float]] = {}

    def timed(case: str, call: Callable[[], object]) -> None:
        began_s = time.perf_counter()
        call()
        seconds.setdefault(case, []).append(time.perf_counter() - began_s)

    def start() -> None:
        server.start()
        wait_until(lambda: topics.are_led(server))

    timed("create", lambda: topics.create(server))
    for number in range(rounds):
        # Only the first stop has new records and files to write.
        timed("stop, first" if number == 0 else "stop", server.stop)
        timed("start after a clean stop", start)
    for _ in range(rounds):
        topics.write(server)
        server.kill()
        timed("start after kill -9", start)
    status = Path(f"/proc/{server.process_id}/status").read_text()
    memory_kb = next(int(line.split()[1]) for line in status.splitlines() if "VmRSS" in line)
    descriptors = len(os.listdir(f"/proc/{server.process_id}/fd"))
    timed("delete", lambda: topics.delete(server))
    server.stop()
    return Figures(seconds, memory_kb / 1024, descriptors)


def ours(topics: Topics, rounds: int) -> Figures:
    # The default depends on the limit of open files, which the caller of this script has set.
    values = {**SINGLE_NODE, "ottla.partitions.max": topics.total + 1}
    settings = (f"{name}={value}" for name, value in values.items())
    with tempfile.TemporaryDirectory() as folder, OttlaBroker(Path(folder), *settings) as broker:
        broker.start()
        return measured(broker, topics, rounds)


def theirs(topics: Topics, rounds: int) -> Figures:
    with kafka_server() as kafka:
        kafka.timeout_s = TIMEOUT_S
        return measured(kafka, topics, rounds)


def rows(figures: dict[str, Figures], partitions: int) -> Iterator[Row]:
    for name in figures[OURS].seconds:
        timings = {
            server: Timing(min(found), statistics.median(found), len(found), 1)
            for server, found in ((one, figures[one].seconds[name]) for one in figures)
        }
        fastest = partitions / START_S_MAX if name.startswith("start") else None
        case = Case(f"{partitions:,} partitions: {name}", {}, partitions, 1, fastest)
        yield Row(case, timings)


def main() -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--quick", action="store_true", help="1,000 partitions, one round")
    parser.add_argument("--partitions", type=int, help="in ten topics (10000)")
    parser.add_argument("--rounds", type=int, help=f"of starts and stops ({ROUNDS})")
    parser.add_argument("--only", choices=(OURS, PEER), help="measure one of the servers")
    options = parser.parse_args()
    quick: bool = options.quick
    partitions: int = options.partitions or (1000 if quick else 10_000)
    rounds: int = options.rounds or (1 if quick else ROUNDS)
    topics = Topics([f"many{number}" for number in range(TOPICS)], partitions // TOPICS)
    figures: dict[str, Figures] = {}
    try:
        if options.only != PEER:
            figures[OURS] = ours(topics, rounds)
        if options.only != OURS:
            figures[PEER] = theirs(topics, rounds)
    except NoJudge as missing:
        print(f"{QUESTION} Not measured: {missing}")
        return
    if OURS in figures:
        report(__file__, QUESTION, [*rows(figures, topics.total)], "partitions", quick=quick)
    for server, found in figures.items():
        taken = ", ".join(
            f"{name} {'/'.join(f'{one:.2f}' for one in times)} s"
            for name, times in found.seconds.items()
        )
        print(f"{server}: {found.memory_mb:.0f} MB, {found.descriptors:,} descriptors; {taken}")


if __name__ == "__main__":
    main()
