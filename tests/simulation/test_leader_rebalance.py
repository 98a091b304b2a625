"""Leaderships return to the preferred replicas, in virtual time (auto.leader.rebalance.enable)."""

import asyncio
from collections.abc import Callable

import pytest

from ottla.client.admin.administrator import Admin
from ottla.client.admin.topics import NewTopic
from ottla.ids import BrokerId
from ottla.testing.simulation import PORT, SimulatedBroker, Simulation, simulate

INTERVAL_S = 20
PARTITIONS = 4


def leaders(brokers: list[SimulatedBroker]) -> list[BrokerId]:
    """Return the leaders that the second broker knows."""
    node = brokers[1].running
    image = None if node is None else node.image
    topic = None if image is None else image.topics.get("t")
    return [] if topic is None else [one.leader for one in topic.partitions]


async def until(world: Simulation, condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await world.clock.sleep(0.1)


@pytest.mark.parametrize(
    ("settings", "moves_back"),
    [
        ((), True),
        (("auto.leader.rebalance.enable=false",), False),
        (("leader.imbalance.per.broker.percentage=50",), True),
        (("leader.imbalance.per.broker.percentage=100",), False),
    ],
    ids=["default", "disabled", "above-the-percentage", "below-the-percentage"],
)
def test_leaderships_move_back_after_the_interval(
    settings: tuple[str, ...], moves_back: bool
) -> None:
    async def program(world: Simulation) -> None:
        interval = f"leader.imbalance.check.interval.seconds={INTERVAL_S}"
        brokers = await world.cluster(2, interval, *settings, session_timeout_s=4.0)
        for one in brokers:
            await one.start()
        config = {"bootstrap.servers": f"{brokers[1].address}:{PORT}"}
        host = world.network.host(address="10.0.1.1")
        async with Admin(config, network=host, clock=world.clock) as admin:
            replicas = dict.fromkeys(range(PARTITIONS), (1, 2))
            await admin.create_topics([NewTopic("t", replicas=replicas)])
        await until(world, lambda: leaders(brokers) == [1] * PARTITIONS)
        brokers[0].kill()
        await until(world, lambda: leaders(brokers) == [2] * PARTITIONS)
        await brokers[0].start()
        if moves_back:
            await until(world, lambda: leaders(brokers) == [1] * PARTITIONS)
        else:
            await world.clock.sleep(2 * INTERVAL_S)
            assert leaders(brokers) == [2] * PARTITIONS
        for one in brokers:
            one.kill()

    simulate(1, program)
