"""Scenarios that run on Ottla and on Apache Kafka.

Ottla runs in the event loop of the test; Kafka is shared by all tests. So every scenario creates
its own topics.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from typing import Any, TypeAlias

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from client.scenario_runner import run
from judges.kafka_broker import KafkaBroker
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.testing import Cluster
from ottla.transport.channel import Channel, open_channel
from ottla.transport.network import TcpNetwork
from shared_kafka import SharedKafka

_NUMBERS = count()


class TargetBroker:
    """A running broker, Ottla or Kafka, against which a scenario runs."""

    def __init__(
        self,
        bootstrap: str,
        stop: Callable[[], Coroutine[Any, Any, None]],
        start: Callable[[], Coroutine[Any, Any, None]],
        restarts: int,
    ) -> None:
        self.bootstrap = bootstrap
        self.stop = stop
        self.start = start
        self.restarts = restarts  # as many restarts as a test has time for

    async def topic(self, partitions: int = 1, settings: Mapping[str, object] | None = None) -> str:
        """Create a topic with a new name, and wait until its leaders serve.

        Kafka answers before they do. Requests of a producer that is not idempotent would then be
        retried, and overtaken by later ones.
        """
        name = f"topic-{next(_NUMBERS)}"
        configs = [
            CreatableTopicConfig(name=one, value=str(value))
            for one, value in (settings or {}).items()
        ]
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=configs,
        )
        async with self.channel() as channel:
            request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
            answer = await channel.ask(request, CreateTopicsResponse, 30)
            assert [one.error_code for one in answer.topics] == [0]
            ends = [
                ListOffsetsPartition(partition_index=index, timestamp=-1)
                for index in range(partitions)
            ]
            ask = ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=ends)]
            )
            async with asyncio.timeout(30):
                while True:
                    [found] = (await channel.ask(ask, ListOffsetsResponse, 30)).topics
                    if all(not one.error_code for one in found.partitions):
                        return name
                    await asyncio.sleep(0.01)

    @asynccontextmanager
    async def channel(self) -> AsyncGenerator[Channel]:
        """Open a connection to the broker."""
        host, port = self.bootstrap.split(":")
        channel = await open_channel(
            TcpNetwork(),
            host,
            int(port),
            client_id="target",
            software=("target", "1"),
            setup_timeout_s=30,
            request_timeout_s=30,
            ended=lambda: None,
        )
        try:
            yield channel
        finally:
            channel.close()

    async def read(self, topic: str, partitions: int = 1, **settings: Any) -> list[list[Any]]:
        """Return the records of each partition, as aiokafka reads them."""
        consumer: Any = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, auto_offset_reset="earliest", **settings
        )
        await consumer.start()
        try:
            ones = [TopicPartition(topic, index) for index in range(partitions)]
            consumer.assign(ones)
            ends = await consumer.end_offsets(ones)
            found: dict[TopicPartition, list[Any]] = {one: [] for one in ones}
            for one in ones:
                while await consumer.position(one) < ends[one]:
                    for place, records in (await consumer.getmany(timeout_ms=200)).items():
                        found[place] += records
            return [found[one] for one in ones]
        finally:
            await consumer.stop()


class CuttableNetwork(TcpNetwork):
    """A network whose connections a test can cut."""

    def __init__(self) -> None:
        self._made: list[Channel] = []

    async def connect(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> None:
        def made() -> asyncio.BaseProtocol:
            channel = protocol()
            assert isinstance(channel, Channel)
            self._made.append(channel)
            return channel

        await super().connect(made, host, port)

    def cut(self) -> bool:
        """Cut connections with requests in flight; return whether there was one."""
        busy = [channel for channel in self._made if channel.is_open and channel.in_flight]
        for channel in busy:
            channel.close()
        return bool(busy)


@asynccontextmanager
async def ottla_target() -> AsyncGenerator[TargetBroker]:
    """Start an Ottla broker for the duration of the `async with` block."""
    async with Cluster() as cluster:
        broker = cluster.brokers[0]
        yield TargetBroker(cluster.bootstrap_servers, broker.stop, broker.start, 3)


@asynccontextmanager
async def kafka_target(kafka: KafkaBroker) -> AsyncGenerator[TargetBroker]:
    """Use the shared Kafka, which runs before and after the block."""

    async def stop() -> None:
        await asyncio.to_thread(kafka.kill)

    async def start() -> None:
        await asyncio.to_thread(kafka.start)

    yield TargetBroker(kafka.bootstrap, stop, start, 1)
    if not kafka.running:
        await start()


Scenario: TypeAlias = Callable[[TargetBroker], Coroutine[Any, Any, None]]
Judge: TypeAlias = Callable[[Scenario], None]


@pytest.fixture(params=["ottla", "kafka"])
def judge(request: pytest.FixtureRequest) -> Judge:
    """Return a function that runs a scenario against a broker."""
    if request.param == "ottla":
        return judged_on(ottla_target)
    kafka: SharedKafka = request.getfixturevalue("shared_kafka")
    return judged_on(lambda: kafka_target(kafka.broker))


LONG_ON_KAFKA = pytest.mark.parametrize(
    "judge", ["ottla", pytest.param("kafka", marks=pytest.mark.judge)], indirect=True
)
"""For a scenario that takes long on Kafka: only `make judge` runs it there."""


def judged_on(target: Callable[[], AbstractAsyncContextManager[TargetBroker]]) -> Judge:
    """Return a function that runs each scenario against its own broker."""

    def judged(scenario: Scenario) -> None:
        async def on_target() -> None:
            async with target() as there:
                await scenario(there)

        run(on_target(), 120)

    return judged
