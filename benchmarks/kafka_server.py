"""Kafka as a peer of the log: the same directory, and how long its server takes to open it.

Invariant: Kafka runs as its own scripts run it, and the time is the one that it logs itself, from
the first look at its data directory until all logs are open, without the start of its JVM. Before
each start the directory is as it was before the one before.
"""

import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

# Tests have the root of the repository on their path; a script has its own folder alone.
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
    """A server with the settings and the memory that Kafka comes with."""
    with KafkaBroker(jvm=SERVER_JVM, timeout_s=300) as kafka:
        yield kafka


def create_topic(kafka: KafkaBroker, partitions: int) -> None:
    """Make the topic."""
    topic = CreatableTopic(
        name=TOPIC, num_partitions=partitions, replication_factor=1, assignments=(), configs=()
    )
    with kafka.wire() as wire:
        request = CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)
        answer = wire.ask(request, 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == 0, answer


def write_to_each(kafka: KafkaBroker, partitions: int, now_ms: int) -> None:
    """One small batch into each partition."""
    builder = BatchBuilder()
    builder.append(now_ms, b"key", b"value")
    batch = builder.build()
    data = [PartitionProduceData(index=index, records=batch) for index in range(partitions)]
    topics = [TopicProduceData(name=TOPIC, partition_data=data)]
    request = ProduceRequest(acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=topics)
    with kafka.wire() as wire:
        wanted = set(range(partitions))
        while wanted:  # leaders come one after the other
            answer = wire.ask(request, 9, ProduceResponse).responses[0].partition_responses
            wanted -= {one.index for one in answer if one.error_code == 0}


def write_bytes(kafka: KafkaBroker, size: int) -> None:
    """So many bytes of records of 1 KB, in the batches of 16 KB that Java's producer makes."""
    command = java_command(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", TOPIC, "--num-records", str(size // 1024), "--record-size", "1024"),
        *("--throughput", "-1", "--bootstrap-server", kafka.bootstrap),
    )
    subprocess.run(command, check=True, capture_output=True)


def forget_clean_stop(data: Path) -> None:
    """Let everything in a data directory be checked when it is opened."""
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
