"""Kills the leader of a partition and measures the time to the next acknowledged record.

A producer sends a record every few milliseconds with acks=all to the partition whose leader is
killed with SIGKILL. Every other time the leader is the controller, too. Killed brokers are started
again, and the next kill waits until all replicas are in sync and every broker leads a partition.

Our brokers and Kafka's have the same session timeout in each pair of rows: first Kafka's default,
then a shorter one. Ours replace a process that is proven dead before its session expires. A row
without this (ottla.fast.failover.enable=false) shows what the session timeout alone gives.

The time includes that of the client: Ottla's producer, or librdkafka with its defaults.

Invariant: only records that were sent after the kill count.

    python benchmarks/failover.py --only ottla
"""

import argparse
import asyncio
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
from rich.console import Console
from rich.table import Table

from clusters import Server, Servers, controller_of, kafka, ours, partitions_of, wait_until
from harness import PIPED_WIDTH, write_report
from ottla.client.admin.administrator import Admin
from ottla.client.admin.topics import NewTopic
from ottla.client.producer.producer import Producer
from ottla.client.producer.producer_batch import Ack
from ottla.errors import RequestError

QUESTION = "How long does a producer wait after the leader was killed?"
GOAL_S = 1.0
TOPIC = "failover"
PARTITIONS = 3
BEFORE = 20  # records of each partition that are acknowledged before a kill
SEND_EVERY_S = 0.005
PATIENCE_S = 60.0
CLIENTS = ("ottla", "librdkafka")

kafka_client: Any = confluent_kafka  # the client's types are not complete


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster, and how often its leaders are killed under each client."""

    name: str
    cluster: Callable[[Mapping[str, object]], AbstractContextManager[Servers]]
    settings: Mapping[str, object]
    kills: int
    goal_s: float | None = None
    is_quick: bool = False


CASES = (
    Case("ottla, session 9 s (default)", ours, {}, 20, GOAL_S, is_quick=True),
    Case("kafka, session 9 s (default)", kafka, {}, 6),
    Case("ottla, session 3 s", ours, {"zookeeper.session.timeout.ms": 3000}, 6, GOAL_S),
    Case(
        "ottla, session 3 s, only the session",
        ours,
        {"zookeeper.session.timeout.ms": 3000, "ottla.fast.failover.enable": "false"},
        4,
    ),
    Case(
        "kafka, session 3 s",
        kafka,
        {"broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500},
        6,
        is_quick=True,
    ),
)


@dataclass(frozen=True, slots=True)
class Kill:
    """One fail-over."""

    case: str
    client: str
    broker: int
    was_controller: bool
    seconds: float  # from the kill to the acknowledgement of a record that was sent after it


def settle(servers: Servers) -> dict[int, int]:
    """Wait until all replicas are in sync and every broker leads; return the leaders."""
    leaders: dict[int, int] = {}

    def is_settled() -> bool:
        for broker in servers.brokers.values():
            found = partitions_of(broker, TOPIC)
            leaders.update({one.partition_index: one.leader_id for one in found})
            if any(len(one.isr_nodes) < len(servers.brokers) for one in found):
                return False
            if set(leaders.values()) != set(servers.brokers):
                with_retry(lambda: asyncio.run(elect_preferred(servers.bootstrap)))
                return False
        return True

    wait_until(is_settled, every_s=0.1)
    return leaders


async def create_topic(servers: Servers) -> None:
    """Create a topic whose partitions prefer a broker each."""
    async with Admin({"bootstrap.servers": servers.bootstrap}) as admin:
        replicas = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}
        await admin.create_topics([NewTopic(TOPIC, replicas=replicas)])


async def elect_preferred(bootstrap: str) -> None:
    """Let every broker lead the partition that prefers it."""
    async with Admin({"bootstrap.servers": bootstrap}) as admin:
        await admin.elect_leaders()


def with_retry(act: Callable[[], None]) -> None:
    """Ignore what a caller repeats anyway."""
    try:
        act()
    except RequestError as error:
        print(f"repeated: {error}", file=sys.stderr)


def kill(broker: Server) -> float:
    """Kill a broker without waiting for its end; return the moment."""
    began_s = time.monotonic()
    os.kill(broker.process_id, signal.SIGKILL)
    return began_s


async def fail_over_ottla(bootstrap: str, victim: Server, partition: int) -> float:
    """Kill a broker; return the seconds to the next acknowledged record of a partition."""
    acknowledged: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def note(sent: Ack) -> None:
        await sent
        if not acknowledged.done():
            acknowledged.set_result(time.monotonic())

    config = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all"}
    async with Producer(config) as producer, asyncio.TaskGroup() as group:
        for number in range(BEFORE * PARTITIONS):  # the connections to all leaders are open
            await (await producer.send(TOPIC, b"before", partition=number % PARTITIONS))
        began_s = kill(victim)
        while not acknowledged.done():
            group.create_task(note(await producer.send(TOPIC, b"after", partition=partition)))
            await asyncio.sleep(SEND_EVERY_S)
        return acknowledged.result() - began_s


def fail_over_librdkafka(bootstrap: str, victim: Server, partition: int) -> float:
    """Do the same with librdkafka."""
    acknowledged: list[float] = []
    client = kafka_client.Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
    )

    def note(error: object, message: object) -> None:
        assert error is None, error
        acknowledged.append(time.monotonic())

    for number in range(BEFORE * PARTITIONS):
        client.produce(TOPIC, b"before", partition=number % PARTITIONS)
        client.poll(SEND_EVERY_S)
    assert client.flush(PATIENCE_S) == 0
    began_s = kill(victim)
    while not acknowledged:
        client.produce(TOPIC, b"after", partition=partition, on_delivery=note)
        client.poll(SEND_EVERY_S)
        assert time.monotonic() - began_s < PATIENCE_S
    assert client.flush(PATIENCE_S) == 0
    return acknowledged[0] - began_s


def measure(case: Case, clients: Sequence[str], kills: int) -> list[Kill]:
    """Kill leaders under each client in turns, and return the fail-overs."""
    found: list[Kill] = []
    with case.cluster(case.settings) as servers:
        asyncio.run(create_topic(servers))
        for number in range(kills):
            for client in clients:
                leaders, controller = settle(servers), controller_of(servers)
                wants_controller = number % 2 == 0
                victim, partition = next(
                    (leader, partition)
                    for partition, leader in sorted(leaders.items())
                    if (leader == controller) is wants_controller
                )
                broker = servers.brokers[victim]
                if client == "librdkafka":
                    seconds = fail_over_librdkafka(servers.bootstrap, broker, partition)
                else:
                    seconds = asyncio.run(fail_over_ottla(servers.bootstrap, broker, partition))
                found.append(Kill(case.name, client, victim, victim == controller, seconds))
                role = "leader and controller" if victim == controller else "leader"
                about = f"{case.name}, {client}: {role} {victim}"
                print(f"kill {number + 1}: {about}: {seconds:.3f} s", file=sys.stderr)
                broker.kill()  # wait for its end
                broker.start()
    return found


def table_of(cases: Sequence[Case], kills: Sequence[Kill]) -> Table:
    """A row for each cluster, client and role of the killed broker."""
    table = Table(title=QUESTION)
    for name in ("cluster", "client", "killed", "times", "median s", "worst s", "goal", "met?"):
        is_text = name in ("cluster", "client", "killed")
        table.add_column(name, justify="left" if is_text else "right")
    for case in cases:
        for client in CLIENTS:
            mine = [one for one in kills if (one.case, one.client) == (case.name, client)]
            for role, some in (
                ("leader", [one.seconds for one in mine if not one.was_controller]),
                ("leader and controller", [one.seconds for one in mine if one.was_controller]),
            ):
                if some:
                    is_met = case.goal_s is None or max(some) < case.goal_s
                    table.add_row(
                        *(case.name, client, role, str(len(some))),
                        *(f"{statistics.median(some):.3f}", f"{max(some):.3f}"),
                        "" if case.goal_s is None else f"< {case.goal_s:g}",
                        "" if case.goal_s is None else "yes" if is_met else "[bold]no[/bold]",
                    )
        table.add_section()
    return table


def main() -> None:
    """Measure, print and store the figures."""
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--quick", action="store_true", help="a short run, for a first look")
    parser.add_argument("--kills", type=int, help="how many leaders to kill under each client")
    parser.add_argument("--only", default="", help="the clusters with these words in their names")
    parser.add_argument("--client", choices=CLIENTS, help="use only this client")
    asked = parser.parse_args()
    clients: Sequence[str] = (asked.client,) if asked.client else CLIENTS
    cases = [one for one in CASES if asked.only in one.name and (one.is_quick or not asked.quick)]
    kills = [
        kill
        for case in cases
        for kill in measure(case, clients, asked.kills or (2 if asked.quick else case.kills))
    ]
    console = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)
    console.print(table_of(cases, kills))
    figures = {
        "question": QUESTION,
        "quick": asked.quick,
        "goal_s": GOAL_S,
        "settings": {one.name: dict(one.settings) for one in cases},
        "kills": [asdict(one) for one in kills],
    }
    console.print(f"figures: {write_report(Path(__file__), figures)}", soft_wrap=True)


if __name__ == "__main__":
    main()
