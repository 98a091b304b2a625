"""The simulated network behaves as the event loop's transports, including faults."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from ottla.testing.clock import SimulatedClock, simulated
from ottla.testing.network import (
    CALM,
    WINDOW_BYTES,
    SimulatedHost,
    SimulatedNetwork,
    SimulatedTransport,
    Weather,
)
from ottla.testing.trace import Trace

PORT = 9092


class Listener(asyncio.Protocol):
    """A protocol that records its calls."""

    def __init__(self) -> None:
        self.data = b""
        self.told: list[str] = []
        self.transport: SimulatedTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimulatedTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def eof_received(self) -> bool:
        self.told.append("eof")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append("lost" if exc is None else "broken")

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")


class Place:
    """A server and its connections."""

    def __init__(self, clock: SimulatedClock, weather: Weather, seed: int = 0) -> None:
        self.clock = clock
        self.trace = Trace()
        self.network = SimulatedNetwork(Random(seed), self.trace, weather)
        self.host: SimulatedHost = self.network.host()
        self.accepted: list[Listener] = []

    def _accept(self) -> Listener:
        self.accepted.append(Listener())
        return self.accepted[-1]

    async def listen(self) -> None:
        server = await self.host.hold(self._accept, None, PORT, 10)
        await server.start()

    async def connect(self) -> tuple[SimulatedTransport, Listener, Listener]:
        transport, client = await self.network.connect(Listener, PORT)
        await self.clock.sleep(0.5)
        return transport, client, self.accepted[-1]


def at(place: Callable[[Place], Coroutine[Any, Any, None]], weather: Weather = CALM) -> None:
    async def program(clock: SimulatedClock) -> None:
        here = Place(clock, weather)
        await here.listen()
        await place(here)

    simulated(program)


def test_bytes_arrive_in_order_despite_uneven_delays() -> None:
    async def scenario(place: Place) -> None:
        transport, _, server = await place.connect()
        sent = b"".join(b"%d," % number for number in range(2000))
        for number in range(2000):
            transport.write(b"%d," % number)
        await place.clock.sleep(600)
        assert server.data == sent

    at(scenario, Weather(slow_chance=0.5, stall_chance=0.1, cut_chance=0, split_chance=0.5))


def test_connections_are_not_ordered() -> None:
    async def scenario(place: Place) -> None:
        heard: list[int] = []
        for number in range(20):
            transport, _, server = await place.connect()
            server.data_received = lambda data, number=number: heard.append(number)
            transport.write(b"x")
        await place.clock.sleep(10)
        assert sorted(heard) == list(range(20))

    at(scenario, Weather(slow_chance=0.5, cut_chance=0))


def test_writer_is_paused_while_its_peer_does_not_read() -> None:
    async def scenario(place: Place) -> None:
        transport, client, server = await place.connect()
        assert server.transport is not None
        server.transport.pause_reading()
        transport.set_write_buffer_limits(1000, 100)
        transport.write(bytes(WINDOW_BYTES))
        assert client.told == []
        transport.write(bytes(2000))
        await place.clock.sleep(1)
        assert client.told == ["pause"]
        assert (server.data, transport.get_write_buffer_size()) == (b"", 2000)
        server.transport.resume_reading()
        await place.clock.sleep(1)
        assert client.told == ["pause", "resume"]
        assert len(server.data) == WINDOW_BYTES + 2000

    at(scenario)


def test_close_flushes_and_notifies_both_ends() -> None:
    async def scenario(place: Place) -> None:
        transport, client, server = await place.connect()
        transport.write(b"all of this")
        transport.close()
        transport.write(b"not this")
        await place.clock.sleep(1)
        assert server.data == b"all of this"
        assert (client.told, server.told) == (["lost"], ["eof", "lost"])

    at(scenario)


def test_bytes_in_flight_are_lost_when_a_connection_breaks() -> None:
    async def scenario(place: Place) -> None:
        transport, client, server = await place.connect()
        transport.write(b"lost")
        transport.abort()
        await place.clock.sleep(1)
        assert server.data == b""
        assert (client.told, server.told) == (["lost"], ["broken"])
        transport, client, server = await place.connect()
        place.host.die()
        await place.clock.sleep(1)
        assert (client.told, server.told) == (["broken"], [])
        with pytest.raises(ConnectionRefusedError):
            await place.network.connect(Listener, PORT)

    at(scenario)


def test_vanished_end_notifies_nobody() -> None:
    async def scenario(place: Place) -> None:
        transport, client, server = await place.connect()
        transport.write(b"lost")
        transport.vanish()
        await place.clock.sleep(100)
        assert (server.data, client.told, server.told) == (b"", [], [])
        assert server.transport is not None
        server.transport.write(b"into the void")
        server.transport.close()
        await place.clock.sleep(1)
        assert server.told == ["lost"]

    at(scenario)


def test_connections_break_at_random_within_frames() -> None:
    async def scenario(place: Place) -> None:
        sizes: list[int] = []
        for _ in range(50):
            transport, client, server = await place.connect()
            for _ in range(10):
                transport.write(bytes(100))
            await place.clock.sleep(5)
            if client.told:
                assert server.told == client.told == ["broken"]
                sizes.append(len(server.data))
        assert sizes
        assert any(size % 100 for size in sizes)

    at(scenario, Weather(cut_chance=0.05, split_chance=0.5))


def test_address_can_be_bound_only_once() -> None:
    async def scenario(place: Place) -> None:
        with pytest.raises(OSError, match="in use"):
            await place.host.hold(Listener, None, PORT, 10)
        assert (await place.host.hold(Listener, None, 0, 10)).port != PORT

    at(scenario)


class TwoHosts:
    """Two processes at different addresses; the second one listens."""

    def __init__(self, clock: SimulatedClock, weather: Weather = CALM) -> None:
        self.clock = clock
        self.network = SimulatedNetwork(Random(0), Trace(), weather)
        self.one = self.network.host(address="10.0.0.1")
        self.two = self.network.host(address="10.0.0.2")
        self.connected = Listener()
        self.accepted: list[Listener] = []

    def _accept(self) -> Listener:
        self.accepted.append(Listener())
        return self.accepted[-1]

    async def connect(self) -> tuple[SimulatedTransport, Listener]:
        if not self.accepted:
            await (await self.two.hold(self._accept, "10.0.0.2", PORT, 10)).start()
        self.connected = Listener()
        await self.one.connect(lambda: self.connected, "10.0.0.2", PORT)
        await self.clock.sleep(0.5)
        assert self.connected.transport is not None
        return self.connected.transport, self.accepted[-1]


def between(
    scenario: Callable[[TwoHosts], Coroutine[Any, Any, None]], weather: Weather = CALM
) -> None:
    async def program(clock: SimulatedClock) -> None:
        await scenario(TwoHosts(clock, weather))

    simulated(program)


def test_processes_connect_by_address() -> None:
    async def scenario(hosts: TwoHosts) -> None:
        transport, server = await hosts.connect()
        transport.write(b"hello")
        await hosts.clock.sleep(1)
        assert server.data == b"hello"
        assert server.transport is not None
        assert server.transport.get_extra_info("peername")[0] == "10.0.0.1"
        assert transport.get_extra_info("peername") == ("10.0.0.2", PORT)
        for address, port in (("10.0.0.1", PORT), ("10.0.0.2", PORT + 1)):
            with pytest.raises(ConnectionRefusedError):
                await hosts.one.connect(Listener, address, port)
        with pytest.raises(OSError, match="assign"):
            await hosts.one.hold(Listener, "10.0.0.2", PORT + 1, 10)

    between(scenario)


def test_dead_process_opens_no_connection() -> None:
    async def scenario(hosts: TwoHosts) -> None:
        _, server = await hosts.connect()
        attempt = asyncio.ensure_future(hosts.one.connect(Listener, "10.0.0.2", PORT))
        await asyncio.sleep(0)
        hosts.one.die()
        with pytest.raises(ConnectionAbortedError):
            await attempt
        await hosts.clock.sleep(1)
        assert (hosts.connected.told, server.told) == ([], ["broken"])
        assert len(hosts.accepted) == 1

    between(scenario)


def test_partition_delays_bytes_until_it_ends() -> None:
    async def scenario(hosts: TwoHosts) -> None:
        transport, server = await hosts.connect()
        hosts.network.partition("10.0.0.2", "10.0.0.1")
        for number in range(50):
            transport.write(b"%d," % number)
        await hosts.clock.sleep(100)
        assert server.data == b""
        hosts.network.heal("10.0.0.1", "10.0.0.2")
        transport.write(b"end")
        await hosts.clock.sleep(1)
        assert server.data == b"".join(b"%d," % number for number in range(50)) + b"end"

    between(scenario, Weather(slow_chance=0, stall_chance=0, cut_chance=0, split_chance=0.5))


def test_partition_hides_the_end_of_a_connection() -> None:
    async def scenario(hosts: TwoHosts) -> None:
        transport, server = await hosts.connect()
        other, other_server = await hosts.connect()
        hosts.network.partition("10.0.0.1", "10.0.0.2")
        transport.abort()
        other.write(b"last words")
        other.close()
        await hosts.clock.sleep(100)
        assert (server.told, other_server.told) == ([], [])
        hosts.network.heal("10.0.0.1", "10.0.0.2")
        await hosts.clock.sleep(1)
        assert (server.told, other_server.told) == (["broken"], ["eof", "lost"])
        assert other_server.data == b"last words"

    between(scenario)


def test_packets_are_lost_in_one_direction() -> None:
    async def scenario(hosts: TwoHosts) -> None:
        transport, server = await hosts.connect()
        client = hosts.connected
        assert server.transport is not None
        hosts.network.lose("10.0.0.1", "10.0.0.2")
        transport.write(b"lost on the way")
        server.transport.write(b"arrives")
        attempt = asyncio.ensure_future(hosts.one.connect(Listener, "10.0.0.2", PORT))
        await hosts.clock.sleep(5)
        assert (client.data, server.data, attempt.done()) == (b"arrives", b"", False)
        transport.close()
        await hosts.clock.sleep(5)
        assert (client.told, server.told) == (["lost"], [])
        hosts.network.deliver("10.0.0.1", "10.0.0.2")
        await hosts.clock.sleep(5)
        assert (server.data, server.told) == (b"lost on the way", ["eof", "lost"])
        assert attempt.done()

    between(scenario)


def test_partition_separates_two_addresses_only() -> None:
    async def scenario(hosts: TwoHosts) -> None:
        transport, server = await hosts.connect()
        hosts.network.partition("10.0.0.1", "10.0.0.3")
        hosts.network.partition("10.0.0.2", "10.0.0.3")
        transport.write(b"hello")
        await hosts.clock.sleep(1)
        assert server.data == b"hello"
        third = hosts.network.host(address="10.0.0.3")
        attempt = asyncio.ensure_future(third.connect(Listener, "10.0.0.2", PORT))
        await hosts.clock.sleep(100)
        assert not attempt.done()
        hosts.network.heal("10.0.0.1", "10.0.0.3")
        await hosts.clock.sleep(100)
        assert not attempt.done()
        hosts.network.heal("10.0.0.2", "10.0.0.3")
        await hosts.clock.sleep(1)
        assert attempt.done()

    between(scenario)


def test_delay_between_two_addresses() -> None:
    async def scenario(hosts: TwoHosts) -> None:
        transport, server = await hosts.connect()
        hosts.network.delays_s[frozenset(("10.0.0.1", "10.0.0.2"))] = 5.0
        transport.write(b"hello")
        await hosts.clock.sleep(4.9)
        assert server.data == b""
        await hosts.clock.sleep(0.2)
        assert server.data == b"hello"

    between(scenario)
