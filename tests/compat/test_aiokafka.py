"""aiokafka on our broker."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from typing import Any

import aiokafka
import aiokafka.admin
import aiokafka.errors
import pytest

from judges.ottla_broker import OttlaBroker, ottla_broker

# Any here and below: the client's types are not complete.
library: Any = aiokafka
administration: Any = aiokafka.admin
errors: Any = aiokafka.errors

CODECS = (None, "gzip", "snappy", "lz4", "zstd")
TIME_MS = int(time.time() * 1000) - 3_600_000
PATIENCE_S = 60


@pytest.fixture(scope="module")
def broker() -> Generator[OttlaBroker]:
    with ottla_broker() as running:
        yield running


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, PATIENCE_S))


@asynccontextmanager
async def administrator(broker: OttlaBroker) -> AsyncGenerator[Any]:
    client = administration.AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


async def make(broker: OttlaBroker, name: str, partitions: int = 1, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    async with administrator(broker) as client:
        new = administration.NewTopic(name, partitions, 1, topic_configs=settings)
        await client.create_topics([new])


@asynccontextmanager
async def consumer(broker: OttlaBroker, *topics: str, **settings: object) -> AsyncGenerator[Any]:
    reader = library.AIOKafkaConsumer(
        *topics,
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **settings,
    )
    await reader.start()
    try:
        yield reader
    finally:
        await reader.stop()


async def produce(broker: OttlaBroker, topic: str, count: int, **settings: object) -> list[int]:
    async with library.AIOKafkaProducer(bootstrap_servers=broker.bootstrap, **settings) as producer:
        sent = [
            await producer.send(
                topic,
                b"v%d" % number,
                b"k%d" % number,
                partition=0,
                timestamp_ms=TIME_MS + number,
                headers=[("h", b"1"), ("h", b"")],
            )
            for number in range(count)
        ]
        return [(await one).offset for one in sent]


async def read(readers: list[Any], enough: Callable[[list[Any]], bool]) -> list[Any]:
    """The records that consumers read together, up to a count."""
    seen: list[Any] = []
    while not enough(seen):
        for reader in readers:
            for records in (await reader.getmany(timeout_ms=50)).values():
                seen.extend(records)
    return seen


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [False, True])
def test_records_are_read_as_sent(broker: OttlaBroker, codec: str | None, idempotent: bool) -> None:
    async def scenario() -> None:
        name = f"records-{codec}-{idempotent}"
        await make(broker, name)
        sent = await produce(
            broker, name, 50, compression_type=codec, enable_idempotence=idempotent, acks="all"
        )
        assert sent == list(range(50))
        async with consumer(broker) as reader:
            reader.assign([library.TopicPartition(name, 0)])
            seen = await read([reader], lambda seen: len(seen) >= 50)
        assert [(one.offset, one.key, one.value) for one in seen] == [
            (number, b"k%d" % number, b"v%d" % number) for number in range(50)
        ]
        assert seen[7].timestamp == TIME_MS + 7
        assert seen[7].headers == (("h", b"1"), ("h", b""))

    run(scenario())


def test_seek_by_timestamp_and_to_the_ends(broker: OttlaBroker) -> None:
    async def scenario() -> None:
        await make(broker, "times")
        await produce(broker, "times", 20)
        here = library.TopicPartition("times", 0)
        async with consumer(broker) as reader:
            reader.assign([here])
            assert (await reader.offsets_for_times({here: TIME_MS + 5}))[here].offset == 5
            assert (await reader.offsets_for_times({here: TIME_MS + 10**9}))[here] is None
            assert await reader.beginning_offsets([here]) == {here: 0}
            assert await reader.end_offsets([here]) == {here: 20}
            reader.seek(here, 12)
            assert (await read([reader], bool))[0].offset == 12

    run(scenario())


def test_group_with_fewer_equal_and_more_members(broker: OttlaBroker) -> None:
    async def scenario() -> None:
        await make(broker, "shared", 2)
        settings = {"group_id": "shared", "heartbeat_interval_ms": 100}

        async def share(members: list[Any], *sizes: int) -> None:
            await read(
                members, lambda _: sorted(len(one.assignment()) for one in members) == [*sizes]
            )

        async with consumer(broker, "shared", **settings) as first:
            await share([first], 2)
            async with consumer(broker, "shared", **settings) as second:
                await share([first, second], 1, 1)
                async with consumer(broker, "shared", **settings) as third:
                    await share([first, second, third], 0, 1, 1)
                await share([first, second], 1, 1)
            await share([first], 2)
            here = library.TopicPartition("shared", 0)
            await first.commit({here: (3, "a note")})
            assert await first.committed(here) == 3
        await produce(broker, "shared", 10)
        async with consumer(broker, "shared", **settings) as reader:
            assert (await read([reader], bool))[0].offset == 3

    run(scenario())


def test_groups_and_topics_are_independent(broker: OttlaBroker) -> None:
    async def scenario() -> None:
        for name in ("left", "right"):
            await make(broker, name)
            await produce(broker, name, 10)
        for group in ("one", "two"):
            async with consumer(broker, "left", "right", group_id=group) as reader:
                seen = await read([reader], lambda seen: len(seen) >= 20)
                assert sorted({one.topic for one in seen}) == ["left", "right"]
                assert len(seen) == 20
                await reader.commit()

    run(scenario())


def test_topics_are_administered(broker: OttlaBroker) -> None:
    async def scenario() -> None:
        await make(broker, "managed", 2, retention_ms="86400000")
        async with administrator(broker) as client:
            assert "managed" in await client.list_topics()
            await client.create_partitions({"managed": administration.NewPartitions(3)})
            (described,) = await client.describe_topics(["managed"])
            assert len(described["partitions"]) == 3
            assert (await client.describe_cluster())["brokers"][0]["node_id"] == 1
            kind = administration.config_resource.ConfigResourceType.TOPIC
            resource = administration.config_resource.ConfigResource
            await client.alter_configs([resource(kind, "managed", {"retention.ms": "90000000"})])
            assert "90000000" in str(await client.describe_configs([resource(kind, "managed")]))
            await client.delete_topics(["managed"])
            assert "managed" not in await client.list_topics()

    run(scenario())


def test_too_large_record_is_rejected(broker: OttlaBroker) -> None:
    async def scenario() -> None:
        await make(broker, "small", max_message_bytes="1000")
        async with library.AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            with pytest.raises(errors.MessageSizeTooLargeError):
                await producer.send_and_wait("small", b"x" * 5000)

    run(scenario())
