"""Group members of other clients: the Java client, confluent-kafka and aiokafka."""

import asyncio
import subprocess
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Final, Protocol, Self

from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from confluent_kafka import Consumer

from client.group.harness import tp
from judges.java import source_command
from kafka_java import judge_needed
from ottla.ids import TopicPartition

JUDGE: Final = Path(__file__).with_name("MemberJudge.java")
JAVA: Final = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
    "consumer": "consumer",
}
AIOKAFKA: Final[dict[str, Any]] = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class Peer(Protocol):
    """A group member of another client."""

    @property
    def has(self) -> frozenset[TopicPartition]: ...

    async def leave(self) -> None: ...


Joins = Callable[[str, str, str, str], "Peer"]
"""Arguments: bootstrap servers, group, topic and assignment strategy."""


class JavaPeers:
    """One JVM with all members of the Java client."""

    def __init__(self, bootstrap: str) -> None:
        with judge_needed():
            command = source_command(JUDGE, bootstrap)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.told: dict[str, str] = {}
        self._names = count()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._process.stdout.close()

    def join(self, _: str, group: str, topic: str, strategy: str) -> Peer:
        name = f"java-{next(self._names)}"
        self.say(f"join {name} {group} {topic} {JAVA[strategy]}")
        return _JavaPeer(self, name, topic)

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            name, _, result = line.rstrip("\n").partition("\t")
            self.told[name] = result


class _JavaPeer:
    def __init__(self, peers: JavaPeers, name: str, topic: str) -> None:
        self._peers, self._name, self._topic = peers, name, topic

    @property
    def has(self) -> frozenset[TopicPartition]:
        result = self._peers.told.get(self._name, "")
        assert not result.startswith("failed"), result
        indexes = [] if result in ("", "left") else result.split(",")
        return frozenset(tp(self._topic, int(index)) for index in indexes)

    async def leave(self) -> None:
        self._peers.say(f"leave {self._name}")
        while self._peers.told.get(self._name) != "left":
            await asyncio.sleep(0.01)


class ConfluentPeer:
    """A member of confluent-kafka, polled in a thread."""

    def __init__(self, bootstrap: str, group: str, topic: str, strategy: str) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 500,
        }
        if strategy == "consumer":
            settings["group.protocol"] = "consumer"
        else:
            settings["partition.assignment.strategy"] = strategy
            settings |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 100}
        self.has: frozenset[TopicPartition] = frozenset()
        self._leaving = False
        self._consumer = Consumer(settings)
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        while not self._leaving:
            self._consumer.poll(0.05)
            assigned = self._consumer.assignment()
            self.has = frozenset(tp(one.topic, one.partition) for one in assigned)
        self._consumer.close()
        self.has = frozenset()

    async def leave(self) -> None:
        self._leaving = True
        while self._thread.is_alive():
            await asyncio.sleep(0.01)


class AiokafkaPeer:
    """A member of aiokafka, in the test's event loop."""

    def __init__(self, bootstrap: str, group: str, topic: str, strategy: str) -> None:
        self._consumer: Any = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
            session_timeout_ms=6000,
            metadata_max_age_ms=1000,
            partition_assignment_strategy=(AIOKAFKA[strategy],),
        )
        self._started = asyncio.create_task(self._consumer.start())

    @property
    def has(self) -> frozenset[TopicPartition]:
        return frozenset(tp(one.topic, one.partition) for one in self._consumer.assignment())

    async def leave(self) -> None:
        await self._started
        await self._consumer.stop()
