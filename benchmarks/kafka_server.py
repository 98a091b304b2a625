"""Kafka as a peer of the log: the time in which its server opens the same directory.

Invariant: Kafka runs with the options of its own scripts. The time is the one that it logs, from
the first access to its data directory until all logs are open, without the start of its JVM. Before
each start the directory is restored.
"""

import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

# Tests have the repository on their module path; a script has only its own directory.
sys.path.append(str(Path(__file__).parents[1]))

from judges.java import NoJudge, java_command
from judges.kafka_broker import SERVER_JVM, KafkaBroker
from ottla.log.names import CLEAN_SHUTDOWN, RECOVERY_POINTS
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.records.builder import BatchBuilder

__all__ = [
    "NoJudge",
    "create_topic",
    "forget_clean_stop",
    "kafka_server",
    "start_s",
    "write_bytes",
    "write_to_each",
]

TOPIC = "events"
_LOADED = re.compile(r"Loaded (\d+) logs in (\d+)ms")
_TIMEOUT_MS = 120_000


@contextmanager
def kafka_server() -> Generator[KafkaBroker]:
    """A server with Kafka's default settings and memory."""
    with KafkaBroker(jvm=SERVER_JVM, maps_archive=False, timeout_s=300) as kafka:
        yield kafka


def create_topic(kafka: KafkaBroker, partitions: int) -> None:
    """Create the topic."""
    topic = CreatableTopic(
        name=TOPIC, num_partitions=partitions, replication_factor=1, assignments=(), configs=()
    )
    with kafka.wire() as wire:
        request = CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)
        answer = wire.ask(request, 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == 0, answer


def write_to_each(kafka: KafkaBroker, partitions: int, now_ms: int) -> None:
    """Write one small batch to each partition."""
    builder = BatchBuilder()
    builder.append(now_ms, b"key", b"value")
    batch = builder.build()
    data = [PartitionProduceData(index=index, records=batch) for index in range(partitions)]
    topics = [TopicProduceData(name=TOPIC, partition_data=data)]
    request = ProduceRequest(acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=topics)
    with kafka.wire() as wire:
        wanted = set(range(partitions))
        while wanted:  # leaders are elected one after the other
            answer = wire.ask(request, 9, ProduceResponse).responses[0].partition_responses
            wanted -= {one.index for one in answer if one.error_code == 0}


def write_bytes(kafka: KafkaBroker, size: int) -> None:
    """Write a number of bytes in records of 1 KB and batches of 16 KB, as Java's producer does."""
    command = java_command(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", TOPIC, "--num-records", str(size // 1024), "--record-size", "1024"),
        *("--throughput", "-1", "--bootstrap-server", kafka.bootstrap),
    )
    subprocess.run(command, check=True, capture_output=True)


def forget_clean_stop(data: Path) -> None:
    """Remove the clean shutdown file, so that all logs are recovered when they are opened."""
    for name in (CLEAN_SHUTDOWN, RECOVERY_POINTS):
        (data / name).unlink(missing_ok=True)


def start_s(kafka: KafkaBroker, logs: int) -> float:
    """Start it; the seconds in which it opened its logs."""
    before = kafka.log.stat().st_size
    kafka.start()
    with kafka.log.open() as log:
        log.seek(before)
        found = [(int(count), int(ms)) for count, ms in _LOADED.findall(log.read())]
    assert [count for count, _ in found] == [logs], found
    return found[0][1] / 1000
