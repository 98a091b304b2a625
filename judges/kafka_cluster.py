"""A cluster of three Apache Kafka brokers that keep their ports and directories.

Invariant: each is broker and controller, so a majority is enough for everything except writes with
fewer than `min.insync.replicas`. Every topic has a replica on each broker. At the end of the `with`
all processes have ended and all directories are deleted, whatever happened in between.

    with KafkaCluster() as kafka:
        kafka.kill(kafka.leader_of("topic", 0))  # like kill -9
        kafka.start(1)  # with its data
        kafka.wait_in_sync()
        with kafka.frozen(1, 2, 3):  # they live, but do not respond
            ...
"""

import os
import signal
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

from judges.kafka_broker import KafkaBroker, KafkaFailed
from judges.wire import Wire
from ottla.client.network.coordinators import CoordinatorKind
from ottla.client.sync.administrator import Admin
from ottla.errors import RequestError
from ottla.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

NODES = (1, 2, 3)
PARTITIONS = 3
"""Partitions of an internal topic, so that each broker coordinates something."""

_JVM = ("-Xmx256m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_POLL_S = 0.1

_TOGETHER: Mapping[str, object] = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": PARTITIONS,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.num.partitions": PARTITIONS,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "share.coordinator.state.topic.replication.factor": 3,
    # A killed broker is fenced after this time. If a live broker is fenced on a busy machine, its
    # leaders move and come back; clients have to handle that anyway.
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 300,
    # Leaders move only if a broker dies or an operator requests it.
    "auto.leader.rebalance.enable": "false",
    # The default is half of the heap, for a cleaner that has nothing to do.
    "log.cleaner.dedupe.buffer.size": 4 << 20,
}


class KafkaCluster:
    """Three brokers that start with the `with`; `settings` are lines of every server.properties."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        jvm: tuple[str, ...] = _JVM,
        timeout_s: float = 180,
    ) -> None:
        self.timeout_s = timeout_s  # for every wait
        self.start_s = 0.0  # of all brokers, until every replica was in sync
        self._frozen: set[int] = set()
        self.brokers = {
            node: KafkaBroker(
                {**_TOGETHER, **(settings or {})},
                jvm=jvm,
                timeout_s=timeout_s,
                keeps_ports=True,
                node_id=node,
            )
            for node in NODES
        }

    def __enter__(self) -> Self:
        voters = ",".join(broker.voter for broker in self.brokers.values())
        try:
            for broker in self.brokers.values():
                broker.voters = voters
            _at_once(KafkaBroker.format, self.brokers.values())
            began_s = time.monotonic()
            # A single broker does not respond, because it has no quorum.
            _at_once(KafkaBroker.start, self.brokers.values())
            self.wait_in_sync()
            self.start_s = time.monotonic() - began_s
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            for node, broker in self.brokers.items():
                error.add_note(f"broker {node}: {broker.log_tail()}")
        self._remove()

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers for clients: all brokers."""
        return self.bootstrap_of(*NODES)

    @property
    def nodes(self) -> tuple[int, ...]:
        """The ids of the brokers."""
        return NODES

    @property
    def live(self) -> list[int]:
        """The brokers that run."""
        return [node for node in NODES if self.brokers[node].running and node not in self._frozen]

    def bootstrap_of(self, *nodes: int) -> str:
        """The bootstrap servers for clients: some brokers."""
        return ",".join(self.brokers[node].bootstrap for node in nodes)

    def wire(self, node: int) -> Wire:
        """Connect to a broker."""
        return self.brokers[node].wire()

    # Failures.

    def kill(self, node: int) -> None:
        """Kill a broker, like kill -9."""
        self.brokers[node].kill()

    def start(self, node: int) -> None:
        """Start a broker with its data; returns when it serves requests."""
        self.brokers[node].start()

    @contextmanager
    def frozen(self, *nodes: int) -> Generator[None]:
        """Suspend some brokers: their connections stay open, but they do not respond."""
        processes = [self.brokers[node].process_id for node in nodes]
        self._frozen |= {*nodes}
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            self._frozen -= {*nodes}
            for process in processes:
                os.kill(process, signal.SIGCONT)

    def revive(self) -> None:
        """Start the brokers that do not run, and wait until all replicas are in sync."""
        gone = [broker for broker in self.brokers.values() if not broker.running]
        _at_once(KafkaBroker.start, gone)
        self.wait_in_sync()

    # Queries.

    def leader_of(self, topic: str, partition: int) -> int:
        """The leader of a partition; waits until a live broker leads it."""
        for topics in self._looks(f"a leader of {topic}-{partition}"):
            leader, _ = topics.get(topic, {}).get(partition, (-1, ()))
            if leader in self.live:
                return leader
        raise AssertionError

    def coordinator_of(self, kind: CoordinatorKind, key: str) -> int:
        """The coordinator of a group or a transactional id; waits until there is one."""
        deadline_s = time.monotonic() + self.timeout_s
        live = self.live[0]
        while time.monotonic() < deadline_s:
            with self.wire(live) as wire:
                if (found := coordinator_of(wire, kind, key)) is not None:
                    return found
            time.sleep(_POLL_S)
        raise KafkaFailed(f"Nobody looked after {key} in {self.timeout_s:g} s.")

    def wait_in_sync(self) -> None:
        """Wait until every replica of every partition is in sync."""
        for topics in self._looks("all replicas in sync"):
            partitions = [one for topic in topics.values() for one in topic.values()]
            if all(len(in_sync) == len(NODES) for _, in_sync in partitions):
                return

    def _looks(self, what: str) -> Generator[dict[str, dict[int, tuple[int, tuple[int, ...]]]]]:
        """Leaders and in-sync replicas of all partitions, read repeatedly until a timeout."""
        deadline_s = time.monotonic() + self.timeout_s
        live = self.live
        with Admin(bootstrap_servers=self.bootstrap_of(*live)) as admin:
            while time.monotonic() < deadline_s:
                with suppress(RequestError):
                    # Not all brokers know a new broker at once.
                    cluster = admin.describe_cluster()
                    names = admin.list_topics(include_internal=True)
                    told = admin.describe_topics(names).succeeded if names else {}
                    if len(cluster.brokers) == len(live) and len(told) == len(names):
                        yield {
                            topic.name: {
                                one.index: (-1 if one.leader is None else one.leader, one.in_sync)
                                for one in topic.partitions
                            }
                            for topic in told.values()
                        }
                time.sleep(_POLL_S)
        raise KafkaFailed(f"Kafka did not come to {what} in {self.timeout_s:g} s.")

    def _remove(self) -> None:
        for broker in self.brokers.values():
            broker.remove()


def coordinator_of(wire: Wire, kind: CoordinatorKind, key: str) -> int | None:
    """Ask a broker for the coordinator of a group or a transactional id; None if there is none."""
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    [found] = wire.ask(request, 4, FindCoordinatorResponse).coordinators
    return None if found.error_code else found.node_id


def _at_once(doing: Callable[[KafkaBroker], None], brokers: Iterable[KafkaBroker]) -> None:
    """Call a function for several brokers, each in a thread; raise the first failure."""
    with ThreadPoolExecutor(len(NODES)) as threads:
        for done in [threads.submit(doing, broker) for broker in brokers]:
            done.result()
