"""Failover scenarios: clients while brokers are down, move or do not respond.

Each scenario is written once and runs with async and with sync clients. A scenario with a `Stage`
calls `ready` when the broker it depends on may be killed. Then `away` is set, and `back` when the
broker is up again.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from client.chaos_workload import PARTITIONS, PATIENT
from client.sync.async_facade import DrivenConsumer, DrivenProducer
from ottla.client.consumer.consumer import Consumer
from ottla.client.producer.producer import Producer
from ottla.protocol.message import Message
from ottla.transport.channel import Channel
from ottla.transport.network import TcpNetwork

ROUND = 10 * PARTITIONS
PLACES = range(PARTITIONS)
WAIT_S = 300.0


class Clients(NamedTuple):
    """The producer and consumer classes that a scenario uses."""

    producer: Any
    consumer: Any


CLIENTS = {
    "async": Clients(Producer, Consumer),
    "sync": Clients(DrivenProducer, DrivenConsumer),
}


class Stage:
    """The steps of a failover: scenarios ready, broker away, broker back."""

    def __init__(self) -> None:
        self.away = asyncio.Event()
        self.back = asyncio.Event()
        self._ready: set[str] = set()

    def ready(self, name: str) -> None:
        """Report that a scenario is ready for the broker to be killed."""
        self._ready.add(name)

    @property
    def ready_count(self) -> int:
        return len(self._ready)


def numbered(name: bytes) -> list[tuple[int, bytes]]:
    """Return the values of a round, each with its partition."""
    return [(number % PARTITIONS, b"%b-%d" % (name, number)) for number in range(ROUND)]


def in_partition(partition: int, *names: bytes) -> list[bytes]:
    """Return the values that a partition has if these rounds were written."""
    return [value for name in names for where, value in numbered(name) if where == partition]


async def send(ours: Any, topic: str, name: bytes) -> list[Any]:
    return [
        await ours.send(topic, value, partition=partition) for partition, value in numbered(name)
    ]


async def transacts(
    clients: Clients, servers: str, topic: str, key: str, stage: Stage, *, commits: bool
) -> None:
    """Run a transaction whose coordinator is killed in the middle, and two after it."""
    settings = {**PATIENT, "transaction.timeout.ms": 600_000, "transactional.id": key}
    async with clients.producer(settings, bootstrap_servers=servers) as ours:

        async def orphaned() -> None:
            async with ours.transaction():
                await send(ours, topic, b"before")
                await ours.flush()
                stage.ready(topic)
                await stage.away.wait()
                await send(ours, topic, b"meanwhile")
                if not commits:
                    raise ZeroDivisionError

        if commits:
            await orphaned()
        else:
            with pytest.raises(ZeroDivisionError) as caught:
                await orphaned()
            assert not hasattr(caught.value, "__notes__")  # a note would mean that the abort failed
        async with ours.transaction():
            await send(ours, topic, b"next")
        await stage.back.wait()
        async with ours.transaction():
            await send(ours, topic, b"last")


async def goes_on(clients: Clients, seed: str, topic: str, stage: Stage) -> None:
    """Run a producer and a consumer that know one broker as bootstrap server, which is killed."""
    async with (
        clients.producer(PATIENT, bootstrap_servers=seed) as ours,
        clients.consumer(bootstrap_servers=seed, auto_offset_reset="earliest") as reader,
    ):
        reader.assign(*((topic, index) for index in PLACES))

        async def pass_on(name: bytes) -> None:
            for ack in await send(ours, topic, name):
                await ack
            read: list[bytes] = []
            async with asyncio.timeout(WAIT_S):
                while len(read) < ROUND:
                    read += [record.value for record in await reader.poll()]
            assert sorted(read) == sorted(value for _, value in numbered(name))

        await pass_on(b"before")
        stage.ready(topic)
        await stage.away.wait()
        await pass_on(b"meanwhile")
        await stage.back.wait()
        await pass_on(b"last")


class Counting(TcpNetwork):
    """A network that counts requests, and requests without a response."""

    def __init__(self) -> None:
        self.asked: Counter[type[Message]] = Counter()
        self.awaited: Counter[type[Message]] = Counter()

    async def connect(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> None:
        def made() -> asyncio.BaseProtocol:
            channel = protocol()
            assert isinstance(channel, Channel)
            send = channel.send

            def counted(
                message: Message, timeout_s: float, *, version: int | None = None
            ) -> asyncio.Future[Message]:
                kind = type(message)
                answer = send(message, timeout_s, version=version)
                self.asked[kind] += 1
                self.awaited[kind] += 1
                answer.add_done_callback(lambda _: self.awaited.subtract([kind]))
                return answer

            channel.send = counted
            return channel

        await super().connect(made, host, port)
