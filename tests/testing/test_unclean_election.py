"""A real consumer through an unclean election: it reports the truncation and skips nothing."""

import asyncio

from ottla import Admin, Consumer, NewTopic
from ottla.client.consumer.position_resolver import Truncated
from ottla.testing import Cluster
from testing.test_cluster_disks import TOPIC, producer, run, send, state, until

BEFORE, LOST, AFTER = 6, 4, 3  # records


async def read(consumer: Consumer[bytes, bytes], count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while len(found) < count:
        found += [record.value for record in await consumer.poll(0.2)]
    return found


def values(what: str, count: int) -> list[bytes]:
    return [f"{what} {number}".encode() for number in range(count)]


def test_a12_consumer_reports_truncation_and_skips_nothing() -> None:
    async def scenario() -> None:
        settings = {"unclean.leader.election.enable": "true"}
        async with Cluster(brokers=2, settings=settings) as cluster:
            config = {"bootstrap.servers": cluster.bootstrap_servers}
            async with Admin(config) as admin:
                await admin.create_topics([NewTopic(TOPIC, replicas={0: [1, 2]})])
            await cluster.settled()
            leader, follower = cluster.broker(1), cluster.broker(2)
            strict = Consumer[bytes, bytes](config | {"auto.offset.reset": "none"})
            lenient = Consumer[bytes, bytes](config | {"auto.offset.reset": "latest"})
            async with strict, lenient:
                for consumer in (strict, lenient):
                    consumer.assign((TOPIC, 0))
                    consumer.seek((TOPIC, 0), 0)
                async with producer(cluster) as client:
                    for value in values("kept", BEFORE):
                        await send(client, value)
                    await cluster.settled()
                    await follower.kill()
                    await until(
                        lambda: cluster.controller is leader and state(cluster).in_sync == (1,)
                    )
                    for value in values("lost", LOST):
                        await send(client, value)
                expected = values("kept", BEFORE) + values("lost", LOST)
                for consumer in (strict, lenient):
                    assert await read(consumer, BEFORE + LOST) == expected
                await leader.kill()
                await follower.start()
                await until(lambda: cluster.leader(TOPIC, 0) is follower)
                async with producer(cluster) as client:
                    for value in values("new", AFTER):
                        await send(client, value)
                assert await read(lenient, AFTER) == values("new", AFTER)
                error = None
                while error is None:
                    try:
                        assert await strict.poll(0.2) == []
                    except Truncated as truncated:
                        error = truncated
                assert (error.position, error.end_offset) == (BEFORE + LOST, BEFORE)
                await asyncio.sleep(0)

    run(scenario)
