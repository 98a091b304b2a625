"""Three brokers, of Ottla or of Apache Kafka, which scenarios kill and pause.

Ottla runs in a thread of the test. Kafka takes long, so only `make judge` runs scenarios on it.
"""

import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Protocol

import pytest

from judges.kafka_cluster import KafkaCluster, coordinator_of
from judges.wire import Wire
from kafka_java import judge_needed
from ottla.client.network.coordinators import CoordinatorKind
from ottla.testing import ClusterThread

TIMEOUT_S = 60.0
SESSION_MS = 4000
COORDINATORS = 3
"""Partitions of __consumer_offsets, so that each broker coordinates groups."""


class FailingCluster(Protocol):
    """Three brokers; calls return when what they name has happened."""

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers for clients: all brokers."""
        ...

    @property
    def nodes(self) -> tuple[int, ...]:
        """The ids of the brokers."""
        ...

    def bootstrap_of(self, *nodes: int) -> str:
        """The bootstrap servers for clients: some brokers."""
        ...

    def wire(self, node: int) -> Wire:
        """Connect to a broker."""
        ...

    def kill(self, node: int) -> None:
        """Kill a broker, like kill -9."""
        ...

    def frozen(self, *nodes: int) -> AbstractContextManager[None]:
        """Pause some brokers: their connections stay open, but they do not respond."""
        ...

    def revive(self) -> None:
        """Start the brokers that do not run, and wait until all replicas are in sync."""
        ...

    def wait_in_sync(self) -> None:
        """Wait until every replica of every partition is in sync."""
        ...

    def leader_of(self, topic: str, partition: int) -> int:
        """The leader of a partition; waits until a live broker leads it."""
        ...

    def coordinator_of(self, kind: CoordinatorKind, key: str) -> int:
        """The coordinator of a group or a transactional id; waits until there is one."""
        ...


class OttlaCluster:
    """Three brokers of Ottla, as scenarios see them."""

    def __init__(self, cluster: ClusterThread) -> None:
        self._cluster = cluster
        self._frozen: set[int] = set()

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap_servers

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(one.id for one in self._cluster.brokers)

    def bootstrap_of(self, *nodes: int) -> str:
        return ",".join(self._cluster.broker(node).address for node in nodes)

    def wire(self, node: int) -> Wire:
        return Wire(("127.0.0.1", self._cluster.broker(node).port), TIMEOUT_S)

    def kill(self, node: int) -> None:
        self._cluster.broker(node).kill()

    @contextmanager
    def frozen(self, *nodes: int) -> Generator[None]:
        with ExitStack() as paused:
            for node in nodes:
                paused.enter_context(self._cluster.broker(node).pause())
                self._frozen.add(node)
            yield
        self._frozen.difference_update(nodes)

    def revive(self) -> None:
        for one in self._cluster.brokers:
            if not one.running:
                one.start()
        self.wait_in_sync()

    def wait_in_sync(self) -> None:
        self._cluster.settled(TIMEOUT_S)

    def leader_of(self, topic: str, partition: int) -> int:
        for _ in self._looks():
            found = self._cluster.leader(topic, partition)
            if found is not None and found.running and found.id not in self._frozen:
                return found.id
        raise AssertionError(f"{topic}-{partition} got no leader in {TIMEOUT_S:g} s")

    def coordinator_of(self, kind: CoordinatorKind, key: str) -> int:
        live = next(one for one in self._cluster.brokers if one.running)
        for _ in self._looks():
            with self.wire(live.id) as wire:
                if (found := coordinator_of(wire, kind, key)) is not None:
                    return found
        raise AssertionError(f"{key} got no coordinator in {TIMEOUT_S:g} s")

    def _looks(self) -> Iterator[None]:
        deadline_s = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline_s:
            yield
            time.sleep(0.01)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTarget:
    """A cluster, and how much of a scenario there is time for."""

    cluster: FailingCluster
    has_everything: bool  # also transactions and the consumer group protocol
    session_ms: int  # of a group member: one that dies with its coordinator cannot leave
    kills: int  # leaders that are killed, one after the other
    away_s: float  # how long a broker is down at least
    delivery_s: float  # how long an impatient producer tries


def served_by_ottla() -> Generator[ClusterTarget]:
    settings = {
        "group.min.session.timeout.ms": SESSION_MS,
        "min.insync.replicas": 2,
        "offsets.topic.num.partitions": COORDINATORS,
    }
    with ClusterThread(brokers=3, settings=settings) as cluster:
        yield ClusterTarget(
            cluster=OttlaCluster(cluster),
            has_everything=False,
            session_ms=SESSION_MS,
            kills=1,
            away_s=0.0,
            delivery_s=5.0,
        )


def served_by_kafka() -> Generator[ClusterTarget]:
    session_ms = 15_000
    settings: Mapping[str, object] = {
        "group.consumer.session.timeout.ms": session_ms,
        "group.consumer.min.session.timeout.ms": session_ms,
        "group.consumer.heartbeat.interval.ms": session_ms // 5,
        "group.consumer.min.heartbeat.interval.ms": session_ms // 5,
    }
    with judge_needed():
        cluster = KafkaCluster(settings)
    with cluster:
        yield ClusterTarget(
            cluster=cluster,
            has_everything=True,
            session_ms=session_ms,
            kills=3,
            away_s=60.0,
            delivery_s=10.0,
        )
    for broker in cluster.brokers.values():
        assert not broker.running
        assert not broker.data.parent.exists()


@pytest.fixture(scope="module", params=["ottla", pytest.param("kafka", marks=pytest.mark.judge)])
def target(request: pytest.FixtureRequest) -> Generator[ClusterTarget]:
    """Three running brokers."""
    yield from served_by_ottla() if request.param == "ottla" else served_by_kafka()
