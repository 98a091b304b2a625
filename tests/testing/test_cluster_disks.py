"""Full and failed disks in a cluster of three: other brokers take over (rule C6)."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from ottla import Admin, NewTopic, Producer
from ottla.broker import replica_roles, topics
from ottla.cluster.image import PartitionState
from ottla.errors import ErrorCode, RequestError
from ottla.ids import NO_BROKER
from ottla.testing import Cluster
from ottla.testing.cluster import ClusterBroker

TOPIC = "orders"


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())


@pytest.fixture(autouse=True)
def fast_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (replica_roles, topics):
        monkeypatch.setattr(module, "RETRY_SECONDS", 0.05)


@asynccontextmanager
async def producer(cluster: Cluster, **config: object) -> AsyncGenerator[Producer[bytes, bytes]]:
    given = {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", **config}
    async with Producer(given) as client:
        yield client


async def send(client: Producer[bytes, bytes], value: bytes, partition: int = 0) -> None:
    future = await client.send(TOPIC, value, partition=partition)
    await client.flush()
    await future


async def create(cluster: Cluster, partitions: int = 1, replicas: int = 3) -> None:
    async with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        await admin.create_topics([NewTopic(TOPIC, partitions, replicas)])
    await cluster.settled()


def state(cluster: Cluster, partition: int = 0, topic: str = TOPIC) -> PartitionState:
    controller = cluster.controller
    assert controller is not None
    image = controller.image
    assert image is not None
    found = image.state(topic, partition)
    assert found is not None
    return found


def leader(cluster: Cluster, partition: int = 0) -> ClusterBroker:
    found = cluster.leader(TOPIC, partition)
    assert found is not None
    return found


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def test_c6_full_leader_hands_over_and_returns() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=3) as cluster, producer(cluster) as client:
            await create(cluster)
            await send(client, b"0")
            before = leader(cluster)
            with before.disk_full():
                await send(client, b"1")  # the client retries at the next leader
                after = leader(cluster)
                assert after is not before
                assert before.id not in state(cluster).in_sync
                await send(client, b"2")
            await cluster.settled()
            assert len(state(cluster).in_sync) == 3
            assert leader(cluster) is after
            await send(client, b"3")

    run(scenario)


def test_c6_full_leader_of_one_replica_stays_and_refuses() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=3) as cluster:
            await create(cluster, replicas=1)
            before = leader(cluster)
            epoch = state(cluster).leader_epoch
            async with producer(
                cluster, **{"delivery.timeout.ms": 300, "request.timeout.ms": 200}
            ) as client:
                with before.disk_full():
                    with pytest.raises(RequestError) as raised:
                        await send(client, b"0")
                    assert raised.value.code in (
                        ErrorCode.KAFKA_STORAGE_ERROR,
                        ErrorCode.REQUEST_TIMED_OUT,
                    )
                await send(client, b"1")
            assert leader(cluster) is before
            assert state(cluster).leader_epoch == epoch

    run(scenario)


def test_c6_full_follower_leaves_the_isr_and_returns() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=3) as cluster, producer(cluster) as client:
            await create(cluster)
            before = leader(cluster)
            follower = next(one for one in cluster.brokers if one is not before)
            with follower.disk_full():
                # It leaves at once: nobody waits for replica.lag.time.max.ms, which is 30 s.
                await send(client, b"0")
                assert follower.id not in state(cluster).in_sync
                assert leader(cluster) is before
            await cluster.settled()

    run(scenario)


def test_c6_new_topic_is_led_by_a_broker_with_space() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=3) as cluster, producer(cluster) as client:
            full = cluster.brokers[0]
            with full.disk_full():
                async with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
                    await admin.create_topics([NewTopic(TOPIC, 3, 3)])
                for partition in range(3):
                    await send(client, b"x", partition)
                    assert leader(cluster, partition) is not full
                assert not (full.directories[0] / f"{TOPIC}-0").exists()
            await cluster.settled()  # the full broker creates its logs when it has space

    run(scenario)


def test_c6_failed_directory_moves_its_leaders() -> None:
    async def scenario() -> None:
        async with (
            Cluster(brokers=3, directories=2) as cluster,
            producer(cluster) as client,
        ):
            await create(cluster, partitions=6)
            broker = leader(cluster)
            path = next(one for one in broker.directories if (one / f"{TOPIC}-0").exists())
            inside = [number for number in range(6) if (path / f"{TOPIC}-{number}").exists()]
            assert len(inside) == 3
            with broker.directory_failed(broker.directories.index(path)):
                for partition in range(6):
                    await send(client, b"x", partition)
                for partition in inside:
                    await until(lambda n=partition: broker.id not in state(cluster, n).in_sync)
                    assert leader(cluster, partition) is not broker
                    for other in cluster.brokers:
                        image = other.image
                        assert image is not None
                        await until(lambda one=other, n=partition: offline(one, n) == [broker.id])
                for partition in {*range(6)} - {*inside}:
                    assert broker.id in state(cluster, partition).in_sync
                    assert offline(broker, partition) == []
                assert broker.running
                # A new controller hears of the failed directory, too.
                controller = cluster.controller
                assert controller is not None
                await controller.expire_session()
                await until(lambda: cluster.controller not in (None, controller))
                await until(lambda: offline(broker, inside[0]) == [broker.id])
                if controller is not broker:
                    await until(lambda: controller.id in state(cluster, inside[0]).in_sync)
                await broker.stop()
            await broker.start()
            await cluster.settled()
            assert offline(broker, inside[0]) == []

    def offline(broker: ClusterBroker, partition: int) -> list[int]:
        image = broker.image
        assert image is not None
        found = image.state(TOPIC, partition)
        assert found is not None
        return [*image.offline_replicas(TOPIC, partition, found)]

    run(scenario)


def test_c6_only_replica_in_a_failed_directory_is_offline() -> None:
    """As in Kafka: the partition has no leader until the broker restarts with the directory."""

    async def scenario() -> None:
        servers = "bootstrap.servers"
        async with Cluster(brokers=1, directories=2) as cluster:
            await create(cluster, partitions=2, replicas=1)
            (broker,) = cluster.brokers
            number = next(n for n in range(2) if (broker.directories[n] / f"{TOPIC}-0").exists())
            async with producer(cluster) as client:
                await send(client, b"before")
            with broker.directory_failed(number):
                async with producer(cluster, retries=0) as client:
                    with pytest.raises(RequestError):
                        await send(client, b"lost")
                    await until(lambda: state(cluster).leader == NO_BROKER)
                    await send(client, b"x", 1)  # the other directory is online
                assert (state(cluster).in_sync, state(cluster).elr) == ((), (broker.id,))
                async with Admin({servers: cluster.bootstrap_servers}) as admin:
                    await until(lambda: broker.image is not None and is_offline(broker))
                    described = (await admin.describe_topics([TOPIC]))[TOPIC].partitions[0]
                    assert (described.leader, described.offline) == (None, (broker.id,))
                await broker.stop()
            await broker.start()
            await cluster.settled()
            assert state(cluster).in_sync == (broker.id,)
            async with producer(cluster) as client:
                future = await client.send(TOPIC, b"after", partition=0)
                await client.flush()
                assert (await future).offset == 1

    def is_offline(broker: ClusterBroker) -> bool:
        image = broker.image
        found = None if image is None else image.state(TOPIC, 0)
        return found is not None and found.leader == NO_BROKER

    run(scenario)


def test_c6_broker_exits_when_its_last_directory_has_failed() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=3) as cluster, producer(cluster) as client:
            await create(cluster)
            broker = leader(cluster)
            with broker.directory_failed():
                await send(client, b"x")
                await until(lambda: not broker.running)
                assert leader(cluster) is not broker
                await send(client, b"y")
                await until(lambda: broker.id not in state(cluster).in_sync)
            await broker.start()
            await cluster.settled()

    run(scenario)
