"""How long requests wait for brokers that cannot be reached (decision 0052), in virtual time."""

import asyncio
from collections.abc import Callable, Mapping

from ottla.client.admin.administrator import Admin
from ottla.client.admin.topics import NewTopic
from ottla.ids import BrokerId
from ottla.protocol.message import Message
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.testing.network import SimulatedHost
from ottla.testing.simulation import PORT, SimulatedBroker, Simulation, simulate
from ottla.transport.channel import open_channel
from testing.test_departed_clients import (
    TOPIC,
    coordinator,
    creation,
    deletion,
    election,
    growth,
    increment,
    reassignment,
    reassignments,
    replacement,
)

RESPONSE_S = 600.0  # far above every limit


def short_creation() -> Message:
    request = creation("short")
    request.timeout_ms = 1000
    return request


def automatic(name: str) -> Message:
    """Create a topic by its first use."""
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)])


def description() -> Message:
    """Ask for the configs of the controller, which only it knows."""
    resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    return DescribeConfigsRequest(resources=[resource])


ON_THE_CONTROLLER: Mapping[str, tuple[Callable[[], Message], int]] = {
    "create": (lambda: creation("a"), 60),
    "short create": (short_creation, 1),
    "grow": (growth, 60),
    "replace configs": (replacement, 20),
    "change configs": (increment, 20),
    "delete": (lambda: deletion("a"), 60),
    # These end when no broker has applied the change for two seconds.
    "elect": (election, 2),
    "automatic": (lambda: automatic("c"), 2),
}
"""Requests that wait until all live brokers have applied a change, and for how many seconds."""

WITHOUT_THE_CONTROLLER: Mapping[str, tuple[Callable[[], Message], int]] = {
    "create": (lambda: creation("b"), 61),
    "short create": (short_creation, 30),
    "grow": (growth, 61),
    "replace configs": (replacement, 30),
    "change configs": (increment, 30),
    "elect": (election, 61),
    "reassign": (reassignment, 61),
    "list reassignments": (reassignments, 61),
    "automatic": (lambda: automatic("d"), 30),
    "find coordinator": (coordinator, 30),
    "describe broker": (description, 10),
    "delete": (lambda: deletion(TOPIC), 61),
}
"""Requests to another broker, and for how many seconds they wait for the controller."""


class Stage:
    """Three brokers: the first is the controller and leads a topic that the second should lead."""

    def __init__(self, world: Simulation, brokers: list[SimulatedBroker]) -> None:
        self.world = world
        self.brokers = brokers
        self.host: SimulatedHost = world.network.host(address="10.0.1.1")

    async def prepare(self) -> None:
        for one in self.brokers:
            await one.start()
        second = self.brokers[1]
        config = {"bootstrap.servers": f"{second.address}:{PORT}"}
        async with Admin(config, network=self.host, clock=self.world.clock) as admin:
            await admin.create_topics([NewTopic(TOPIC, replicas={0: (2, 1, 3)})])
        await self._until_led(BrokerId(2), in_sync=3)
        second.kill()
        await self._until_led(BrokerId(1), in_sync=2)
        await second.start()
        await self._until_led(BrokerId(1), in_sync=3)

    async def _until_led(self, leader: BrokerId, *, in_sync: int) -> None:
        def is_led() -> bool:
            node = self.brokers[0].running
            image = None if node is None else node.image
            state = None if image is None else image.state(TOPIC, 0)
            return state is not None and state.leader == leader and len(state.in_sync) == in_sync

        async with asyncio.timeout(60):
            while not is_led():
                await self.world.clock.sleep(0.1)

    async def waits_s(
        self,
        broker: SimulatedBroker,
        cut_off: SimulatedBroker,
        requests: Mapping[str, tuple[Callable[[], Message], int]],
    ) -> dict[str, int]:
        """Return after how many seconds a broker answers, while it does not reach another one."""
        channel = await open_channel(
            self.host,
            broker.address,
            PORT,
            client_id="test",
            software=("ottla", "0"),
            setup_timeout_s=5.0,
            request_timeout_s=5.0,
            ended=lambda: None,
        )
        waits: dict[str, int] = {}
        for name, (request, _) in requests.items():
            message = request()
            await channel.send(reassignments(), RESPONSE_S)  # connects to the controller
            self.world.network.partition(broker.address, cut_off.address)
            began_s = self.world.clock.elapsed_s()
            await channel.send(message, RESPONSE_S)
            waits[name] = round(self.world.clock.elapsed_s() - began_s)
            self.world.network.heal(broker.address, cut_off.address)
        channel.close()
        return waits


def test_waits_for_unreachable_brokers_have_their_limits() -> None:
    async def program(world: Simulation) -> None:
        settings = ("auto.leader.rebalance.enable=false", "default.replication.factor=3")
        stage = Stage(world, await world.cluster(3, *settings, session_timeout_s=4.0))
        await stage.prepare()
        first, second, third = stage.brokers
        for broker, cut_off, requests in (
            (first, third, ON_THE_CONTROLLER),
            (second, first, WITHOUT_THE_CONTROLLER),
        ):
            limits = {name: limit for name, (_, limit) in requests.items()}
            assert await stage.waits_s(broker, cut_off, requests) == limits
        for one in stage.brokers:
            one.kill()

    simulate(1, program)
