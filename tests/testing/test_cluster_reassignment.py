"""Partitions move between the brokers of a cluster while a client produces (rule A15)."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from ottla import Admin, NewTopic
from ottla.cluster.image import PartitionState
from ottla.testing import Cluster
from testing.test_replicated_cluster import TOPIC, producer, run, until, values

KEY = (TOPIC, 0)
PAUSE_S = 0.002  # between two records


class Sent:
    """How many numbers were sent and acknowledged, in order."""

    count = 0


@asynccontextmanager
async def numbers(cluster: Cluster) -> AsyncGenerator[Sent]:
    """Produce numbers until the end of the block, where all of them are acknowledged."""
    sent, is_over = Sent(), asyncio.Event()

    async def produce() -> None:
        async with producer(cluster) as client:
            while not is_over.is_set():
                await client.send(TOPIC, b"%d" % sent.count, partition=0)
                sent.count += 1
                await asyncio.sleep(PAUSE_S)
            await client.flush()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(produce())
        await until(lambda: sent.count > 10)
        yield sent
        is_over.set()


def admin(cluster: Cluster) -> Admin:
    return Admin({"bootstrap.servers": cluster.bootstrap_servers})


async def create(cluster: Cluster, ours: Admin, *replicas: int) -> None:
    await ours.create_topics([NewTopic(TOPIC, replicas={0: replicas})])
    await cluster.settled()


def state(cluster: Cluster) -> PartitionState:
    controller = cluster.controller
    image = None if controller is None else controller.image
    found = None if image is None else image.state(*KEY)
    assert found is not None
    return found


def hosts(cluster: Cluster) -> list[int]:
    """Return the brokers that have a log of the partition."""
    return [one.id for one in cluster.brokers if (one.directories[0] / f"{TOPIC}-0").exists()]


async def all_numbers(cluster: Cluster, sent: Sent) -> bool:
    return await values(cluster, sent.count) == [b"%d" % one for one in range(sent.count)]


def test_a15_partition_moves_under_a_producing_client() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=4) as cluster, admin(cluster) as ours:
            await create(cluster, ours, 1, 2)
            async with numbers(cluster) as sent:
                (await ours.alter_reassignments({KEY: [3, 4]})).or_raise()
                await cluster.settled()
                assert await ours.list_reassignments() == {}
                assert (state(cluster).replicas, state(cluster).leader) == ((3, 4), 3)
                assert hosts(cluster) == [3, 4]
                # A replica that was removed returns, and the replication factor grows.
                (await ours.alter_reassignments({KEY: [1, 4, 3]})).or_raise()
                await cluster.settled()
                assert hosts(cluster) == [1, 3, 4]
                assert (await ours.elect_leaders(partitions=[KEY]))[KEY]
                (await ours.alter_reassignments({KEY: [1]})).or_raise()
                await cluster.settled()
                assert (state(cluster).replicas, hosts(cluster)) == ((1,), [1])
            assert await all_numbers(cluster, sent)

    run(scenario)


def test_a15_next_controller_continues_a_reassignment() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=4) as cluster, admin(cluster) as ours:
            controller = cluster.controller
            assert controller is not None
            first, second, third = (one for one in cluster.brokers if one is not controller)
            await create(cluster, ours, first.id, second.id)
            async with numbers(cluster) as sent:
                with cluster.partition(first, third):  # it cannot fetch from the leader
                    (await ours.alter_reassignments({KEY: [second.id, third.id]})).or_raise()
                    await controller.kill()
                    await until(lambda: cluster.controller not in (controller, None))
                    found = state(cluster)
                    assert found.replicas == (second.id, third.id, first.id)
                    assert (found.adding, found.removing) == ((third.id,), (first.id,))
                await cluster.settled()
                assert state(cluster).replicas == (second.id, third.id)
                assert hosts(cluster) == [second.id, third.id]
            assert await all_numbers(cluster, sent)

    run(scenario)


def test_new_partitions_have_the_factor_of_a_reassignments_target() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=3) as cluster, admin(cluster) as ours:
            first, second = (one for one in cluster.brokers if one is not cluster.controller)
            await create(cluster, ours, first.id)
            with cluster.partition(first, second):
                (await ours.alter_reassignments({KEY: [second.id]})).or_raise()
                (await ours.create_partitions({TOPIC: 2})).or_raise()
            await cluster.settled()
            image = cluster.brokers[0].image
            assert image is not None
            assert [len(one.replicas) for one in image.topics[TOPIC].partitions] == [1, 1]

    run(scenario)


def test_a15_cancelled_reassignment_leaves_no_trace() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=4) as cluster, admin(cluster) as ours:
            controller = cluster.controller
            assert controller is not None
            first, second, third = (one for one in cluster.brokers if one is not controller)
            await create(cluster, ours, first.id, second.id)
            async with numbers(cluster) as sent:
                with cluster.partition(first, third):
                    (await ours.alter_reassignments({KEY: [third.id]})).or_raise()
                    await until(lambda: third.id in hosts(cluster))
                    (await ours.alter_reassignments({KEY: None})).or_raise()
                    await cluster.settled()
                assert await ours.list_reassignments([KEY]) == {}
                assert state(cluster).replicas == (first.id, second.id)
                await until(lambda: hosts(cluster) == [first.id, second.id])
            assert await all_numbers(cluster, sent)

    run(scenario)
