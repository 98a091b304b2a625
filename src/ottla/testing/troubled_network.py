"""The real network with injected faults: paused, or cut off.

Invariant: while paused, no data from clients or other brokers is read, whatever their connections
request; it is read when the pause ends. Once cut off, nothing is sent, every connection is closed
and none is opened, as after a kill.
"""

import asyncio
import errno
import os
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, cast

from ottla.protocol.primitives import Buffer
from ottla.transport.network import Server, TcpNetwork


class TroubledNetwork:
    """The network of the machine, for one run of a broker."""

    def __init__(self) -> None:
        self._network = TcpNetwork()
        self._servers: list[Server] = []
        self._gates: set[_Gate] = set()
        self._paused = False
        self._is_cut = False
        self._departed: list[Callable[[], None]] = []  # while paused

    async def hold(
        self,
        protocol: Callable[[], asyncio.BaseProtocol],
        host: str | None,
        port: int,
        backlog: int,
    ) -> Server:
        """Bind an address."""
        server = await self._network.hold(lambda: _door(protocol(), self), host, port, backlog)
        self._servers.append(server)
        return server

    async def connect(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> None:
        """Connect to another broker; raises OSError."""
        if not self._is_cut:
            await self._network.connect(lambda: _door(protocol(), self), host, port)
        if self._is_cut:
            raise ConnectionAbortedError(errno.ECONNABORTED, os.strerror(errno.ECONNABORTED))

    def watch_departure(
        self, transport: asyncio.Transport, departed: Callable[[], None]
    ) -> Callable[[], None]:
        """Call `departed` when the peer closes its end, after a pause if there is one."""

        def report() -> None:
            if self._paused:
                self._departed.append(departed)
            else:
                departed()

        return self._network.watch_departure(transport, report)

    def watch_writable(self, transport: asyncio.Transport, writable: Callable[[], None]) -> None:
        """Return None: everything that is sent passes through the injected faults."""

    def pause(self) -> None:
        """Stop reading from all connections."""
        self._paused = True
        for gate in self._gates:
            gate.shut()

    def resume(self) -> None:
        """Resume reading."""
        self._paused = False
        for gate in self._gates:
            gate.open()
        while self._departed:
            self._departed.pop()()

    def cut(self) -> None:
        """Close all connections without sending anything more; no connection is opened."""
        self._is_cut = True
        for server in self._servers:
            server.close()
        for gate in self._gates:
            gate.abort()

    def enter(self, transport: asyncio.Transport) -> "_Gate":
        """Add a connection."""
        gate = _Gate(transport)
        self._gates.add(gate)
        if self._is_cut:
            gate.abort()
        elif self._paused:
            # The loop starts reading after this returns, whatever was requested before.
            asyncio.get_running_loop().call_soon(self._follow, gate)
        return gate

    def _follow(self, gate: "_Gate") -> None:
        if self._paused:
            gate.shut()

    def leave(self, gate: "_Gate") -> None:
        """Remove a connection."""
        self._gates.discard(gate)


P = TypeVar("P", asyncio.Protocol, asyncio.BufferedProtocol)


class _Door(asyncio.BaseProtocol, Generic[P]):
    """A protocol that forwards every call, with a gate as the transport."""

    def __init__(self, protocol: P, network: TroubledNetwork) -> None:
        self._protocol = protocol
        self._network = network
        self._gate: _Gate | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._gate = self._network.enter(cast("asyncio.Transport", transport))
        self._protocol.connection_made(self._gate)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._gate is not None:
            self._network.leave(self._gate)
        self._protocol.connection_lost(exc)

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()


class _PlainDoor(_Door[asyncio.Protocol], asyncio.Protocol):
    def data_received(self, data: bytes) -> None:
        self._protocol.data_received(data)


class _BufferedDoor(_Door[asyncio.BufferedProtocol], asyncio.BufferedProtocol):
    def get_buffer(self, sizehint: int) -> Buffer:
        return cast("Buffer", self._protocol.get_buffer(sizehint))

    def buffer_updated(self, nbytes: int) -> None:
        self._protocol.buffer_updated(nbytes)


def _door(protocol: asyncio.BaseProtocol, network: TroubledNetwork) -> asyncio.BaseProtocol:
    if isinstance(protocol, asyncio.BufferedProtocol):
        return _BufferedDoor(protocol, network)
    assert isinstance(protocol, asyncio.Protocol)
    return _PlainDoor(protocol, network)


class _Gate(asyncio.Transport):
    """A transport that reads only if both the protocol and the network allow it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._wanted = True
        self._shut = False

    def shut(self) -> None:
        self._shut = True
        self._settle()

    def open(self) -> None:
        self._shut = False
        self._settle()

    def pause_reading(self) -> None:
        self._wanted = False
        self._settle()

    def resume_reading(self) -> None:
        self._wanted = True
        self._settle()

    def is_reading(self) -> bool:
        return self._wanted

    def _settle(self) -> None:
        transport, reads = self._transport, self._wanted and not self._shut
        if transport.is_closing() or reads == transport.is_reading():
            return
        if reads:
            transport.resume_reading()
        else:
            transport.pause_reading()

    # The transport interface of asyncio.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def write(self, data: Buffer) -> None:
        self._transport.write(data)

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self._transport.writelines(list_of_data)
