"""Group members in a seeded simulation: hours of faults, and never two owners of a partition.

The owner asserts that no other member has an assigned partition. Time is simulated, so sessions and
poll intervals have realistic lengths.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from client.group.harness import FAST, HarnessMember, Ledger, all_of, wait_until_stable
from ottla.testing.network import CALM, Weather
from ottla.testing.simulation import PORT, SimulatedBroker, Simulation, simulate

SEEDS = range(4)
STEPS = 25
PARTITIONS = 5
BAD = Weather(stall_chance=0.01, cut_chance=0.02)
USUAL: dict[str, Any] = {
    "heartbeat_interval_ms": 3000,
    "session_timeout_ms": 45_000,
    "max_poll_interval_ms": 300_000,
    "retry_backoff_ms": 100,
    "reconnect_backoff_ms": 50,
    "reconnect_backoff_max_ms": 1000,
}
assert all(name.replace("_", ".") in FAST for name in USUAL)


class Wires:
    """The simulated network as a client sees it; a mute one reaches no broker."""

    def __init__(self, world: Simulation) -> None:
        self._world = world
        self.is_mute = False

    async def connect(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> None:
        if self.is_mute:
            await asyncio.sleep(3600)
        await self._world.network.connect(protocol, port)


class Story:
    """A random sequence of events in a group."""

    def __init__(self, world: Simulation, broker: SimulatedBroker, strategy: str) -> None:
        self.world, self.broker, self.strategy = world, broker, strategy
        self.random = Random(f"{world.seed} story")
        self.members: list[HarnessMember] = []
        self.ledger: Ledger = {}
        self.lost = 0

    def join(self) -> None:
        self.members.append(
            HarnessMember(
                f"127.0.0.1:{PORT}",
                ["t"],
                self.ledger,
                network=Wires(self.world),
                clock=self.world.clock,
                random=self.random.random,
                partition_assignment_strategy=self.strategy,
                **USUAL,
            )
        )

    def take(self) -> HarnessMember:
        return self.members.pop(self.random.randrange(len(self.members)))

    async def step(self) -> None:
        for one in self.members:
            if one.life.done():
                one.life.result()
        what = self.random.random()
        if len(self.members) < 2 or (what < 0.3 and len(self.members) < 7):
            self.join()
        elif what < 0.45:
            await self.take().leave()
        elif what < 0.55:
            await self.take().close()
        elif what < 0.7:
            one = self.random.choice(self.members)
            one.is_polling = not one.is_polling
        elif what < 0.8:
            self.broker.kill()
            await asyncio.sleep(self.random.uniform(0, 60))
            assert await self.broker.start()
        else:
            self.world.network.weather = self.random.choice([BAD, CALM])
        await asyncio.sleep(self.random.choice([0.1, 2, 20, 200]))

    async def end(self) -> None:
        """Without faults the group becomes stable; then all members leave."""
        self.world.network.weather = CALM
        for one in self.members:
            one.is_polling = True
        await wait_until_stable(self.members, all_of("t", PARTITIONS), least=0, seconds=1000)
        self.lost = sum(len(one.owner.heard("lose")) for one in self.members)
        for one in self.members:
            await one.leave()


def play(seed: int, strategy: str, steps: int = STEPS) -> Story:
    async def program(world: Simulation) -> Story:
        broker = world.broker(f"num.partitions={PARTITIONS}", "offsets.topic.num.partitions=1")
        assert await broker.start()
        story = Story(world, broker, strategy)
        for _ in range(steps):
            await story.step()
        await story.end()
        assert await broker.stop()
        assert not world.problems
        return story

    return simulate(seed, program)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("seed", SEEDS)
def test_partition_never_has_two_owners(seed: int, strategy: str) -> None:
    play(seed, strategy)
