"""A throttled reassignment keeps its rate on whole brokers, in virtual time (KIP-73)."""

import asyncio

import pytest

from ottla.client.admin.administrator import Admin
from ottla.client.admin.configs import ConfigResource
from ottla.client.admin.topics import NewTopic
from ottla.client.producer.producer import Producer
from ottla.testing.simulation import PORT, SimulatedBroker, Simulation, simulate

BYTES_MAX = 20_000  # per second
BATCHES = 40
BATCH_BYTES = 5_000


def is_copied(brokers: list[SimulatedBroker]) -> bool:
    """Whether broker 2 is in the ISR, as broker 1 knows."""
    node = brokers[0].running
    image = None if node is None else node.image
    state = None if image is None else image.state("t", 0)
    return state is not None and 2 in state.in_sync


@pytest.mark.parametrize("side", ["leader", "follower", "none"])
def test_reassignment_keeps_its_rate(side: str) -> None:
    async def program(world: Simulation) -> None:
        fetches = f"replica.fetch.max.bytes={BATCH_BYTES + 1000}"
        brokers = await world.cluster(2, fetches, session_timeout_s=4.0)
        for one in brokers:
            await one.start()
        config: dict[str, object] = {"bootstrap.servers": f"{brokers[0].address}:{PORT}"}
        host = world.network.host(address="10.0.1.1")
        async with Admin(config, network=host, clock=world.clock) as admin:
            await admin.create_topics([NewTopic("t", replicas={0: (1,)})])
            async with Producer(config, network=host, clock=world.clock) as producer:
                for _ in range(BATCHES):
                    await (await producer.send("t", bytes(BATCH_BYTES), partition=0))
            if side != "none":
                broker = 1 if side == "leader" else 2
                await admin.alter_configs(
                    {
                        ConfigResource.broker(broker): {
                            f"{side}.replication.throttled.rate": str(BYTES_MAX)
                        },
                        ConfigResource.topic("t"): {
                            f"{side}.replication.throttled.replicas": f"0:{broker}"
                        },
                    }
                )
            began_s = world.clock.elapsed_s()
            await admin.alter_reassignments({("t", 0): (1, 2)})
            async with asyncio.timeout(120):
                while not is_copied(brokers):
                    await world.clock.sleep(0.1)
        took_s = world.clock.elapsed_s() - began_s
        if side == "none":
            assert took_s < 3
        else:
            # The first window lets a burst pass, and the rate of the last windows may pass the
            # limit by one response.
            least_s = BATCHES * BATCH_BYTES / BYTES_MAX
            assert 0.7 * least_s < took_s < 2 * least_s
        for one in brokers:
            one.kill()

    simulate(1, program)
