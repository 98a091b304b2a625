"""Kills the leader of a partition and measures the time to the next acknowledged record.

Three brokers and a ZooKeeper run as processes (`ottla cluster start`), with default settings apart
from `--override`. A producer sends a record every few milliseconds with acks=all to the partition
whose leader is killed with SIGKILL. Every other time the leader is the controller, too. Killed
brokers are started again, and the next kill waits until all replicas are in sync.

The time includes that of the client. librdkafka asks for the leaders once when its connection ends,
before a new one is elected, and then once a second.

Invariant: only records that were sent after the kill count.
"""

import argparse
import asyncio
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
from rich.console import Console
from rich.table import Table

from harness import write_report
from ottla.client.admin.administrator import Admin
from ottla.client.admin.topics import NewTopic
from ottla.client.producer.pending_batch import Ack
from ottla.client.producer.producer import Producer
from ottla.errors import RequestError

QUESTION = "How long does a producer wait after the leader was killed?"
KILLS = 20
GOAL_S = 1.0
TOPIC = "failover"
SEND_EVERY_S = 0.005
PATIENCE_S = 60.0
OTTLA = str(Path(sys.executable).parent / "ottla")

kafka: Any = confluent_kafka  # the client's types are not complete


@dataclass(frozen=True, slots=True)
class Kill:
    """One fail-over."""

    broker: int
    was_controller: bool
    seconds: float  # from the kill to the acknowledgement of a record that was sent after it


@dataclass(frozen=True, slots=True)
class State:
    """The cluster as a client sees it."""

    controller: int
    leaders: dict[int, int]  # by partition
    in_sync: dict[int, Sequence[int]]


@contextmanager
def cluster(overrides: Sequence[str]) -> Generator[tuple[str, Path]]:
    """Run three brokers; yield their addresses and the directory of their process ids."""
    folder = Path(tempfile.mkdtemp(prefix="ottla-failover-"))
    data = folder / "data"
    command = [OTTLA, "cluster", "start", "-n", "3", "--port", "0", "--restart"]
    command += ["--data", str(data)]
    command += [word for one in overrides for word in ("--override", one)]
    with (folder / "errors").open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        assert words[:1] == ["ready"], (folder / "errors").read_text()
        yield words[1], data
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
        shutil.rmtree(folder, ignore_errors=True)


def producer(bootstrap: str) -> Any:
    """Return a producer with the defaults of librdkafka, apart from acks=all and idempotence."""
    return kafka.Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
    )


def state(client: Any) -> State:
    """Return what any broker knows."""
    found = client.list_topics(TOPIC, timeout=PATIENCE_S)
    partitions = found.topics[TOPIC].partitions.values()
    return State(
        found.controller_id,
        {one.id: one.leader for one in partitions},
        {one.id: one.isrs for one in partitions},
    )


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    """Wait until something is true."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.05)


async def create_topic(bootstrap: str) -> None:
    """Create a topic whose partitions prefer a broker each."""
    async with Admin({"bootstrap.servers": bootstrap}) as admin:
        replicas = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}
        await admin.create_topics([NewTopic(TOPIC, replicas=replicas)])


async def elect_preferred(bootstrap: str) -> None:
    """Let every broker lead the partition that prefers it."""
    async with Admin({"bootstrap.servers": bootstrap}) as admin:
        await admin.elect_leaders()


def settle(bootstrap: str, client: Any) -> State:
    """Wait until all replicas are in sync and every broker leads one partition."""

    def is_whole() -> bool:
        found = state(client)
        if any(len(one) < 3 for one in found.in_sync.values()):
            return False
        if len({*found.leaders.values()}) == 3 and found.controller >= 0:
            return True
        with_retry(lambda: asyncio.run(elect_preferred(bootstrap)))
        return False

    wait_for("all replicas are in sync", is_whole)
    return state(client)


def with_retry(act: Callable[[], None]) -> None:
    """Ignore what a caller repeats anyway."""
    try:
        act()
    except RequestError as error:
        print(f"repeated: {error}", file=sys.stderr)


def kill(data: Path, broker: int) -> float:
    """Kill a broker; return the moment."""
    process = int((data / f"broker-{broker}.pid").read_text())
    began_s = time.monotonic()
    os.kill(process, signal.SIGKILL)
    return began_s


async def fail_over_ottla(bootstrap: str, data: Path, victim: int, partition: int) -> float:
    """Kill a broker; return the seconds to the next acknowledged record of a partition."""
    acknowledged: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def note(sent: Ack) -> None:
        await sent
        if not acknowledged.done():
            acknowledged.set_result(time.monotonic())

    config = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all"}
    async with Producer(config) as producer, asyncio.TaskGroup() as group:
        for _ in range(20):  # the connection to the leader is open
            await (await producer.send(TOPIC, b"before", partition=partition))
        began_s = kill(data, victim)
        while not acknowledged.done():
            group.create_task(note(await producer.send(TOPIC, b"after", partition=partition)))
            await asyncio.sleep(SEND_EVERY_S)
        return acknowledged.result() - began_s


def fail_over_librdkafka(client: Any, data: Path, victim: int, partition: int) -> float:
    """Do the same with librdkafka, which looks for a new leader once a second."""
    acknowledged: list[float] = []

    def note(error: object, message: object) -> None:
        assert error is None, error
        acknowledged.append(time.monotonic())

    for _ in range(20):
        client.produce(TOPIC, b"before", partition=partition)
        client.poll(SEND_EVERY_S)
    assert client.flush(PATIENCE_S) == 0
    began_s = kill(data, victim)
    while not acknowledged:
        client.produce(TOPIC, b"after", partition=partition, on_delivery=note)
        client.poll(SEND_EVERY_S)
        assert time.monotonic() - began_s < PATIENCE_S
    assert client.flush(PATIENCE_S) == 0
    return acknowledged[0] - began_s


def measure(kills: int, overrides: Sequence[str], *, uses_librdkafka: bool) -> list[Kill]:
    """Kill leaders, and return the fail-overs."""
    found: list[Kill] = []
    with cluster(overrides) as (bootstrap, data):
        asyncio.run(create_topic(bootstrap))
        client = producer(bootstrap)
        for number in range(kills):
            now = settle(bootstrap, client)
            wants_controller = number % 2 == 0
            victim, partition = next(
                (leader, partition)
                for partition, leader in sorted(now.leaders.items())
                if (leader == now.controller) is wants_controller
            )
            if uses_librdkafka:
                seconds = fail_over_librdkafka(client, data, victim, partition)
            else:
                seconds = asyncio.run(fail_over_ottla(bootstrap, data, victim, partition))
            found.append(Kill(victim, victim == now.controller, seconds))
            role = "leader and controller" if victim == now.controller else "leader"
            print(f"kill {number + 1}: {role} {victim}: {seconds:.3f} s", file=sys.stderr)
    return found


def main() -> None:
    """Measure, print and store the figures."""
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--kills", type=int, default=KILLS, help="how many leaders to kill")
    parser.add_argument("--override", action="append", default=[], help="a setting of all brokers")
    parser.add_argument("--client", choices=("ottla", "librdkafka"), default="ottla")
    asked = parser.parse_args()
    is_peer = asked.client == "librdkafka"
    kills = measure(asked.kills, asked.override, uses_librdkafka=is_peer)
    table = Table(title=f"{QUESTION} ({asked.client})")
    for name in ("killed", "times", "median s", "worst s", "goal"):
        table.add_column(name, justify="left" if name == "killed" else "right")
    for name, some in (
        ("leader", [one.seconds for one in kills if not one.was_controller]),
        ("leader and controller", [one.seconds for one in kills if one.was_controller]),
        ("all", [one.seconds for one in kills]),
    ):
        if some:
            worst = f"{max(some):.3f}"
            median = f"{statistics.median(some):.3f}"
            table.add_row(name, str(len(some)), median, worst, f"< {GOAL_S:g}")
    console = Console()
    console.print(table)
    figures = {
        "question": QUESTION,
        "client": asked.client,
        "overrides": asked.override,
        "kills": [
            {"broker": one.broker, "was_controller": one.was_controller, "seconds": one.seconds}
            for one in kills
        ],
    }
    console.print(f"figures: {write_report(Path(__file__), figures)}")


if __name__ == "__main__":
    main()
