"""A cluster of three brokers in one process, with kills, and clients that notice nothing else."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from ottla import Admin, Consumer, NewTopic, Producer
from ottla.ids import BrokerId
from ottla.testing import Cluster, ClusterBroker

TOPIC = "orders"


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario()

    # asyncio of Python 3.11 leaves the socket of a refused connection to the garbage collector.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())


def producer(cluster: Cluster) -> Producer[bytes, bytes]:
    return Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})


async def send(client: Producer[bytes, bytes], *numbers: int) -> None:
    """Produce records with these numbers, and wait for the acknowledgements."""
    for number in numbers:
        await client.send(TOPIC, b"%d" % number)
    await client.flush()


async def first_leader(cluster: Cluster, client: Producer[bytes, bytes]) -> ClusterBroker:
    """Produce a record, and return the leader when all replicas are in sync."""
    await send(client, 0)
    await cluster.settled()
    leader = cluster.leader(TOPIC, 0)
    assert leader is not None
    return leader


async def values(cluster: Cluster, count: int) -> list[bytes | None]:
    config = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "auto.offset.reset": "earliest",
        "group.id": "readers",
    }
    found: list[bytes | None] = []
    async with Consumer(config) as consumer:
        consumer.subscribe(TOPIC)
        while len(found) < count:
            found += [record.value for record in await consumer.poll(1)]
    return found


@pytest.mark.parametrize("killed", ["leader", "controller", "follower"])
def test_records_survive_a_kill(killed: str) -> None:
    async def scenario() -> None:
        async with Cluster(brokers=3) as cluster, producer(cluster) as client:
            await send(client, *range(10))
            await cluster.settled()
            leader, controller = cluster.leader(TOPIC, 0), cluster.controller
            assert leader is not None
            assert controller is not None
            others = [one for one in cluster.brokers if one not in (leader, controller)]
            victim = {"leader": leader, "controller": controller, "follower": others[0]}[killed]
            await victim.kill()
            assert not victim.running
            await send(client, *range(10, 20))
            assert cluster.leader(TOPIC, 0) is not None
            await victim.start()
            await cluster.settled()
            assert await values(cluster, 20) == [b"%d" % number for number in range(20)]

    run(scenario)


def test_settled_names_what_is_missing() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=3) as cluster, producer(cluster) as client:
            await send(client, 0)
            await cluster.settled()
            for broker in cluster.brokers:
                await broker.stop()
            with pytest.raises(TimeoutError, match="there is no controller"):
                await cluster.settled(timeout=0)

    run(scenario)


def test_b11_rolling_restart_hands_leaderships_over() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=3) as cluster, producer(cluster) as client:
            await send(client, 0)
            for number, broker in enumerate(cluster.brokers, 1):
                await cluster.settled()
                await broker.stop()
                # Another broker leads before this one has stopped: nobody waits for its session.
                leader = cluster.leader(TOPIC, 0)
                assert leader is not None
                assert leader is not broker
                await send(client, number)
                await broker.start()
            await cluster.settled()
            assert await values(cluster, 4) == [b"%d" % number for number in range(4)]

    run(scenario)


def test_any_broker_carries_out_administrative_requests() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=3) as cluster:
            for broker in cluster.brokers:
                name = f"made-by-{broker.id}"
                async with Admin({"bootstrap.servers": broker.address}) as admin:
                    await admin.create_topics([NewTopic(name, partitions=2)])
                await cluster.settled()
                for other in cluster.brokers:
                    image = other.image
                    assert image is not None
                    assert len(image.topics[name].partitions) == 2
                    assert {len(one.replicas) for one in image.topics[name].partitions} == {3}

    run(scenario)


def test_b8_broker_registers_again_after_its_session_expired() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=3) as cluster, producer(cluster) as client:
            await send(client, 0)
            await cluster.settled()
            for number, broker in enumerate(cluster.brokers, 1):
                await broker.expire_session()
                await send(client, number)
                await cluster.settled()
            assert await values(cluster, 4) == [b"%d" % number for number in range(4)]

    run(scenario)


def isr(cluster: Cluster) -> set[int]:
    leader = cluster.leader(TOPIC, 0)
    image = None if leader is None else leader.image
    state = None if image is None else image.state(TOPIC, 0)
    return set() if state is None else {*state.in_sync}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


def test_partitioned_follower_leaves_the_isr_and_returns() -> None:
    async def scenario() -> None:
        settings = {"replica.lag.time.max.ms": 300, "replica.fetch.wait.max.ms": 100}
        async with Cluster(brokers=3, settings=settings) as cluster, producer(cluster) as client:
            leader = await first_leader(cluster, client)
            # The leader has to reach the controller, which shrinks the ISR.
            follower = next(
                one for one in cluster.brokers if one not in (leader, cluster.controller)
            )
            (other,) = {one.id for one in cluster.brokers} - {leader.id, follower.id}
            with cluster.partition(leader, follower):
                await send(client, 1)
                assert isr(cluster) == {leader.id, other}
                assert cluster.leader(TOPIC, 0) is leader
            await cluster.settled()
            assert isr(cluster) == {1, 2, 3}
            assert await values(cluster, 2) == [b"0", b"1"]

    run(scenario)


def test_paused_leader_is_replaced_and_follows_afterwards() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=3) as cluster, producer(cluster) as client:
            leader = await first_leader(cluster, client)
            with leader.pause():
                await until(lambda: cluster.leader(TOPIC, 0) not in (leader, None))
                # A client that asks another broker does not wait for the paused one.
                other = next(one for one in cluster.brokers if one is not leader)
                config = {"bootstrap.servers": other.address, "acks": "all"}
                async with Producer[bytes, bytes](config) as second:
                    await send(second, 1)
                assert leader.id not in isr(cluster)
            await cluster.settled()
            assert isr(cluster) == {1, 2, 3}
            assert await values(cluster, 2) == [b"0", b"1"]

    run(scenario)


def test_short_pause_costs_no_leadership() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=3) as cluster, producer(cluster) as client:
            leader = await first_leader(cluster, client)
            image = leader.image
            assert image is not None
            epoch = image.brokers[BrokerId(leader.id)].epoch
            leader.pause().end()
            await send(client, 1)
            image = leader.image
            assert image is not None
            assert image.brokers[BrokerId(leader.id)].epoch == epoch
            assert cluster.leader(TOPIC, 0) is leader

    run(scenario)


def test_slow_broker_delays_its_responses() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=1) as cluster, producer(cluster) as client:
            await send(client, 0)
            with cluster.slow(cluster.brokers[0], 200):
                began_s = asyncio.get_running_loop().time()
                await send(client, 1)
                assert asyncio.get_running_loop().time() - began_s > 0.19
            assert await values(cluster, 2) == [b"0", b"1"]

    run(scenario)
