"""Statements of the client guide that none of its examples shows."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import ottla.sync
from client.scenario_runner import FAST, run
from ottla import Admin, Consumer, NewTopic, Producer
from ottla.client.admin import ConfigResource
from ottla.client.partitioners import Partitions, RoundRobinPartitioner
from ottla.testing import Cluster, ClusterThread
from ottla.transport.failures import Disconnected


def at_a_broker(scenario: Callable[[dict[str, object]], Coroutine[Any, Any, None]]) -> None:
    async def around() -> None:
        async with Cluster(settings={"num.partitions": 3}) as cluster:
            await scenario({**FAST, "bootstrap.servers": cluster.bootstrap_servers})

    run(around())


def test_written_record_has_a_timestamp_if_the_broker_set_it() -> None:
    async def scenario(settings: dict[str, object]) -> None:
        async with Admin(settings) as admin, Producer(settings) as producer:
            topics = {"theirs": "CreateTime", "brokers": "LogAppendTime"}
            config = "message.timestamp.type"
            made = await admin.create_topics(
                NewTopic(name, 1, config={config: kind}) for name, kind in topics.items()
            )
            made.or_raise()
            for name, kind in topics.items():
                where = ConfigResource.topic(name)
                assert (await admin.describe_configs(where))[where][config].value == kind
            assert (await (await producer.send("theirs", b"v"))).timestamp_ms == -1
            written = await (await producer.send("brokers", b"v", timestamp_ms=5))
            assert written.timestamp_ms > 5
        async with Consumer({**settings, "auto.offset.reset": "earliest"}) as consumer:
            consumer.assign(("brokers", 0))
            assert (await consumer.poll(60))[0].timestamp_ms == written.timestamp_ms
        async with Producer(settings, acks=0) as producer:
            assert (await (await producer.send("brokers", b"v")))[2:] == (-1, -1)

    at_a_broker(scenario)


def test_close_fails_only_unflushed_records() -> None:
    async def scenario(settings: dict[str, object]) -> None:
        async with Producer(settings, linger_ms=60_000) as producer:
            flushed = await producer.send("t", b"1")
            await producer.flush()
            late = await producer.send("t", b"2")
            await producer.close()
            assert (await flushed).offset == 0
            with pytest.raises(Disconnected, match="closed before this record was written"):
                await late

    at_a_broker(scenario)


def failing(topic: str, key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
    assert topic == "t"
    assert (key, value) == (b"k", b"v")
    assert partitions == Partitions(3, (0, 1, 2))
    raise ZeroDivisionError


def test_partitioner_error_is_raised_by_send() -> None:
    async def scenario(settings: dict[str, object]) -> None:
        async with Producer(settings, partitioner=failing) as producer:
            with pytest.raises(ZeroDivisionError):
                await producer.send("t", b"v", key=b"k")
            assert (await (await producer.send("t", b"v", partition=2))).partition == 2

    at_a_broker(scenario)


def test_round_robin_alternates() -> None:
    """The first record of a batch once took two turns: one of two partitions got nothing."""

    async def scenario(settings: dict[str, object]) -> None:
        async with Admin(settings) as admin:
            await admin.create_topic("t", partitions=2)
        for linger_ms in (0, 60_000):
            async with Producer(
                settings, partitioner=RoundRobinPartitioner(), linger_ms=linger_ms
            ) as producer:
                acks = [await producer.send("t", b"v", key=b"k") for _ in range(4)]
                acks += await producer.send_many("t", [b"v"] * 4)
                await producer.flush()
                assert [(await ack).partition for ack in acks] == [0, 1] * 4

    at_a_broker(scenario)


def test_round_robin_alternates_in_the_sync_producer() -> None:
    with ClusterThread(settings={"num.partitions": 2}) as cluster:
        servers, turns = cluster.bootstrap_servers, RoundRobinPartitioner()
        with ottla.sync.Producer(bootstrap_servers=servers, partitioner=turns) as producer:
            for _ in range(3):  # with a batch per record, and with one batch for all
                acks = [producer.send("t", b"v", key=b"k") for _ in range(4)]
                assert [ack.result(60).partition for ack in acks] == [0, 1] * 2
            assert [producer.send("t", b"v").result(60).partition for _ in range(4)] == [0, 1] * 2


def test_partitioner_error_is_raised_by_the_sync_result() -> None:
    with ClusterThread(settings={"num.partitions": 3}) as cluster:
        servers = cluster.bootstrap_servers
        with ottla.sync.Producer(bootstrap_servers=servers, partitioner=failing) as producer:
            ack = producer.send("t", b"v", key=b"k")
            with pytest.raises(ZeroDivisionError):
                ack.result(60)


def test_failed_commit_block_is_read_again_after_a_seek() -> None:
    async def scenario(settings: dict[str, object]) -> None:
        async with Producer(settings) as producer:
            await producer.send_many("t", [b"1", b"2"], partition=0)
        ours = Consumer(
            {**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False},
            group_id="g",
        )
        async with ours:
            ours.assign(("t", 0))
            first = (await ours.poll(60))[0]
            with pytest.raises(ZeroDivisionError):
                async with ours.committing():
                    raise ZeroDivisionError
            assert [*(await ours.committed(first.topic_partition)).values()] == [None]
            ours.seek(first.topic_partition, first.offset)
            async with ours.committing():
                assert (await ours.poll(60))[0] == first
            # Records returned inside the block do not count: the block starts with those before it.
            ours.commit_soon({first.topic_partition: first.offset + 1})
        async with ours:
            [kept] = (await ours.committed(first.topic_partition)).values()
            assert kept is not None
            assert kept.offset == 1

    at_a_broker(scenario)
