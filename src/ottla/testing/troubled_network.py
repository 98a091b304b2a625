"""The real network with injected faults: paused, slow, partitioned, or cut off.

Invariant: while paused, nothing is read and nothing is sent, whatever the connections request; it
is read and sent when the pause ends. The same is true of the connections between two brokers while
they are partitioned. Once cut off, nothing is sent, every connection is closed and none is opened,
as after a kill.

A connection between two brokers belongs to the one that opened it: that broker knows the address
of the other, and holds back both directions.
"""

import asyncio
import errno
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, cast
from weakref import WeakSet

from ottla.protocol.primitives import Buffer
from ottla.transport.network import Server, TcpNetwork


class BrokerLinks:
    """The faults of the network between the brokers of a cluster, which are known by their ports.

    They outlast the runs of the brokers.
    """

    def __init__(self) -> None:
        self._partitioned: Counter[frozenset[int]] = Counter()  # pairs of ports
        self._delays: dict[int, list[float]] = {}  # by port, the newest last
        self._networks: WeakSet[TroubledNetwork] = WeakSet()

    def add(self, network: "TroubledNetwork") -> None:
        """Notify a network of changes."""
        self._networks.add(network)

    def partition(self, one: int, other: int) -> Callable[[], None]:
        """Let no byte pass between two brokers; return a function that ends it."""
        pair = frozenset((one, other))
        self._partitioned[pair] += 1
        self._changed()

        def end() -> None:
            self._partitioned[pair] -= 1
            self._changed()

        return end

    def slow(self, port: int, delay_s: float) -> Callable[[], None]:
        """Delay everything that a broker sends; return a function that ends it."""
        delays = self._delays.setdefault(port, [])
        delays.append(delay_s)

        def end() -> None:
            delays.remove(delay_s)

        return end

    def is_partitioned(self, one: int, other: int) -> bool:
        """Whether two brokers are partitioned."""
        return self._partitioned[frozenset((one, other))] > 0

    def delay_s(self, port: int) -> float:
        """Return how long a broker's bytes are delayed."""
        delays = self._delays.get(port)
        return delays[-1] if delays else 0.0

    def _changed(self) -> None:
        for network in [*self._networks]:
            network.settle()


class TroubledNetwork:
    """The network of the machine, for one run of a broker."""

    def __init__(self, links: BrokerLinks | None = None, port: int = 0) -> None:
        """A network for the broker that listens on `port`."""
        self._network = TcpNetwork()
        self._links = BrokerLinks() if links is None else links
        self._links.add(self)
        self._port = port
        self._servers: list[Server] = []
        self._gates: set[_Gate] = set()
        self._paused = False
        self._is_cut = False
        self._departed: list[Callable[[], None]] = []  # while paused
        self._settled = asyncio.Event()  # wakes connections that wait

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
        while self.is_shut(port) and not self._is_cut:
            await self._settled.wait()
        if not self._is_cut:
            await self._network.connect(lambda: _door(protocol(), self, port), host, port)
        if self._is_cut:
            raise ConnectionAbortedError(errno.ECONNABORTED, os.strerror(errno.ECONNABORTED))

    async def refuses(self, host: str, port: int) -> bool:
        """Whether a broker refuses connections."""
        while self.is_shut(port) and not self._is_cut:
            await self._settled.wait()
        return not self._is_cut and await self._network.refuses(host, port)

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

    def is_shut(self, peer_port: int | None) -> bool:
        """Whether no byte passes on a connection, to the broker on `peer_port` if it is known."""
        return self._paused or (
            peer_port is not None and self._links.is_partitioned(self._port, peer_port)
        )

    @property
    def delay_s(self) -> float:
        """How long everything that is sent is delayed."""
        return self._links.delay_s(self._port)

    def pause(self) -> None:
        """Stop reading from and sending to all connections."""
        self._paused = True
        self.settle()

    def resume(self) -> None:
        """Resume reading and sending."""
        self._paused = False
        self.settle()
        while self._departed:
            self._departed.pop()()

    def settle(self) -> None:
        """Apply the faults to all connections."""
        for gate in [*self._gates]:
            gate.settle()
        self._settled.set()
        self._settled.clear()

    def cut(self) -> None:
        """Close all connections without sending anything more; no connection is opened."""
        self._is_cut = True
        for server in self._servers:
            server.close()
        for gate in [*self._gates]:
            gate.abort()
        self._settled.set()
        self._settled.clear()

    def enter(self, transport: asyncio.Transport, peer_port: int | None) -> "_Gate":
        """Add a connection; `peer_port` is the port of the broker that it leads to."""
        gate = _Gate(transport, self, peer_port)
        self._gates.add(gate)
        if self._is_cut:
            gate.abort()
        else:
            # The loop starts reading after this returns, whatever was requested before.
            asyncio.get_running_loop().call_soon(gate.settle)
        return gate

    def leave(self, gate: "_Gate") -> None:
        """Remove a connection."""
        gate.drop()
        self._gates.discard(gate)


P = TypeVar("P", asyncio.Protocol, asyncio.BufferedProtocol)


class _Door(asyncio.BaseProtocol, Generic[P]):
    """A protocol that forwards every call, with a gate as the transport."""

    def __init__(self, protocol: P, network: TroubledNetwork, peer_port: int | None) -> None:
        self._protocol = protocol
        self._network = network
        self._peer_port = peer_port
        self._gate: _Gate | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._gate = self._network.enter(cast("asyncio.Transport", transport), self._peer_port)
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


def _door(
    protocol: asyncio.BaseProtocol, network: TroubledNetwork, peer_port: int | None = None
) -> asyncio.BaseProtocol:
    if isinstance(protocol, asyncio.BufferedProtocol):
        return _BufferedDoor(protocol, network, peer_port)
    assert isinstance(protocol, asyncio.Protocol)
    return _PlainDoor(protocol, network, peer_port)


class _Gate(asyncio.Transport):
    """A transport that reads and sends only if both the protocol and the network allow it.

    Invariant: bytes leave in the order in which they were written.
    """

    def __init__(
        self, transport: asyncio.Transport, network: TroubledNetwork, peer_port: int | None
    ) -> None:
        super().__init__()
        self._transport = transport
        self._network = network
        self._peer_port = peer_port
        self._wanted = True
        self._held: deque[tuple[float, bytes]] = deque()  # not sent yet, and when it is due
        self._held_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closes = False  # when everything is sent

    @property
    def _is_shut(self) -> bool:
        return self._network.is_shut(self._peer_port)

    def settle(self) -> None:
        """Apply the faults of the network."""
        self._settle_reading()
        self._send_due()

    def pause_reading(self) -> None:
        self._wanted = False
        self._settle_reading()

    def resume_reading(self) -> None:
        self._wanted = True
        self._settle_reading()

    def is_reading(self) -> bool:
        return self._wanted

    def _settle_reading(self) -> None:
        transport, reads = self._transport, self._wanted and not self._is_shut
        if transport.is_closing() or reads == transport.is_reading():
            return
        if reads:
            transport.resume_reading()
        else:
            transport.pause_reading()

    # Sending.

    def write(self, data: Buffer) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        if self._closes:
            return
        delay_s = self._network.delay_s
        if not delay_s and not self._held and not self._is_shut:
            self._transport.writelines(list_of_data)
            return
        held = b"".join(list_of_data)
        self._held.append((asyncio.get_running_loop().time() + delay_s, held))
        self._held_bytes += len(held)
        self._send_due()

    def _send_due(self) -> None:
        if self._is_shut or self._timer is not None:
            return
        loop = asyncio.get_running_loop()
        while self._held and self._held[0][0] <= loop.time():
            _, data = self._held.popleft()
            self._held_bytes -= len(data)
            self._transport.write(data)
        if self._held:
            self._timer = loop.call_at(self._held[0][0], self._due)
        elif self._closes:
            self._transport.close()

    def _due(self) -> None:
        self._timer = None
        self._send_due()

    def drop(self) -> None:
        """Drop what is not sent: the connection has ended."""
        self._held.clear()
        self._held_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # The transport interface of asyncio.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._closes or self._transport.is_closing()

    def close(self) -> None:
        if self._is_shut:  # the connection ends here; what it should have sent is lost
            self.abort()
            return
        self._closes = True
        self._send_due()

    def abort(self) -> None:
        self.drop()
        self._transport.abort()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + self._held_bytes
