"""The producer on Ottla and on Kafka: records are complete, in order and not duplicated."""

import asyncio
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isnan
from random import Random

import pytest

from client.both_brokers import LONG_ON_KAFKA, CuttableNetwork, Judge, TargetBroker, judge
from client.scenario_runner import FAST
from ottla.client.partitioners import Partitions, RoundRobinPartitioner, partition_of_key
from ottla.client.producer.producer import Producer
from ottla.client.producer.producer_batch import Ack
from ottla.client.serializers import LONG, STRING, SerializationFailed, json_of
from ottla.errors import ErrorCode, RequestError
from ottla.transport.network import TcpNetwork

__all__ = ["judge"]  # a fixture


def producer(
    target: TargetBroker, network: TcpNetwork | None = None, **arguments: str | int
) -> Producer:
    named = {name.replace("_", "."): value for name, value in arguments.items()}
    return Producer({**FAST, **named}, bootstrap_servers=target.bootstrap, network=network)


def test_record_is_written_and_its_offset_is_returned(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic()
        async with producer(target) as ours:
            ack = await ours.send(
                topic, b"v", key=b"k", headers=[("h", b"1"), ("n", None)], timestamp_ms=5
            )
            written = await ack
            assert (written.topic, written.partition, written.offset) == (topic, 0, 0)
            assert await ack == written
            assert await (await ours.send(topic)) == written._replace(offset=1)
        [[first, second]] = await target.read(topic)
        assert (first.key, first.value, first.timestamp) == (b"k", b"v", 5)
        assert first.headers == (("h", b"1"), ("n", None))
        assert (second.key, second.value) == (None, None)

    judge(scenario)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_records_are_written_in_order(judge: Judge, codec: str, acks: str) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic()
        async with producer(
            target, compression_type=codec, acks=acks, batch_size=500, linger_ms=0
        ) as ours:
            acknowledged = [await ours.send(topic, b"%d" % n) for n in range(1000)]
            # With acks=0 no response tells when the broker has the records, so the test waits.
            if acks == "0":
                async with producer(target) as other:
                    await (await other.send(topic, b"last"))
        assert all(ack.done for ack in acknowledged)
        if acks != "0":
            assert [(await ack).offset for ack in acknowledged] == [*range(1000)]
        async with asyncio.timeout(30):
            while True:
                [records] = await target.read(topic)
                values = [record.value for record in records if record.value != b"last"]
                if len(values) >= 1000:
                    break
        assert values == [b"%d" % n for n in range(1000)]

    judge(scenario)


def test_keys_keep_their_partition_and_a_partition_can_be_named(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic(6)
        async with producer(target) as ours:
            assert await ours.partitions(topic) == [0, 1, 2, 3, 4, 5]
            for key in (b"same", b"other", b""):
                written = await (await ours.send(topic, b"v", key=key))
                assert written.partition == partition_of_key(key, 6)
            assert (await (await ours.send(topic, b"v", partition=4))).partition == 4
            with pytest.raises(RequestError, match="6 partitions: partition 6 does not exist"):
                await ours.send(topic, b"v", partition=6)

    judge(scenario)


def test_custom_partitioners_are_used(judge: Judge) -> None:
    def last(topic: str, key: bytes | None, value: bytes | None, among: Partitions) -> int:
        return among.count - 1

    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic(3)
        settings = {**FAST, "bootstrap.servers": target.bootstrap}
        async with Producer(settings, partitioner=last) as ours:
            acks = [await ours.send(topic, b"v", key=b"%d" % n) for n in range(4)]
            acks += await ours.send_many(topic, [b"v"] * 4)
            assert {(await ack).partition for ack in acks} == {2}
        async with Producer(settings, partitioner=RoundRobinPartitioner(), batch_size=0) as ours:
            acks = await ours.send_many(topic, [b"v"] * 6)
            turns = [(await ack).partition for ack in acks]
            assert sorted(turns) == [0, 0, 1, 1, 2, 2]

    judge(scenario)


@LONG_ON_KAFKA
def test_broker_restarts_lose_and_duplicate_nothing(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic(2)
        restarted = False

        async def trouble() -> None:
            nonlocal restarted
            for _ in range(target.restarts):
                await asyncio.sleep(0.15)
                await target.stop()
                await asyncio.sleep(0.1)
                await target.start()
            restarted = True

        async with producer(target, batch_size=300, linger_ms=1) as ours:
            troubled = asyncio.create_task(trouble())
            acknowledged: list[Ack] = []
            while not restarted or len(acknowledged) < 3000:
                number = len(acknowledged)
                acknowledged.append(await ours.send(topic, b"%d" % number, partition=number % 2))
                if number % 10 == 0:
                    await asyncio.sleep(0.003)
            await troubled
            await ours.flush()
            for number, ack in enumerate(acknowledged):
                # A duplicate batch whose offset the broker no longer knows has no offset.
                assert (await ack).offset in (number // 2, -1)
        sent = len(acknowledged)
        even, odd = await target.read(topic, 2)
        assert [int(record.value) for record in even] == [*range(0, sent, 2)]
        assert [int(record.value) for record in odd] == [*range(1, sent, 2)]

    judge(scenario)


def test_lost_responses_duplicate_nothing(judge: Judge) -> None:
    """Connections are cut repeatedly while records are in flight."""

    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic()
        network = CuttableNetwork()
        async with producer(target, network=network, batch_size=200, linger_ms=0) as ours:
            cuts, number = 0, 0
            while cuts < 12:
                await ours.send(topic, b"%d" % number)
                number += 1
                await asyncio.sleep(0.0002)
                cuts += network.cut()
        [records] = await target.read(topic)
        assert [int(record.value) for record in records] == [*range(number)]

    judge(scenario)


def test_refused_record_does_not_affect_the_others(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic(settings={"max.message.bytes": 1000})
        async with producer(target, batch_size=0) as ours:
            fits, large, behind = [await ours.send(topic, bytes(size)) for size in (100, 2000, 200)]
            assert (await fits).offset == 0
            with pytest.raises(RequestError) as refused:
                await large
            assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
            assert (await behind).offset == 1

    judge(scenario)


def test_unhandled_loss_is_raised_at_the_end(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic(settings={"max.message.bytes": 1000})
        with pytest.raises(RequestError) as lost:
            async with producer(target) as ours:
                await ours.send(topic, bytes(2000))
        assert lost.value.code is ErrorCode.MESSAGE_TOO_LARGE

    judge(scenario)


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_large_batch_is_split_and_a_large_record_fails(
    judge: Judge, codec: str, idempotent: bool
) -> None:
    """Random sizes, some above the topic's limit, in batches far above it; five in flight."""

    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic(settings={"max.message.bytes": 2000})
        random = Random(6)
        sizes = [random.choice((10, 100, 500, 5000)) for _ in range(600)]
        sizes[0] = 5000
        async with producer(
            target,
            batch_size=30_000,
            linger_ms=0,
            compression_type=codec,
            enable_idempotence=idempotent,
            max_in_flight_requests_per_connection=5 if idempotent else 1,
        ) as ours:
            acks: list[Ack] = []
            for number, size in enumerate(sizes):
                value = b"%d " % number + random.randbytes(size)
                acks.append(await ours.send(topic, value, headers=[("n", b"%d" % number)]))
            waiting = asyncio.create_task(_offset(acks[-1]))
            await asyncio.sleep(0)
            places: list[int] = []
            written: list[int] = []
            for number, ack in enumerate(acks):
                if sizes[number] == 5000:
                    with pytest.raises(RequestError) as refused:
                        await ack
                    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
                else:
                    places.append((await ack).offset)
                    written.append(number)
                assert ack.done
            assert await waiting in (places[-1], None)
            metrics = ours.metrics()
            assert metrics.batch_split_total > 0
            assert metrics.record_error_total == sizes.count(5000)
            assert metrics.record_send_total == len(written)
            assert metrics.buffer_available_bytes == metrics.buffer_total_bytes
        assert places == [*range(len(written))]
        [records] = await target.read(topic)
        assert [int(record.value.split()[0]) for record in records] == written
        assert [record.headers for record in records] == [(("n", b"%d" % n),) for n in written]

    judge(scenario)


async def _offset(ack: Ack) -> int | None:
    try:
        return (await ack).offset
    except RequestError:
        return None


def test_large_batch_with_distant_timestamps_is_split(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic(settings={"max.message.bytes": 300})
        times = [10**12, 5, 10**12 + 10**11, 7, 10**12 + 1] * 3
        async with producer(target, batch_size=100_000, linger_ms=50) as ours:
            acks = [await ours.send(topic, bytes(90), timestamp_ms=time_ms) for time_ms in times]
            assert [(await ack).offset for ack in acks] == [*range(15)]
        [records] = await target.read(topic)
        assert [record.timestamp for record in records] == times

    judge(scenario)


def test_send_many_keeps_the_order(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic()
        values = [b"%d" % n * (n % 50) or None for n in range(3000)]
        async with producer(target, linger_ms=100_000, batch_size=1000) as ours:
            acks = await ours.send_many(topic, iter(values), key=b"key")
            await ours.flush(30)
            assert [(await ack).offset for ack in acks] == [*range(3000)]
            assert await ours.send_many(topic, []) == []
        [records] = await target.read(topic)
        assert [record.value for record in records] == values
        assert {record.key for record in records} == {b"key"}

    judge(scenario)


def test_send_many_without_a_key_fills_partition_after_partition(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic(4)
        async with producer(target, batch_size=1000, linger_ms=0) as ours:
            acks = await ours.send_many(topic, [b"%d" % n for n in range(3000)])
            places = [await ack for ack in acks]
        found = await target.read(topic, 4)
        assert all(len(records) > 100 for records in found)
        for number, place in enumerate(places):
            assert found[place.partition][place.offset].value == b"%d" % number
        switches = sum(one.partition != other.partition for one, other in pairwise(places))
        assert switches < 3000 / 30  # per batch and not per record

    judge(scenario)


@dataclass
class Order:
    id: int
    what: str


def encode(topic: str, value: str) -> bytes:
    return value.encode()


def test_keys_and_values_are_serialized(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic()
        async with Producer(
            bootstrap_servers=target.bootstrap,
            key_serializer=STRING,
            value_serializer=json_of(Order),
        ) as ours:
            await ours.send(topic, Order(1, "tea"), key="køb")
            await ours.send_many(topic, [Order(2, "milk"), None], key="many")
        async with Producer(
            bootstrap_servers=target.bootstrap,
            key_serializer=LONG,
            value_serializer=encode,
        ) as theirs:
            await theirs.send(topic, "text", key=7)
            with pytest.raises(SerializationFailed, match=f"value .* '{topic}'"):
                await theirs.send(topic, 5, key=7)  # pyright: ignore[reportArgumentType]
            with pytest.raises(SerializationFailed, match="key"):
                await theirs.send_many(topic, ["a"], key=1 << 64)
        [records] = await target.read(topic)
        assert [(record.key, record.value) for record in records] == [
            ("køb".encode(), b'{"id":1,"what":"tea"}'),
            (b"many", b'{"id":2,"what":"milk"}'),
            (b"many", None),
            ((7).to_bytes(8, "big"), b"text"),
        ]

    judge(scenario)


def test_metrics_count_the_traffic(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic()
        async with producer(target, batch_size=1000, linger_ms=0) as ours:
            before = ours.metrics()
            assert (before.record_send_total, before.request_total) == (0, 0)
            assert isnan(before.request_latency_avg)
            await ours.send_many(topic, [bytes(100)] * 500)
            assert ours.metrics().buffer_available_bytes < before.buffer_available_bytes
            await ours.flush()
            metrics = ours.metrics()
            assert metrics.record_send_total == 500
            assert metrics.byte_total > 50_000
            assert metrics.batch_total == round(metrics.byte_total / metrics.batch_size_avg) > 50
            assert 0 < metrics.request_total <= metrics.batch_total
            assert 0 < metrics.request_latency_avg <= metrics.request_latency_max < 60_000
            assert 0 <= metrics.record_queue_time_avg <= metrics.record_queue_time_max < 60_000
            assert metrics.records_per_request_avg == 500 / metrics.request_total
            assert metrics.buffer_available_bytes == metrics.buffer_total_bytes == 33_554_432
            for none in ("record_error_total", "record_retry_total", "batch_split_total"):
                assert getattr(metrics, none) == 0
            assert (metrics.requests_in_flight, metrics.waiting_threads) == (0, 0)
            assert replace(before) == before  # it did not change in the meantime

    judge(scenario)
