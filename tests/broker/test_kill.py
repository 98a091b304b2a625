"""kill -9 under load, repeatedly: no acknowledged record is lost.

`make test` kills 15 times, `make soak` 50 times. A real process is killed at random moments, also
while it starts. Third-party clients work the whole time: idempotent producers, a consumer group
that commits, and a client that creates, changes and deletes topics. The page cache survives a
killed process, so every acknowledged record must be there.

One producer is librdkafka, whose requests the compiled fast path serves. aiokafka produces with
version 8, which ProduceHandler serves.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka

import sampling
from broker.nodes import Client
from broker.test_node import batch, create, produce
from judges.ottla_broker import OttlaBroker
from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

KILLS = 50 if sampling.SOAK else 15
TOPIC, PARTITIONS, GROUP = "load", 3, "readers"
REPEATED = "repeated"
ACKS_PER_ROUND = 15  # of each producer before each kill, so that the broker is under load
SETTINGS = (
    "node.id=1",
    f"num.partitions={PARTITIONS}",
    "group.initial.rebalance.delay.ms=0",
    "offsets.topic.num.partitions=2",
    "offsets.topic.replication.factor=1",
    "log.roll.ms=1000",  # so that some kills happen while segments roll
    "replica.high.watermark.checkpoint.interval.ms=100",
    "log.flush.offset.checkpoint.interval.ms=100",
)
TIMEOUT_S = 1800  # for the whole test, on a busy machine
BROKER_ERRORS = (OSError, EOFError, aiokafka.errors.KafkaError)

IN_FLIGHT_MAX = 50
PAUSE_S = 0.002

# Any below: the clients' types are incomplete.
CONFLUENT: Any = confluent_kafka


class ProducerLoad(ABC):
    """A producer that retries until it is stopped, and the acknowledgements it received."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sent = 0
        self.acknowledged: dict[bytes, tuple[int, int]] = {}  # value: partition and offset

    @abstractmethod
    async def run(self, address: str, stop: asyncio.Event) -> None:
        """Produce until `stop` is set, and until everything is acknowledged."""


class LibrdkafkaLoad(ProducerLoad):
    """librdkafka, in a thread."""

    async def run(self, address: str, stop: asyncio.Event) -> None:
        await asyncio.to_thread(self._produce, address, stop)

    def _produce(self, address: str, stop: asyncio.Event) -> None:
        producer = CONFLUENT.Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": TIMEOUT_S * 1000,  # otherwise it would give up a batch
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 20,
                "log_level": 0,
            }
        )
        while not stop.is_set():
            if self.sent - len(self.acknowledged) < IN_FLIGHT_MAX:
                value = f"{self.name}-{self.sent}".encode()
                producer.produce(
                    TOPIC,
                    value,
                    partition=self.sent % PARTITIONS,
                    on_delivery=partial(self._note, value),
                )
                self.sent += 1
            producer.poll(PAUSE_S)
        assert producer.flush(60) == 0

    def _note(self, value: bytes, error: object, message: Any) -> None:
        assert error is None, error
        assert value not in self.acknowledged
        self.acknowledged[value] = (message.partition(), message.offset())


class AiokafkaLoad(ProducerLoad):
    """aiokafka, in the event loop."""

    async def run(self, address: str, stop: asyncio.Event) -> None:
        producer = await start_client(
            lambda: aiokafka.AIOKafkaProducer(
                bootstrap_servers=address,
                enable_idempotence=True,
                linger_ms=2,
                request_timeout_ms=TIMEOUT_S * 1000,  # otherwise it would give up a batch
                retry_backoff_ms=20,
            )
        )
        try:
            await self._send(producer, stop)
        finally:
            await stop_client(producer)

    async def _send(self, producer: Any, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            places = asyncio.Semaphore(IN_FLIGHT_MAX)
            while not stop.is_set():
                await places.acquire()
                value = f"{self.name}-{self.sent}".encode()
                future = await producer.send(TOPIC, value, partition=self.sent % PARTITIONS)
                self.sent += 1
                group.create_task(self._note(value, future, places))
                await asyncio.sleep(PAUSE_S)

    async def _note(
        self, value: bytes, future: asyncio.Future[Any], places: asyncio.Semaphore
    ) -> None:
        result = await future
        places.release()
        assert value not in self.acknowledged
        self.acknowledged[value] = (result.partition, result.offset)


class ConsumerLoad:
    """A group member, the offsets it tried to commit, and those that were acknowledged."""

    def __init__(self) -> None:
        self.attempted: list[int] = [0] * PARTITIONS
        self.committed: list[int] = [0] * PARTITIONS
        self.seen = 0

    async def run(self, address: str, stop: asyncio.Event) -> None:
        consumer = await consumer_of_group(address)
        try:
            await self._read(consumer, stop)
        finally:
            await stop_client(consumer)

    async def _read(self, consumer: Any, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                records = await consumer.getmany(timeout_ms=50)
            except BROKER_ERRORS:
                continue
            if not records:
                continue
            self.seen += sum(map(len, records.values()))
            positions: dict[Any, int] = {
                one: found[-1].offset + 1 for one, found in records.items()
            }
            for one, position in positions.items():
                index = int(one.partition)
                self.attempted[index] = max(self.attempted[index], position)
            try:
                await consumer.commit(positions)
            except BROKER_ERRORS:
                continue
            for one, position in positions.items():
                self.committed[one.partition] = position


async def consumer_of_group(address: str) -> Any:
    return await start_client(
        lambda: aiokafka.AIOKafkaConsumer(
            TOPIC,
            bootstrap_servers=address,
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            retry_backoff_ms=20,
        )
    )


async def start_client(make: Callable[[], Any]) -> Any:
    """Start a client, and retry with a new one while the broker is killed.

    A client whose start failed cannot be started again.
    """
    while True:
        client = make()
        try:
            await client.start()
        except BROKER_ERRORS:
            await stop_client(client)
            await asyncio.sleep(0.05)
        else:
            return client


async def stop_client(client: Any) -> None:
    """Stop a client, with a timeout: without a broker it would retry forever."""
    with suppress(*BROKER_ERRORS):
        await asyncio.wait_for(client.stop(), 60)


class TopicLoad:
    """A client that creates and deletes topics, and the results it received."""

    def __init__(self) -> None:
        self.made: dict[str, Uuid] = {}
        self.deleted: set[str] = set()
        self.unsure: set[str] = set()  # requested, without a response

    async def run(self, port: int, stop: asyncio.Event) -> None:
        number = 0
        while not stop.is_set():
            with suppress(*BROKER_ERRORS):
                client = Client(*await asyncio.open_connection("127.0.0.1", port))
                try:
                    while not stop.is_set():
                        number += 1
                        await self._make(client, f"made-{number}", number)
                        if len(self.made) > 10:
                            await self._delete(client, next(iter(self.made)))
                        await asyncio.sleep(0.01)
                finally:
                    await client.close()
            await asyncio.sleep(0.02)

    async def _make(self, client: Client, name: str, number: int) -> None:
        config = CreatableTopicConfig(name="retention.ms", value=str(1_000_000 + number))
        topic = CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[config]
        )
        self.unsure.add(name)
        answer = await client.ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse)
        assert answer.topics[0].error_code == 0, answer
        self.unsure.discard(name)
        self.made[name] = answer.topics[0].topic_id

    async def _delete(self, client: Client, name: str) -> None:
        self.unsure.add(name)
        del self.made[name]
        topic = DeleteTopicState(name=name, topic_id=ZERO_UUID)
        request = DeleteTopicsRequest(topics=[topic], timeout_ms=30_000)
        answer = await client.ask(request, DeleteTopicsResponse)
        assert answer.responses[0].error_code == 0, answer
        self.unsure.discard(name)
        self.deleted.add(name)


class DuplicateProducer:
    """An idempotent producer that sends every batch again, even if it was acknowledged."""

    def __init__(self) -> None:
        self._producer_id = -1
        self._last: tuple[bytes, int] | None = None
        self._sequence = 0

    async def check(self, client: Client) -> None:
        """A batch that was acknowledged before the kill is recognised as a duplicate (rules D1,
        D3).
        """
        if self._last is None:
            asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
            given = await client.ask(asked, InitProducerIdResponse)
            self._producer_id = given.producer_id
            await create(client, REPEATED)
        else:
            data, offset = self._last
            assert await produce(client, REPEATED, data) == (0, offset)
        for _ in range(3):
            data = batch(b"x", producer_id=self._producer_id, sequence=self._sequence)
            assert await produce(client, REPEATED, data) == (0, self._sequence)
            self._last = data, self._sequence
            self._sequence += 1


class Load:
    """All clients that run against the broker."""

    def __init__(self, broker: OttlaBroker) -> None:
        self.broker = broker
        self.producers: list[ProducerLoad] = [AiokafkaLoad("a"), LibrdkafkaLoad("b")]
        self.consumer = ConsumerLoad()
        self.changes = TopicLoad()
        self.repeating = DuplicateProducer()

    def progress(self, count: int) -> Callable[[], bool]:
        """Return whether each producer has that many acknowledgements more than now."""
        wanted = [len(one.acknowledged) + count for one in self.producers]
        return lambda: all(
            len(one.acknowledged) >= least
            for one, least in zip(self.producers, wanted, strict=True)
        )

    def run(self, stop: asyncio.Event) -> list[Coroutine[Any, Any, None]]:
        address = self.broker.bootstrap
        return [
            *(one.run(address, stop) for one in self.producers),
            self.consumer.run(address, stop),
            self.changes.run(self.broker.port, stop),
        ]

    async def check_what_was_acknowledged(self) -> None:
        """Check everything that can be checked while the clients run."""
        client = Client(*await asyncio.open_connection("127.0.0.1", self.broker.port))
        await self._check_commits(client)
        await self._check_topics(client)
        await self.repeating.check(client)
        await client.close()

    async def _check_commits(self, client: Client) -> None:
        acknowledged = list(self.consumer.committed)
        group = OffsetFetchRequestGroup(group_id=GROUP, topics=None)
        while True:
            answer = await client.ask(
                OffsetFetchRequest(groups=[group]), OffsetFetchResponse, version=9
            )
            if answer.groups[0].error_code == 0:
                break
            await asyncio.sleep(0.02)  # the offsets topic is created at the first start
        found = {
            one.partition_index: one.committed_offset
            for topic in answer.groups[0].topics
            for one in topic.partitions
        }
        for index in range(PARTITIONS):
            high = self.consumer.attempted[index]
            assert acknowledged[index] <= found.get(index, 0) <= high

    async def _check_topics(self, client: Client) -> None:
        changes = self.changes
        made, deleted = dict(changes.made), set(changes.deleted)
        answer = await client.ask(MetadataRequest(topics=None), MetadataResponse)
        found = {topic.name: topic.topic_id for topic in answer.topics}
        # Topics that are being deleted now may already be gone.
        expected = {name for name in made if name in changes.made}
        assert {name: found.get(name) for name in expected} == {
            name: made[name] for name in expected
        }
        assert not deleted & found.keys()
        for name in [*expected][-1:]:
            asked = DescribeConfigsResource(
                resource_type=2, resource_name=name, configuration_keys=["retention.ms"]
            )
            response = await client.ask(
                DescribeConfigsRequest(resources=[asked]), DescribeConfigsResponse
            )
            if name in changes.made:
                number = int(name.rpartition("-")[2])
                assert response.results[0].configs[0].value == str(1_000_000 + number)


async def read_all(address: str, ends: dict[int, int]) -> dict[int, dict[int, bytes]]:
    """Return every record, by partition and offset."""
    consumer: Any = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=address, auto_offset_reset="earliest"
    )
    await consumer.start()
    partitions = [aiokafka.TopicPartition(TOPIC, index) for index in ends]
    consumer.assign(partitions)
    await consumer.seek_to_beginning(*partitions)
    found: dict[int, dict[int, bytes]] = {index: {} for index in ends}
    assert {
        one.partition: end for one, end in (await consumer.end_offsets(partitions)).items()
    } == ends
    while sum(map(len, found.values())) < sum(ends.values()):
        for one, records in (await consumer.getmany(timeout_ms=1000)).items():
            for record in records:
                assert record.offset not in found[one.partition]
                found[one.partition][record.offset] = record.value
    await consumer.stop()
    return found


async def kill_under_load(broker: OttlaBroker, random: Random) -> Load:
    """Kill the broker repeatedly while the clients run."""
    load, stop = Load(broker), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        await asyncio.to_thread(broker.start)
        for work in load.run(stop):
            group.create_task(work)
        for number in range(KILLS):
            if number % 5 == 4:
                # Kill it while it starts.
                broker.spawn()
                await asyncio.sleep(random.random() * 0.5)
            else:
                if number:
                    await asyncio.to_thread(broker.start)
                await load.check_what_was_acknowledged()
                is_under_load = load.progress(ACKS_PER_ROUND)
                while not is_under_load():
                    await asyncio.sleep(0.005)
                await asyncio.sleep(random.random() * 0.2)
            await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
        await load.check_what_was_acknowledged()
        stop.set()
    return load


def test_acknowledged_records_survive_kills(tmp_path: Path) -> None:
    async def scenario(broker: OttlaBroker) -> None:
        load = await kill_under_load(broker, Random(sampling.seed()))
        await load.check_what_was_acknowledged()
        result = {k: v for one in load.producers for k, v in one.acknowledged.items()}
        assert len(result) == sum(one.sent for one in load.producers) > ACKS_PER_ROUND * KILLS
        ends = Counter(partition for partition, _ in result.values())
        found = await read_all(broker.bootstrap, dict(ends))
        # Each record is at its acknowledged offset. There are no other records, so there are no
        # duplicates.
        for value, (partition, offset) in result.items():
            assert found[partition][offset] == value
        values = Counter(value for records in found.values() for value in records.values())
        assert values == Counter(result.keys())
        await check_resumes(broker.bootstrap, load.consumer, ends)

    with OttlaBroker(tmp_path, *SETTINGS) as broker:
        try:
            asyncio.run(asyncio.wait_for(scenario(broker), TIMEOUT_S))
            assert broker.stop() == 0
        except BaseException:
            # pytest shows the output of a failed test.
            print(*broker.log.read_text().splitlines()[-200:], sep="\n")
            raise


async def check_resumes(address: str, before: ConsumerLoad, ends: Counter[int]) -> None:
    """Check that a new member resumes at the committed offsets."""
    assert before.seen > 0
    consumer = await consumer_of_group(address)
    positions: dict[Any, int] = {}
    while len(positions) < PARTITIONS:
        await asyncio.sleep(0.01)
        with suppress(aiokafka.errors.IllegalStateError):  # the group is rebalancing
            positions = {one: await consumer.position(one) for one in consumer.assignment()}
    for one, position in positions.items():
        assert before.committed[one.partition] <= position <= before.attempted[one.partition]
        assert position <= ends[one.partition]
    await consumer.stop()
