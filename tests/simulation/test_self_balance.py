"""The controller balances the cluster by itself, in virtual time (ottla.balance.enable)."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from ottla.client.admin.administrator import Admin
from ottla.client.admin.configs import ConfigResource
from ottla.client.admin.topics import NewTopic
from ottla.client.producer.producer import Producer
from ottla.cluster.image import PartitionState, Topic
from ottla.cluster.reassignment import is_reassigning
from ottla.cluster.self_balance import observe
from ottla.testing.simulation import PORT, SimulatedBroker, Simulation, simulate

PARTITIONS: Final = 12
PARTITION_BYTES: Final = 20_000  # of each partition, in batches
RECORDS: Final = 10
THROTTLE: Final = PARTITION_BYTES // 20
CHECK_S, STABLE_S = 5, 10
SETTINGS: Final = (
    "ottla.balance.enable=true",
    f"ottla.balance.check.interval.ms={CHECK_S * 1000}",
    f"ottla.balance.stable.ms={STABLE_S * 1000}",
    "ottla.balance.partitions.max=2",
)
# Two replicas of each partition, evenly on the first three brokers.
REPLICAS: Final = {index: (1 + index % 3, 1 + (index + 1) % 3) for index in range(PARTITIONS)}


class World:
    """Four brokers of which three have started, and a topic with records."""

    def __init__(self, world: Simulation, brokers: list[SimulatedBroker]) -> None:
        self.clock = world.clock
        self.brokers = brokers
        self.config: dict[str, object] = {"bootstrap.servers": f"{brokers[0].address}:{PORT}"}
        self.host = world.network.host(address="10.0.1.1")

    @classmethod
    async def begin(cls, world: Simulation, *settings: str) -> "World":
        brokers = await world.cluster(4, *SETTINGS, *settings, session_timeout_s=4.0)
        for one in brokers[:3]:
            await one.start()
        made = cls(world, brokers)
        async with (
            made.admin() as admin,
            Producer(made.config, network=made.host, clock=made.clock) as producer,
        ):
            (await admin.create_topics([NewTopic("t", replicas=REPLICAS)])).or_raise()
            for index in range(PARTITIONS):
                for _ in range(RECORDS):
                    await (
                        await producer.send("t", bytes(PARTITION_BYTES // RECORDS), partition=index)
                    )
        return made

    def admin(self) -> Admin:
        return Admin(self.config, network=self.host, clock=self.clock)

    @property
    def states(self) -> dict[int, PartitionState]:
        """The partitions, as a running broker knows them."""
        return dict(enumerate(self.topic("t").partitions))

    def topic(self, name: str) -> Topic:
        node = next(one.running for one in self.brokers if one.running is not None)
        assert node.image is not None
        return node.image.topics[name]

    @property
    def is_whole(self) -> bool:
        node = next(one.running for one in self.brokers if one.running is not None)
        return node.image is not None and observe(node.image).is_whole

    def held(self) -> Counter[int]:
        return Counter(broker for one in self.states.values() for broker in one.replicas)

    async def until(self, condition: Callable[[], bool], seconds: float = 120) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                await self.clock.sleep(0.1)

    def is_balanced(self) -> bool:
        """Whether no broker has more than 1.2 times the mean, which is six replicas."""
        moving = any(map(is_reassigning, self.states.values()))
        return not moving and self.held()[4] > 0 and max(self.held().values()) <= 7

    async def controller(self) -> SimulatedBroker:
        async with self.admin() as admin:
            found = (await admin.describe_cluster()).controller
        return next(one for one in self.brokers if one.id == found)

    def end(self) -> None:
        for one in self.brokers:
            if one.running is not None:
                one.kill()


def play(seed: int, program: Callable[[World], Awaitable[None]], *settings: str) -> None:
    """Run a program with a cluster, and end its brokers."""

    async def played(world: Simulation) -> None:
        cluster = await World.begin(world, *settings)
        try:
            await program(cluster)
        finally:
            cluster.end()

    simulate(seed, played)


def test_fourth_broker_gets_its_share_and_then_nothing_moves() -> None:
    async def program(cluster: World) -> None:
        await cluster.clock.sleep(STABLE_S + 4 * CHECK_S)
        assert {index: one.replicas for index, one in cluster.states.items()} == REPLICAS
        began_s = cluster.clock.elapsed_s()
        await cluster.brokers[3].start()
        moving: set[int] = set()

        def is_balanced() -> bool:
            now = {index for index, one in cluster.states.items() if is_reassigning(one)}
            assert len(now) <= 2, "ottla.balance.partitions.max"
            moving.update(now)
            return cluster.is_balanced()

        await cluster.until(is_balanced)
        assert cluster.clock.elapsed_s() - began_s > STABLE_S
        assert len(moving) == 3, "each of the three brokers gives one replica of the eight away"
        leaders = Counter(one.leader for one in cluster.states.values())
        assert max(leaders.values()) <= 4
        after = cluster.states
        await cluster.clock.sleep(20 * CHECK_S)
        assert cluster.states == after

    play(1, program)


def test_drained_broker_neither_gets_nor_loses_replicas() -> None:
    async def program(cluster: World) -> None:
        async with cluster.admin() as admin:
            cordoned = {ConfigResource.broker(3): {"cordoned.log.dirs": "*"}}
            (await admin.alter_configs(cordoned)).or_raise()
        before = {index: 3 in one for index, one in REPLICAS.items()}
        await cluster.brokers[3].start()
        # Brokers 1, 2 and 4 have sixteen replicas; the goal is 1.2 times the mean of these.
        await cluster.until(lambda: cluster.held()[4] >= 4)
        await cluster.clock.sleep(10 * CHECK_S)
        assert {index: 3 in one.replicas for index, one in cluster.states.items()} == before

    play(2, program)


def test_nothing_moves_while_a_broker_is_down() -> None:
    async def program(cluster: World) -> None:
        cluster.brokers[2].kill()
        await cluster.until(lambda: not cluster.is_whole)
        await cluster.brokers[3].start()
        await cluster.clock.sleep(STABLE_S + 10 * CHECK_S)
        assert {index: one.replicas for index, one in cluster.states.items()} == REPLICAS
        await cluster.brokers[2].start()
        await cluster.until(cluster.is_balanced)

    play(3, program)


def test_disabled_balance_begins_no_more_moves() -> None:
    async def program(cluster: World) -> None:
        await cluster.brokers[3].start()
        await cluster.until(lambda: any(map(is_reassigning, cluster.states.values())))
        async with cluster.admin() as admin:
            disabled = {ConfigResource.broker(None): {"ottla.balance.enable": "false"}}
            (await admin.alter_configs(disabled)).or_raise()
        await cluster.until(lambda: not any(map(is_reassigning, cluster.states.values())))
        await cluster.clock.sleep(STABLE_S + 10 * CHECK_S)
        assert cluster.held()[4] == 1

    # So slow that the first copy takes longer than it takes to disable the balance.
    play(
        4,
        program,
        "ottla.balance.partitions.max=1",
        f"ottla.balance.throttle.bytes.per.second={THROTTLE}",
        "replica.fetch.max.bytes=1000",
    )


def test_next_controller_completes_the_balance() -> None:
    async def program(cluster: World) -> None:
        await cluster.brokers[3].start()
        await cluster.until(lambda: any(map(is_reassigning, cluster.states.values())))
        controller = await cluster.controller()
        controller.kill()
        await cluster.clock.sleep(1)
        await controller.start()
        await cluster.until(cluster.is_balanced, 300)
        await cluster.until(lambda: cluster.is_whole)
        assert (await cluster.controller()) is not controller

    play(5, program, "ottla.balance.partitions.max=1")


def test_leader_moves_away_from_a_broker_that_sends_too_much() -> None:
    async def program(cluster: World) -> None:
        async with (
            cluster.admin() as admin,
            Producer(cluster.config, network=cluster.host, clock=cluster.clock) as producer,
        ):
            # Each broker leads two partitions, but only those of broker 1 have traffic.
            replicas = {index: ((1, 2, 3) * 2)[index // 2 :][:3] for index in range(6)}
            (await admin.create_topics([NewTopic("busy", replicas=replicas)])).or_raise()

            async def produce() -> None:
                while True:
                    for index in (0, 1):
                        await (await producer.send("busy", bytes(1000), partition=index))
                    await cluster.clock.sleep(0.5)

            task = asyncio.ensure_future(produce())
            await cluster.until(lambda: len({one.leader for one in busy(cluster)[:2]}) == 2)
            task.cancel()

    play(
        7,
        program,
        "ottla.balance.traffic.min.bytes.per.second=1000",
        "ottla.balance.window.ms=10000",
        "auto.leader.rebalance.enable=false",
    )


def busy(cluster: World) -> list[PartitionState]:
    return [*cluster.topic("busy").partitions]


def test_copies_of_a_balance_keep_the_throttle() -> None:
    async def program(cluster: World) -> None:
        await cluster.brokers[3].start()
        await cluster.until(lambda: any(map(is_reassigning, cluster.states.values())))
        began_s = cluster.clock.elapsed_s()
        await cluster.until(cluster.is_balanced, 600)
        # The burst of the first window is not held back.
        assert cluster.clock.elapsed_s() - began_s > 0.5 * 3 * PARTITION_BYTES / THROTTLE

    play(
        6,
        program,
        f"ottla.balance.throttle.bytes.per.second={THROTTLE}",
        "replica.fetch.max.bytes=1000",
    )
