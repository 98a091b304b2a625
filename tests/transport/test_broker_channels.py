"""Connections between brokers: one per broker, bounded, within their timeouts."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from ottla.clock import SystemClock
from ottla.cluster.image import Address, Broker
from ottla.errors import ErrorCode, RequestError
from ottla.ids import NO_BROKER, BrokerEpoch, BrokerId
from ottla.protocol.apis import API_VERSIONS, CONTROLLED_SHUTDOWN
from ottla.protocol.conversation import Request, ServerConversation
from ottla.protocol.message import Message
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from ottla.testing.clock import SimulatedClock, simulated
from ottla.testing.network import SimulatedNetwork
from ottla.testing.trace import Trace
from ottla.transport.backoff import Backoff
from ottla.transport.broker_channels import BrokerChannels, ChannelsConfig, ControllerChannel
from ottla.transport.channel import Channel, Disconnected, TimedOut
from ottla.transport.failures import AuthenticationFailed
from ottla.transport.network import Network, Server, TcpNetwork
from resolver import HOST, NAME, Resolver

ONE, TWO = BrokerId(1), BrokerId(2)
ADDRESS = {ONE: "10.0.0.1", TWO: "10.0.0.2"}
PORT = 9092
CONFIG = ChannelsConfig(
    client_id="broker-1",
    listener="INTERNAL",
    backoff=Backoff(0.1, 1.0, lambda: 0.5),
    setup_timeout_s=3.0,
    in_flight_max=2,
)
PATIENT = dataclasses.replace(CONFIG, setup_timeout_s=60.0)  # in real time


def request(number: int = 0) -> ControlledShutdownRequest:
    return ControlledShutdownRequest(broker_id=number, broker_epoch=0)


def answer(code: ErrorCode = ErrorCode.NONE) -> ControlledShutdownResponse:
    return ControlledShutdownResponse(error_code=int(code), remaining_partitions=())


class PeerConnection(asyncio.Protocol):
    """Answers ApiVersions, and gives every other request to its broker."""

    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._conversation = ServerConversation()
        self.transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.transport = transport
        self._peer.connections.append(self)

    def data_received(self, data: bytes) -> None:
        for one in self._conversation.receive(data):
            if one.api is API_VERSIONS:
                keys = [ApiVersion(api_key=CONTROLLED_SHUTDOWN.key, min_version=0, max_version=3)]
                self.answer(one, ApiVersionsResponse(error_code=0, api_keys=keys))
            else:
                self._peer.requests.append(one)
                if self._peer.answers is not None:
                    self.answer(one, self._peer.answers(one))

    def answer(self, one: Request, message: Message) -> None:
        assert self.transport is not None
        self.transport.writelines(self._conversation.send(one, message))


class Peer:
    """A scripted broker; while `answers` is None it answers nothing."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.connections: list[PeerConnection] = []
        self.requests: list[Request] = []
        self.answers: Callable[[Request], Message] | None = lambda _: answer()

    async def listen(self, port: int = PORT, host: str | None = None) -> Server:
        server = await self._network.hold(lambda: PeerConnection(self), host, port, 10)
        await server.start()
        return server


class World:
    """Broker 1 with its channels, and broker 2 as a peer."""

    def __init__(self, clock: SimulatedClock) -> None:
        self.clock = clock
        self.network = SimulatedNetwork(Random(1), Trace())
        self.host = self.network.host(address=ADDRESS[ONE])
        self.peer_host = self.network.host(address=ADDRESS[TWO])
        self.peer = Peer(self.peer_host)
        self.brokers = {
            broker_id: Broker(broker_id, BrokerEpoch(7), {"INTERNAL": Address(address, PORT)})
            for broker_id, address in ADDRESS.items()
        }
        self.own: list[Message] = []
        self.channels = self.make()

    def make(
        self,
        login: Callable[[Channel], Awaitable[None]] | None = None,
        serve: Callable[[Message], Awaitable[Message]] | None = None,
    ) -> BrokerChannels:
        return BrokerChannels(
            ONE,
            CONFIG,
            network=self.host,
            clock=self.clock,
            broker=self.brokers.get,
            serve=serve or self._serve,
            login=login,
        )

    async def _serve(self, message: Message) -> Message:
        self.own.append(message)
        return answer()

    async def ask(self, number: int = 0, timeout_s: float = 10.0) -> ControlledShutdownResponse:
        return await self.channels.ask(
            TWO, request(number), ControlledShutdownResponse, timeout_s=timeout_s
        )

    async def seconds(self, awaitable: Awaitable[object]) -> float:
        """Return how long a call took, failed or not."""
        began_s = self.clock.elapsed_s()
        with suppress(RequestError):
            await awaitable
        return self.clock.elapsed_s() - began_s


def at(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def program(clock: SimulatedClock) -> None:
        world = World(clock)
        await world.peer.listen()
        await scenario(world)
        await world.channels.close()

    simulated(program)


def test_requests_share_one_connection() -> None:
    async def scenario(world: World) -> None:
        assert await asyncio.gather(*(world.ask(number) for number in range(5))) == [answer()] * 5
        assert len(world.peer.connections) == 1
        numbers = [one.message for one in world.peer.requests]
        assert numbers == [request(number) for number in range(5)]

    at(scenario)


def test_requests_in_flight_are_bounded() -> None:
    async def scenario(world: World) -> None:
        world.peer.answers = None
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(world.ask(number)) for number in range(4)]
            await world.clock.sleep(1)
            assert [one.message for one in world.peer.requests] == [request(0), request(1)]
            (connection,) = world.peer.connections
            connection.answer(world.peer.requests[0], answer())
            await world.clock.sleep(1)
            assert len(world.peer.requests) == 3
            for one in tasks[1:]:
                one.cancel()

    at(scenario)


def test_cancelled_request_is_in_flight_until_its_response() -> None:
    async def scenario(world: World) -> None:
        world.peer.answers = None
        tasks = [asyncio.create_task(world.ask(number)) for number in range(4)]
        await world.clock.sleep(1)
        tasks[0].cancel()
        tasks[2].cancel()  # it is not sent yet, and never is
        await world.clock.sleep(1)
        assert [one.message for one in world.peer.requests] == [request(0), request(1)]
        (connection,) = world.peer.connections
        for one in world.peer.requests[:2]:
            connection.answer(one, answer())
        await world.clock.sleep(1)
        assert [one.message for one in world.peer.requests[2:]] == [request(3)]
        connection.answer(world.peer.requests[2], answer())
        assert await asyncio.gather(*tasks[1::2]) == [answer()] * 2
        assert tasks[0].cancelled()
        assert tasks[2].cancelled()

    at(scenario)


def test_request_to_a_silent_broker_times_out() -> None:
    async def scenario(world: World) -> None:
        world.peer.answers = None
        with pytest.raises(TimedOut, match=r"ControlledShutdown in"):
            await world.ask(timeout_s=2.0)
        assert await world.seconds(world.ask(timeout_s=2.0)) == pytest.approx(2.0)

    at(scenario)


@pytest.mark.parametrize("is_connected", [False, True])
def test_request_to_a_partitioned_broker_times_out(*, is_connected: bool) -> None:
    async def scenario(world: World) -> None:
        if is_connected:
            await world.ask()
        world.network.partition(ADDRESS[ONE], ADDRESS[TWO])
        assert await world.seconds(world.ask(timeout_s=2.0)) == pytest.approx(2.0)
        world.network.heal(ADDRESS[ONE], ADDRESS[TWO])
        assert await world.ask() == answer()

    at(scenario)


def test_requests_that_wait_for_others_time_out_too() -> None:
    async def scenario(world: World) -> None:
        world.peer.answers = None
        asked = (world.ask(number, timeout_s=3.0 - number) for number in range(3))
        results = await asyncio.gather(*asked, return_exceptions=True)
        # The first deadline belongs to the request that was never sent; the next ones end the rest.
        assert all(isinstance(result, TimedOut) for result in results)
        assert len(world.peer.requests) == 2

    at(scenario)


def test_closed_connection_ends_requests_at_once() -> None:
    async def scenario(world: World) -> None:
        world.peer.answers = None
        asking = asyncio.ensure_future(world.ask())
        await world.clock.sleep(1)
        world.peer_host.die()
        assert await world.seconds(asking) < 0.1
        with pytest.raises(Disconnected):
            asking.result()

    at(scenario)


def test_refused_connection_ends_requests_at_once_then_backs_off() -> None:
    async def scenario(world: World) -> None:
        world.peer_host.die()
        with pytest.raises(Disconnected, match="refused"):
            await world.ask()
        waits = [await world.seconds(world.ask()) for _ in range(5)]
        assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0], abs=0.01)

    at(scenario)


def test_broker_that_registers_again_is_reached_without_backoff() -> None:
    async def scenario(world: World) -> None:
        world.peer_host.die()
        for _ in range(5):
            await world.seconds(world.ask())
        waiting = asyncio.ensure_future(world.ask())
        await world.clock.sleep(0.1)
        restarted = Peer(world.network.host(address="10.0.0.3"))
        await restarted.listen(9999)
        world.brokers[TWO] = Broker(TWO, BrokerEpoch(8), {"INTERNAL": Address("10.0.0.3", 9999)})
        assert await world.seconds(world.ask()) < 0.1
        assert await waiting == answer()

    at(scenario)


def test_connection_to_a_former_address_is_closed() -> None:
    async def scenario(world: World) -> None:
        await world.ask(1)
        moved = Peer(world.network.host(address="10.0.0.3"))
        await moved.listen()
        old = world.brokers[TWO]
        world.brokers[TWO] = replace(old, epoch=BrokerEpoch(8))
        await world.ask(2)
        assert len(world.peer.requests) == 2  # the same process: its connection stays
        world.brokers[TWO] = replace(old, addresses={"INTERNAL": Address("10.0.0.3", PORT)})
        await world.ask(3)
        assert [one.message for one in moved.requests] == [request(3)]
        assert len(world.peer.requests) == 2

    at(scenario)


@pytest.mark.parametrize("addresses", [None, {}, {"CLIENTS": Address("10.0.0.2", PORT)}])
def test_unregistered_broker_is_not_asked(addresses: Mapping[str, Address] | None) -> None:
    async def scenario(world: World) -> None:
        if addresses is None:
            del world.brokers[TWO]
        else:
            world.brokers[TWO] = Broker(TWO, BrokerEpoch(7), addresses)
        with pytest.raises(Disconnected, match="broker 2 is not registered with listener INTERNAL"):
            await world.ask()
        assert world.peer.connections == []

    at(scenario)


def test_own_broker_is_asked_without_a_connection() -> None:
    async def scenario(world: World) -> None:
        response = await world.channels.ask(ONE, request(), ControlledShutdownResponse, timeout_s=1)
        assert (response, world.own) == (answer(), [request()])

        async def hang(message: Message) -> Message:
            await world.clock.sleep(100)
            return message

        channels = world.make(serve=hang)
        asking = channels.ask(ONE, request(), ControlledShutdownResponse, timeout_s=1)
        with pytest.raises(TimedOut, match="broker 1"):
            await asking

    at(scenario)


def test_login_runs_before_the_first_request() -> None:
    async def scenario(world: World) -> None:
        async def login(channel: Channel) -> None:
            await channel.ask(request(99), ControlledShutdownResponse, 1.0)

        async def refused(channel: Channel) -> None:
            raise AuthenticationFailed("the password is wrong")

        channels = world.make(login)
        await channels.ask(TWO, request(1), ControlledShutdownResponse, timeout_s=1)
        assert [one.message for one in world.peer.requests] == [request(99), request(1)]
        await channels.close()
        channels = world.make(refused)
        with pytest.raises(AuthenticationFailed, match="wrong"):
            await channels.ask(TWO, request(2), ControlledShutdownResponse, timeout_s=1)
        assert len(world.peer.requests) == 2

    at(scenario)


def test_close_fails_requests_and_attempts() -> None:
    async def scenario(world: World) -> None:
        world.peer.answers = None
        asking = asyncio.ensure_future(world.ask())
        await world.clock.sleep(1)
        await world.channels.close()
        with pytest.raises(Disconnected):
            await asking
        with pytest.raises(Disconnected, match="stopping"):
            await world.ask()
        world.channels = world.make()
        world.network.partition(ADDRESS[ONE], ADDRESS[TWO])
        asking = asyncio.ensure_future(world.ask())
        await world.clock.sleep(1)
        await world.channels.close()
        with pytest.raises(Disconnected, match="stopping"):
            await asking

    at(scenario)


def test_controller_is_found_again_after_not_controller() -> None:
    async def scenario(world: World) -> None:
        controllers = [NO_BROKER, TWO, TWO, ONE]

        world.peer.answers = lambda _: answer(ErrorCode.NOT_CONTROLLER)
        backoff = Backoff(0.1, 1.0, lambda: 0.5)
        channel = ControllerChannel(
            world.channels, lambda: controllers.pop(0), clock=world.clock, backoff=backoff
        )
        assert await channel.ask(request(), ControlledShutdownResponse) == answer()
        assert (len(world.peer.requests), len(world.own), controllers) == (2, 1, [])
        assert world.clock.elapsed_s() == pytest.approx(0.1 + 0.2 + 0.4, abs=0.05)

    at(scenario)


def test_request_without_a_controller_ends_in_time() -> None:
    async def scenario(world: World) -> None:
        channel = ControllerChannel(
            world.channels,
            lambda: NO_BROKER,
            clock=world.clock,
            backoff=Backoff(0.1, 1.0, lambda: 0.5),
        )
        with pytest.raises(Disconnected, match="no broker was the controller in 5 s"):
            await channel.ask(request(), ControlledShutdownResponse, timeout_s=5)
        assert world.clock.elapsed_s() == pytest.approx(5)

    at(scenario)


def test_lost_request_to_the_controller_is_not_repeated() -> None:
    async def scenario(world: World) -> None:
        def executed_without_answer(one: Request) -> Message:
            world.peer_host.die()
            return answer()

        world.peer.answers = executed_without_answer
        channel = ControllerChannel(
            world.channels, lambda: TWO, clock=world.clock, backoff=Backoff(0.1, 1.0, lambda: 0.5)
        )
        with pytest.raises(Disconnected):
            await channel.ask(request(), ControlledShutdownResponse)
        assert len(world.peer.requests) == 1

    at(scenario)


def test_host_name_is_resolved_at_each_reconnect(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker has moved to another address; the event loop does not wait for the resolver."""
    resolver = Resolver(monkeypatch)

    async def serve(message: Message) -> Message:
        raise AssertionError(message)

    async def answered(channels: BrokerChannels, message: Message) -> Message:
        while True:
            with suppress(Disconnected):  # the end of the old connection was not noticed yet
                return await channels.ask(TWO, message, ControlledShutdownResponse, timeout_s=60.0)

    async def program() -> None:
        network = TcpNetwork()
        moved = Broker(TWO, BrokerEpoch(7), {"INTERNAL": Address(NAME, PORT)})
        channels = BrokerChannels(
            ONE,
            PATIENT,
            network=network,
            clock=SystemClock(),
            broker={TWO: moved}.get,
            serve=serve,
        )
        for number in range(2):
            peer = Peer(network)
            server = await peer.listen(0, HOST)
            resolver.port = server.port
            asked = asyncio.ensure_future(answered(channels, request(number)))
            while not resolver.is_asked.is_set():
                await asyncio.sleep(0)
            resolver.let_resolve()
            assert await asked == answer()
            assert [one.message for one in peer.requests] == [request(number)]
            server.close()
            (connection,) = peer.connections
            assert connection.transport is not None
            connection.transport.abort()
        await channels.close()

    asyncio.run(asyncio.wait_for(program(), 60))
