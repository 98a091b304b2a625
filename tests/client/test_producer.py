"""The producer against a real broker: in order, once, bounded, and never silent about a loss."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from ottla.client.outbox import Ack
from ottla.client.producer import Producer
from ottla.errors import ErrorCode, RequestError
from ottla.settings.problems import InvalidSettings
from ottla.testing import Cluster
from ottla.transport.channel import Channel, Disconnected, TimedOut
from ottla.transport.network import TcpNetwork

FAST = {"retry.backoff.ms": 10, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100}


def run(scenario: Coroutine[Any, Any, None], seconds: float = 60) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(seconds):
            await scenario
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not [task for task in left if "ottla/client" in str(task.get_coro())]

    asyncio.run(bounded())


async def read(cluster: Cluster, topic: str, partitions: int = 1) -> list[list[Any]]:
    """The records of each partition, as another client reads them."""
    consumer: Any = AIOKafkaConsumer(
        topic, bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        ones = [TopicPartition(topic, index) for index in range(partitions)]
        ends = await consumer.end_offsets(ones)
        found: dict[TopicPartition, list[Any]] = {one: [] for one in ones}
        while any(len(found[one]) < ends[one] for one in ones):
            for one, records in (await consumer.getmany(timeout_ms=1000)).items():
                found[one] += records
        return [found[one] for one in ones]
    finally:
        await consumer.stop()


class Cuttable(TcpNetwork):
    """A network whose connections can be cut, whatever is on its way."""

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
        """Cut those with requests on their way; tells whether there was one."""
        busy = [channel for channel in self._made if channel.is_open and channel.in_flight]
        for channel in busy:
            channel.close()
        return bool(busy)


def producer(
    cluster: Cluster, network: TcpNetwork | None = None, **arguments: str | int
) -> Producer:
    settings = {**FAST, "bootstrap.servers": cluster.bootstrap_servers}
    named = {name.replace("_", "."): value for name, value in arguments.items()}
    return Producer({**settings, **named}, network=network)


def test_a_record_arrives_whole_and_its_place_is_told() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            async with producer(cluster) as ours:
                ack = await ours.send(
                    "t", b"v", key=b"k", headers=[("h", b"1"), ("n", None)], timestamp_ms=5
                )
                assert not ack.done
                written = await ack
                assert (written.topic, written.partition, written.offset) == ("t", 0, 0)
                assert await ack == written
                assert await (await ours.send("t")) == written._replace(offset=1)
            [[first, second]] = await read(cluster, "t")
            assert (first.key, first.value, first.timestamp) == (b"k", b"v", 5)
            assert first.headers == (("h", b"1"), ("n", None))
            assert (second.key, second.value) == (None, None)

    run(scenario())


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_records_come_in_their_order(codec: str, acks: str) -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            async with producer(
                cluster, compression_type=codec, acks=acks, batch_size=500, linger_ms=0
            ) as ours:
                acknowledged = [await ours.send("t", b"%d" % n) for n in range(1000)]
            assert all(ack.done for ack in acknowledged)
            if acks == "0":
                await asyncio.sleep(0.2)  # nobody tells when the broker has them
            else:
                assert [(await ack).offset for ack in acknowledged] == [*range(1000)]
            [records] = await read(cluster, "t")
            assert [record.value for record in records] == [b"%d" % n for n in range(1000)]

    run(scenario())


def test_keys_keep_their_partition_and_a_partition_can_be_named() -> None:
    async def scenario() -> None:
        settings = {"num.partitions": 6}
        async with Cluster(settings=settings) as cluster, producer(cluster) as ours:
            assert await ours.partitions("t") == [0, 1, 2, 3, 4, 5]
            places = {(await (await ours.send("t", b"v", key=b"same"))).partition for _ in range(5)}
            assert len(places) == 1
            assert (await (await ours.send("t", b"v", partition=4))).partition == 4
            with pytest.raises(RequestError, match="partitions 0 to 5, not 6"):
                await ours.send("t", b"v", partition=6)

    run(scenario())


def test_a_broker_that_comes_and_goes_loses_nothing_and_doubles_nothing() -> None:
    async def scenario() -> None:
        async with Cluster(settings={"num.partitions": 2}) as cluster:

            async def trouble() -> None:
                for _ in range(3):
                    await asyncio.sleep(0.15)
                    await cluster.brokers[0].stop()
                    await asyncio.sleep(0.1)
                    await cluster.brokers[0].start()

            async with producer(cluster, batch_size=300, linger_ms=1) as ours:
                troubled = asyncio.create_task(trouble())
                acknowledged: list[Ack] = []
                for number in range(3000):
                    acknowledged.append(await ours.send("t", b"%d" % number, partition=number % 2))
                    if number % 10 == 0:
                        await asyncio.sleep(0.003)
                await troubled
                await ours.flush()
                for number, ack in enumerate(acknowledged):
                    assert (await ack).offset == number // 2
            even, odd = await read(cluster, "t", 2)
            assert [int(record.value) for record in even] == [*range(0, 3000, 2)]
            assert [int(record.value) for record in odd] == [*range(1, 3000, 2)]

    run(scenario())


def test_answers_that_are_lost_double_nothing() -> None:
    """Connections are cut while records are on their way, again and again."""

    async def scenario() -> None:
        async with Cluster() as cluster:
            network = Cuttable()
            async with producer(cluster, network=network, batch_size=200, linger_ms=0) as ours:
                cuts, number = 0, 0
                while cuts < 12:
                    await ours.send("t", b"%d" % number)
                    number += 1
                    await asyncio.sleep(0.0002)
                    cuts += network.cut()
            [records] = await read(cluster, "t")
            assert [int(record.value) for record in records] == [*range(number)]

    run(scenario())


def test_sending_waits_for_room_and_not_forever() -> None:
    async def scenario() -> None:
        async with (
            Cluster() as cluster,
            producer(
                cluster, batch_size=1000, buffer_memory=5000, max_block_ms=300, linger_ms=10_000
            ) as ours,
        ):
            for number in range(100):  # far more than the buffer holds
                await ours.send("t", bytes(400), key=b"%d" % number)
            with (
                cluster.brokers[0].pause(),
                pytest.raises(TimedOut, match=r"buffer\.memory"),
            ):
                await ours.send_many("t", [bytes(400)] * 100)

    run(scenario())


def test_a_record_too_large_is_refused_at_once() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster, producer(cluster, max_request_size=1000) as ours:
            with pytest.raises(RequestError, match=r"max\.request\.size=1000") as refused:
                await ours.send("t", bytes(1000))
            assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
            assert not refused.value.retriable

    run(scenario())


def test_what_the_topic_does_not_take_fails_and_the_rest_goes_on() -> None:
    async def scenario() -> None:
        settings = {"message.max.bytes": 1000}
        async with Cluster(settings=settings) as cluster, producer(cluster, batch_size=0) as ours:
            fits, large, behind = [await ours.send("t", bytes(size)) for size in (100, 2000, 200)]
            assert (await fits).offset == 0
            with pytest.raises(RequestError) as refused:
                await large
            assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
            assert (await behind).offset == 1

    run(scenario())


def test_a_loss_that_nobody_asked_about_is_told_at_the_end() -> None:
    async def scenario() -> None:
        async with Cluster(settings={"message.max.bytes": 1000}) as cluster:
            with pytest.raises(RequestError) as lost:
                async with producer(cluster) as ours:
                    await ours.send("t", bytes(2000))
            assert lost.value.code is ErrorCode.MESSAGE_TOO_LARGE

    run(scenario())


def test_the_delivery_timeout_ends_what_cannot_be_written() -> None:
    async def scenario() -> None:
        async with (
            Cluster() as cluster,
            producer(cluster, delivery_timeout_ms=400, request_timeout_ms=300, linger_ms=0) as ours,
        ):
            await (await ours.send("t", b"there"))
            await cluster.brokers[0].stop()
            ack = await ours.send("t", b"not there")
            with pytest.raises(RequestError, match=r"t-0: not written in 0\.4 s"):
                await ack

    run(scenario())


def test_without_a_broker_sending_fails_in_time_and_says_what_to_do() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            gone = cluster.bootstrap_servers
        async with Producer(FAST, bootstrap_servers=gone, max_block_ms=200) as ours:
            with pytest.raises(Disconnected, match="ottla dev"):
                await ours.send("t", b"v")

    run(scenario())


def test_a_failing_block_does_not_wait_for_the_outbox() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            ours = producer(cluster, linger_ms=100_000)
            await ours.__aenter__()
            ack = await ours.send("t", b"v")
            await ours.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)
            with pytest.raises(Disconnected, match="closed before this was written"):
                await ack
            with pytest.raises(Disconnected, match="async with"):
                await ours.send("t", b"v")

    run(scenario())


def test_many_are_sent_and_flushed() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster, producer(cluster, linger_ms=100_000) as ours:
            acknowledged = await ours.send_many("t", [b"a", None, b"c"])
            await ours.flush(10)
            assert [(await ack).offset for ack in acknowledged] == [0, 1, 2]
            await ours.send("t", b"d")
            with cluster.brokers[0].pause(), pytest.raises(TimedOut, match=r"after 0\.1 s"):
                await ours.flush(0.1)

    run(scenario())


def test_settings_are_checked_before_anything_else() -> None:
    with pytest.raises(InvalidSettings, match=r"linger\.ms"):
        Producer({"bootstrap.servers": "localhost", "linger.ms": "soon"})
    with pytest.raises(InvalidSettings, match=r"did you mean linger\.ms"):
        Producer(bootstrap_servers="localhost", lingerr_ms=5)
    with pytest.raises(InvalidSettings, match=r"bootstrap\.servers"):
        Producer()
