"""Reading partitions below the consumer: columns with offsets, and stop offsets."""

import asyncio

from ottla import Consumer, Producer, TopicPartition
from ottla.ids import PartitionIndex
from ottla.testing import Cluster

EVENTS = TopicPartition("events", PartitionIndex(0))


def test_columns_are_read_up_to_the_stop_offset() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=1) as cluster:
            servers = cluster.bootstrap_servers
            async with Producer(bootstrap_servers=servers) as producer:
                for number in range(10):
                    await (await producer.send("events", b"%d" % number, partition=0))
            async with Consumer(bootstrap_servers=servers) as consumer:
                reader = consumer.partition_reader
                consumer.assign(EVENTS)
                consumer.seek(EVENTS, 2)
                reader.stop_at(EVENTS, 5)
                rows, next_offset = 0, 2
                while next_offset < 5:
                    found = await reader.columns(10)
                    assert found is not None
                    assert found.partition == EVENTS
                    assert [epoch for _, epoch in found.epochs] == [0] * len(found.epochs)
                    rows, next_offset = rows + found.columns.rows, found.next_offset
                assert rows == next_offset - 2
                assert reader.finished({EVENTS: 5}) == [EVENTS]
                assert reader.finished({EVENTS: 11}) == []
                assert await reader.columns(0.05) is None, "nothing is fetched after the stop"

    asyncio.run(scenario())


def test_missing_topic_is_the_reported_reason() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=1) as cluster:
            settings = {
                "bootstrap.servers": cluster.bootstrap_servers,
                "allow.auto.create.topics": "false",
            }
            async with Consumer(settings) as consumer:
                view = await consumer.refresh_metadata("nowhere")
                assert "nowhere" in view.topics
                gone = TopicPartition("nowhere", PartitionIndex(0))
                assert consumer.partition_reader.missing_reason(gone) is not None

    asyncio.run(scenario())
