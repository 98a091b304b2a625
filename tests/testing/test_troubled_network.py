"""The real network with injected faults, for connections that a broker opens."""

import asyncio

import pytest

from ottla.testing.troubled_network import TroubledNetwork

HOST = "127.0.0.1"


class Listener(asyncio.Protocol):
    """A protocol that records what arrives."""

    def __init__(self) -> None:
        self.data = b""
        self.transport: asyncio.Transport | None = None
        self.arrived = asyncio.Event()
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.arrived.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()

    def send(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)


def test_opened_connections_are_paused_and_cut() -> None:
    async def scenario() -> None:
        one, two = TroubledNetwork(), TroubledNetwork()
        accepted, opened, probe = Listener(), Listener(), Listener()
        protocols = iter((accepted, Listener()))
        server = await two.hold(lambda: next(protocols), HOST, 0, 10)
        await server.start()
        await one.connect(lambda: opened, HOST, server.port)
        opened.send(b"request")
        await accepted.arrived.wait()
        one.pause()
        accepted.send(b"response")
        # The bytes have arrived when a later connection of an untroubled process is answered.
        await TroubledNetwork().connect(lambda: probe, HOST, server.port)
        assert opened.data == b""
        one.resume()
        await opened.arrived.wait()
        assert opened.data == b"response"
        one.cut()
        await accepted.lost.wait()
        with pytest.raises(ConnectionAbortedError):
            await one.connect(Listener, HOST, server.port)
        two.cut()
        await probe.lost.wait()

    asyncio.run(asyncio.wait_for(scenario(), 10))
