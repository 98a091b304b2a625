"""Lost sequence numbers on Ottla and on Kafka: the producer bumps its epoch and loses nothing.

Another client writes with the producer's identity, so the broker expects another number; or a batch
expires and may or may not have been written.
"""

import pytest

from client.both_brokers import Judge, TargetBroker, judge
from client.scenario_runner import FAST
from ottla.client.producer.producer import Producer
from ottla.errors import ErrorCode, RequestError
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.records import BatchBuilder, BatchHeader, Compression, batches
from proxy import Detour

__all__ = ["judge"]  # a fixture

BY_NAME = 12  # the newest versions of Fetch and Produce that use topic names


async def last_batch(target: TargetBroker, topic: str) -> BatchHeader:
    one = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=topic, partitions=[one])],
    )
    async with target.channel() as channel:
        answer = await channel.ask(request, FetchResponse, 30, version=BY_NAME)
    records = answer.responses[0].partitions[0].records
    assert records
    return [batch.header for batch in batches(records)][-1]


async def write_under_its_identity(target: TargetBroker, topic: str, values: list[bytes]) -> None:
    last = await last_batch(target, topic)
    builder = BatchBuilder(1 << 16, Compression.NONE)
    for value in values:
        assert builder.append(0, None, value, ())
    records = builder.build(
        producer_id=last.producer_id,
        producer_epoch=last.producer_epoch,
        base_sequence=last.last_sequence + 1,
    )
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=0, records=records)]
    )
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[data])
    async with target.channel() as channel:
        answer = await channel.ask(request, ProduceResponse, 30, version=BY_NAME)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def test_unexpected_sequence_number_costs_an_epoch(judge: Judge) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic()
        settings = {**FAST, "batch.size": 1, "linger.ms": 0}
        async with Producer(settings, bootstrap_servers=target.bootstrap) as ours:
            for number in range(3):
                await (await ours.send(topic, b"%d" % number))
            # More than the batches in flight: none of those has the expected number.
            await write_under_its_identity(target, topic, [b"x"] * 20)
            acks = [await ours.send(topic, b"%d" % number) for number in range(3, 20)]
            offsets = [(await ack).offset for ack in acks]
        assert offsets == [*range(23, 40)]
        [records] = await target.read(topic)
        expected = [b"0", b"1", b"2", *[b"x"] * 20, *(b"%d" % n for n in range(3, 20))]
        assert [record.value for record in records] == expected
        assert (await last_batch(target, topic)).producer_epoch == 1

    judge(scenario)


def test_expired_batch_costs_an_epoch_and_no_later_record(
    judge: Judge,
) -> None:
    async def scenario(target: TargetBroker) -> None:
        topic = await target.topic()
        settings = {
            **FAST,
            "batch.size": 1,
            "linger.ms": 0,
            "request.timeout.ms": 1000,
            "delivery.timeout.ms": 2500,
        }
        async with (
            Detour() as detour,
            Producer(settings, bootstrap_servers=target.bootstrap, network=detour) as ours,
        ):
            for number in range(3):
                await (await ours.send(topic, b"%d" % number))
            detour.trouble.is_mute = (
                True  # the broker receives the batches, and its responses are lost
            )
            late = [await ours.send(topic, b"%d" % number) for number in range(3, 8)]
            for ack in late:
                with pytest.raises(RequestError):
                    await ack
            detour.trouble.is_mute = False
            detour.trouble.reset()
            for number in range(8, 20):
                await (await ours.send(topic, b"%d" % number))
        [records] = await target.read(topic)
        values = [int(record.value) for record in records]
        assert values == sorted(set(values))
        assert {*range(3), *range(8, 20)} <= {*values}
        assert (await last_batch(target, topic)).producer_epoch == 1

    judge(scenario)
