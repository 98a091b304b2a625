"""A simulated network with delays, stalls and broken connections, deterministic per seed.

Invariant: the bytes of one direction of a connection arrive in order and at most once; connections
are independent. Bytes in flight are lost when a connection breaks, and each end notices at its own
time. The window limits the bytes in flight. Beyond it the writer's buffer fills and its protocol is
paused, as with the event loop's own transports.

Two addresses can be partitioned from each other. Nothing arrives between them until the partition
ends, neither bytes nor the end of a connection, and a connection attempt waits. Packets can also be
lost in one direction: then nothing arrives in that direction, and no connection can be opened.
"""

import asyncio
import errno
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeVar

from ottla.protocol.primitives import Buffer
from ottla.testing.trace import Trace

P = TypeVar("P", bound=asyncio.BaseProtocol)

WINDOW_BYTES: Final = 32 * 1024  # in flight or not read yet, per direction
FIRST_FREE_PORT: Final = 49_152
LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Weather:
    """The state of the network; chances apply to each sent chunk."""

    delay_s: float = 0.002  # at most, on a connection that is not slow
    slow_delay_s: float = 0.1
    slow_chance: float = 0.15  # per connection, for its lifetime
    stall_s: float = 3.0
    stall_chance: float = 0.002
    cut_chance: float = 0.002
    split_chance: float = 0.1  # that a chunk arrives in two parts


CALM: Final = Weather(slow_chance=0, stall_chance=0, cut_chance=0, split_chance=0)


class SimulatedTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self,
        wire: "_Wire",
        protocol: asyncio.BaseProtocol,
        context: Context,
        peername: tuple[str, int],
    ) -> None:
        super().__init__({"peername": peername})
        self.peer: SimulatedTransport | None = None
        self.departed: Callable[[], None] | None = None  # called when the peer closes its end
        self._wire = wire
        self._protocol = protocol
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._unsent: deque[bytes] = deque()
        self._unsent_size = 0
        self._high, self._low = 64 * 1024, 16 * 1024
        self._full = False
        self._window = WINDOW_BYTES
        self._flying: deque[bytes] = deque()  # in flight from this end; b"" is end of file
        self._latest_s = 0.0  # arrival time of the last of them
        self._held = 0  # arrivals at this end that wait for the end of a partition
        self._held_loss = False  # the peer broke the connection during a partition
        self._arrived: deque[bytes] = deque()
        self._reading = True
        self._closing = False
        self._over = False  # connection_lost was called or never will be

    # The transport interface of asyncio.

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol."""
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Replace the protocol."""
        self._protocol = protocol

    def is_closing(self) -> bool:
        """Whether it is closed or closing."""
        return self._closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits at which the protocol is paused and resumed."""
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that are written but not in flight."""
        return self._unsent_size

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the low and the high limit."""
        return self._low, self._high

    def is_reading(self) -> bool:
        """Whether arriving data is passed to the protocol."""
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        """Keep arriving data."""
        self._reading = False

    def resume_reading(self) -> None:
        """Pass on the data that has arrived, and later data."""
        if not self._reading:
            self._reading = True
            if self._arrived:
                self._soon(self._hand_on)

    def write(self, data: Buffer) -> None:
        """Send bytes."""
        if self._closing or not len(data):
            return
        self._unsent.append(bytes(data))
        self._unsent_size += len(data)
        self._send()
        if not self._full and self._unsent_size > self._high:
            self._full = True
            self._told().pause_writing()

    def writelines(self, list_of_data: Iterable[Any]) -> None:  # Any: as in the base class
        """Send several buffers as one."""
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """Return False: not needed."""
        return False

    def close(self) -> None:
        """Send the buffered data, then end of file."""
        if not self._closing:
            self._closing = True
            if self._wire.whole:
                self._send()
            else:
                self._soon(self._lose, None)

    def abort(self) -> None:
        """Close at once: data in flight in both directions is lost."""
        self._closing = True
        if not self._over:
            self._soon(self._lose, None)
            self._wire.cut(but=self)

    def vanish(self) -> None:
        """Disappear without notice, as a machine with a pulled cable; no end is notified."""
        self._closing = self._over = True
        self._wire.cut_silently()

    # Transfer of bytes.

    def _told(self) -> asyncio.Protocol:
        assert isinstance(self._protocol, asyncio.Protocol | asyncio.BufferedProtocol)
        return self._protocol  # type: ignore[return-value] - what both have is all that is used

    def _soon(self, call: Callable[..., None], *args: object) -> None:
        self._loop.call_soon(call, *args, context=self._context)

    def _send(self) -> None:
        """Send as much as the window allows."""
        if not self._wire.whole:
            return
        while self._unsent and self._window:
            data = self._unsent.popleft()
            size = self._wire.piece_size(min(len(data), self._window))
            if size < len(data):
                self._unsent.appendleft(data[size:])
            self._unsent_size -= size
            self._window -= size
            self._fly(data[:size])
        if self._full and self._unsent_size <= self._low:
            self._full = False
            self._soon(self._told().resume_writing)
        if self._closing and not self._unsent and not self._over:
            self._fly(b"")
            self._over = True
            self._soon(self._tell_lost, None)

    def _fly(self, data: bytes) -> None:
        peer = self.peer
        assert peer is not None
        when_s = self._latest_s = max(self._latest_s, self._loop.time() + self._wire.delay_s())
        self._flying.append(data)
        # Schedule without the data: two chunks that arrive at the same moment may be called in any
        # order.
        self._loop.call_at(when_s, peer._arrive, context=peer._context)  # noqa: SLF001

    def _arrive(self) -> None:
        """Receive the oldest chunk in flight from the peer."""
        peer = self.peer
        assert peer is not None
        if not peer._flying or self._over:  # noqa: SLF001 - lost on the way, or nobody is here
            return
        if self._wire.hold(self):
            self._held += 1
            return
        data = peer._flying.popleft()  # noqa: SLF001
        self._arrived.append(data)
        if self._wire.breaks():
            self._wire.cut()
            return
        if not data and self.departed is not None:
            self.departed()
        self._hand_on()

    def forget_departure(self) -> None:
        """Stop watching for the end of the peer."""
        self.departed = None

    def _hand_on(self) -> None:
        peer = self.peer
        assert peer is not None
        while self._arrived and self._reading and not self._closing:
            data = self._arrived.popleft()
            self._wire.note(self, data)
            if not data:
                if not self._told().eof_received():
                    self.close()
                return
            _give(self._protocol, data)
            peer._window += len(data)  # noqa: SLF001
            peer._send()  # noqa: SLF001

    # End of the connection.

    def lose(self, after_s: float) -> None:
        """Report a broken connection to this end after a delay, or after a partition."""
        if not self._over and self._wire.hold(self):
            self._held_loss = True
        elif not self._over:
            self._loop.call_at(
                self._loop.time() + after_s,
                self._lose,
                ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)),
                context=self._context,
            )

    def let_go(self) -> None:
        """Let everything arrive that waited for the end of a partition."""
        held, self._held = self._held, 0
        for _ in range(held):
            when_s = self._loop.time() + self._wire.delay_s()
            self._loop.call_at(when_s, self._arrive, context=self._context)
        if self._held_loss:
            self._held_loss = False
            self.lose(self._wire.delay_s())

    def _lose(self, reason: Exception | None) -> None:
        self._closing = True
        if not self._over:
            self._over = True
            self._tell_lost(reason)

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens at this end."""
        return self._over

    def _tell_lost(self, reason: Exception | None) -> None:
        self._drop()
        self._wire.note_end()
        self._protocol.connection_lost(reason)

    def die(self) -> None:
        """End this process's side without notifying its protocol."""
        self._closing = self._over = True
        self._wire.cut(but=self)

    def _drop(self) -> None:
        self._unsent.clear()
        self._unsent_size = 0
        self._arrived.clear()

    def empty(self) -> None:
        """Drop all data that this end has sent or received."""
        self._drop()
        self._flying.clear()


class _Wire:
    """The state shared by the two ends of a connection."""

    def __init__(
        self,
        network: "SimulatedNetwork",
        number: int,
        direction: tuple[str, str],
        random: Random,
        trace: Trace,
    ) -> None:
        self.number = number
        self.direction = direction  # from the address that opened it to the other one
        self.addresses = frozenset(direction)
        self.whole = True
        self.ends: list[SimulatedTransport] = []
        self._network = network
        self._weather = weather = network.weather
        self._random = random
        self._trace = trace
        slow = random.random() < weather.slow_chance
        self._delay_s = weather.slow_delay_s if slow else weather.delay_s

    def delay_s(self) -> float:
        delay_s = self._delay_s * (0.1 + 0.9 * self._random.random())
        if self._random.random() < self._weather.stall_chance:
            self._network.counts["stalls"] += 1
            delay_s += self._weather.stall_s * self._random.random()
        return delay_s + self._network.delays_s.get(self.addresses, 0.0)

    def hold(self, receiver: SimulatedTransport) -> bool:
        """Whether nothing arrives at an end; `let_go` is called when that may have ended."""
        return self._network.is_disturbed and self._network.hold(self, self.ends.index(receiver))

    def let_go(self) -> None:
        """Let everything arrive that waited for the end of a partition."""
        for end in self.ends:
            end.let_go()

    def breaks(self) -> bool:
        if self._random.random() >= self._weather.cut_chance:
            return False
        self._network.counts["connections broken"] += 1
        return True

    def piece_size(self, size: int) -> int:
        if size > 1 and self._random.random() < self._weather.split_chance:
            self._network.counts["split messages"] += 1
            return self._random.randrange(1, size)
        return size

    def note(self, receiver: SimulatedTransport, data: bytes) -> None:
        self._trace.note("arrived", self.number, self.ends.index(receiver), data)

    def cut(self, but: SimulatedTransport | None = None) -> None:
        """Break the connection and notify the ends, except `but`."""
        if self.whole:
            self._trace.note("cut", self.number)
            self.cut_silently()
            for end in self.ends:
                if end is not but:
                    end.lose(self.delay_s())

    def note_end(self) -> None:
        """Forget the connection when both ends are over."""
        if all(end.is_over for end in self.ends):
            self._network.close(self)

    def cut_silently(self) -> None:
        self.whole = False
        self._network.close(self)
        for end in self.ends:
            end.empty()


def _give(protocol: asyncio.BaseProtocol, data: bytes) -> None:
    if isinstance(protocol, asyncio.BufferedProtocol):
        rest = memoryview(data)
        while len(rest):
            room = memoryview(protocol.get_buffer(len(rest)))
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            rest = rest[count:]
            protocol.buffer_updated(count)
    else:
        assert isinstance(protocol, asyncio.Protocol)
        protocol.data_received(data)


class _Server:
    def __init__(
        self, host: "SimulatedHost", factory: Callable[[], asyncio.BaseProtocol], port: int
    ) -> None:
        self.host = host
        self.factory = factory
        self.port = port
        self.accepts = False

    async def start(self) -> None:
        self.accepts = True

    def close(self) -> None:
        self.accepts = False
        self.host.release(self)


class SimulatedHost:
    """A process on the network with its servers and connections.

    Processes can share an address; each of them has its own ports.
    """

    def __init__(self, network: "SimulatedNetwork", context: Context, address: str) -> None:
        self.context = context  # the context in which its protocols are called
        self.address = address
        self.ends: list[SimulatedTransport] = []
        self._network = network
        self._servers: list[_Server] = []
        self._is_dead = False

    async def hold(
        self,
        protocol: Callable[[], asyncio.BaseProtocol],
        host: str | None,
        port: int,
        backlog: int,
    ) -> _Server:
        """Bind a port of the own address; `host` is the own address or None."""
        if host not in (None, self.address):
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        server = _Server(self, protocol, self._network.take(self.address, port))
        self._network.servers[self.address, server.port] = server
        self._servers.append(server)
        return server

    async def connect(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> None:
        """Connect to the process that listens on an address; raises OSError."""
        await self._network.connect(protocol, port, host, self)

    async def refuses(self, host: str, port: int) -> bool:
        """Whether an address refuses connections."""
        return await self._network.refuses(self, host, port)

    def check_alive(self) -> None:
        """Raise if the process has ended: it opens no connections."""
        if self._is_dead:
            raise ConnectionAbortedError(errno.ECONNABORTED, os.strerror(errno.ECONNABORTED))

    def watch_departure(
        self, transport: asyncio.Transport, departed: Callable[[], None]
    ) -> Callable[[], None]:
        """Call `departed` when the other end is closed; return a function that ends the watch."""
        assert isinstance(transport, SimulatedTransport)
        transport.departed = departed
        return transport.forget_departure

    def watch_writable(self, transport: asyncio.Transport, writable: Callable[[], None]) -> None:
        """Return None: there is no socket."""

    def release(self, server: _Server) -> None:
        """Release an address."""
        if self._network.servers.get((self.address, server.port)) is server:
            del self._network.servers[self.address, server.port]

    def die(self) -> None:
        """End at once: its protocols are not called any more."""
        self._is_dead = True
        for server in self._servers:
            server.close()
        for end in self.ends:
            end.die()


class SimulatedNetwork:
    """The network between simulated processes; `weather` may change at any time."""

    def __init__(self, random: Random, trace: Trace, weather: Weather = CALM) -> None:
        self.weather = weather
        self.counts: Counter[str] = Counter()  # of what the weather did
        self.servers: dict[tuple[str, int], _Server] = {}  # by address and port
        self.delays_s: dict[frozenset[str], float] = {}  # by pair of addresses, beside the weather
        self._random = random
        self._trace = trace
        self._wires = 0
        self._partitions: set[frozenset[str]] = set()  # pairs of addresses
        self._refused: set[tuple[str, str]] = set()  # from one address to another
        self._lossy: set[tuple[str, str]] = set()  # from one address to another
        self.is_disturbed = False  # whether addresses are partitioned, or packets are lost
        self._open: dict[_Wire, None] = {}  # connections that are not broken
        self._held: dict[_Wire, None] = {}  # connections for which something waits
        self._healed = asyncio.Event()  # connection attempts wait for it

    def host(self, context: Context | None = None, address: str = LOOPBACK) -> SimulatedHost:
        """Return a new process."""
        return SimulatedHost(self, copy_context() if context is None else context, address)

    def partition(self, one: str, other: str) -> None:
        """Let nothing arrive between two addresses until `heal`."""
        self._partitions.add(frozenset((one, other)))
        self.is_disturbed = True

    def heal(self, one: str, other: str) -> None:
        """End the partition between two addresses."""
        self._partitions.discard(frozenset((one, other)))
        self._let_go()

    def lose(self, source: str, address: str) -> None:
        """Lose all packets from one address to another, until `deliver`.

        What is sent arrives later: TCP sends it again. Nobody notices before that.
        """
        self._lossy.add((source, address))
        self.is_disturbed = True

    def deliver(self, source: str, address: str) -> None:
        """End what `lose` began."""
        self._lossy.discard((source, address))
        self._let_go()

    def _let_go(self) -> None:
        self.is_disturbed = bool(self._partitions or self._lossy)
        self._healed.set()
        self._healed = asyncio.Event()
        for wire in [wire for wire in self._held if wire.addresses not in self._partitions]:
            del self._held[wire]
            wire.let_go()

    def refuse(self, source: str, address: str) -> None:
        """Let a firewall reset the connections from one address to another, until `allow`.

        Both processes live, and connections in the other direction are not affected.
        """
        self._refused.add((source, address))
        for wire in [wire for wire in self._open if wire.direction == (source, address)]:
            wire.cut()

    def allow(self, source: str, address: str) -> None:
        """End what `refuse` began."""
        self._refused.discard((source, address))

    def is_partitioned(self, one: str, other: str) -> bool:
        """Whether two addresses are partitioned."""
        return frozenset((one, other)) in self._partitions

    def hold(self, wire: "_Wire", receiver: int) -> bool:
        """Whether nothing arrives at one of the two ends of a connection; `heal` lets go of it."""
        packets = (wire.direction[1 - receiver], wire.direction[receiver])
        if wire.addresses not in self._partitions and packets not in self._lossy:
            return False
        self._held[wire] = None
        return True

    def take(self, address: str, port: int) -> int:
        """Return a free port: the given one, or any for 0."""
        if port == 0:
            ports = range(FIRST_FREE_PORT, 65536)
            port = next(number for number in ports if (address, number) not in self.servers)
        if (address, port) in self.servers:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        return port

    async def connect(
        self,
        factory: Callable[[], P],
        port: int,
        address: str = LOOPBACK,
        host: SimulatedHost | None = None,
    ) -> tuple[SimulatedTransport, P]:
        """Connect as `loop.create_connection` does, including ConnectionRefusedError.

        `host` is the process that connects; None is a client without servers at LOOPBACK.
        """
        source = LOOPBACK if host is None else host.address
        wire, server = await self._reach(source, address, port, host)
        ours = factory()
        theirs = server.factory()
        client = SimulatedTransport(wire, ours, copy_context(), (address, port))
        from_client = (source, 1024 + wire.number)
        accepted = SimulatedTransport(wire, theirs, server.host.context, from_client)
        client.peer, accepted.peer = accepted, client
        wire.ends += [client, accepted]
        server.host.ends.append(accepted)
        if host is not None:
            host.ends.append(client)
        asyncio.get_running_loop().call_soon(
            theirs.connection_made, accepted, context=server.host.context
        )
        ours.connection_made(client)
        self._open[wire] = None
        return client, ours

    async def refuses(self, host: SimulatedHost, address: str, port: int) -> bool:
        """Whether an address refuses the connections of a process."""
        try:
            await self._reach(host.address, address, port, host)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        return False

    async def _reach(
        self, source: str, address: str, port: int, host: SimulatedHost | None
    ) -> "tuple[_Wire, _Server]":
        """Find the server of a new connection, after the delays of the network."""
        self._wires += 1
        wire = _Wire(self, self._wires, (source, address), self._random, self._trace)
        await asyncio.sleep(wire.delay_s())
        while self._is_cut(wire):
            await self._healed.wait()
            await asyncio.sleep(wire.delay_s())
        if host is not None:
            host.check_alive()
        server = self.servers.get((address, port))
        if server is None or not server.accepts or (source, address) in self._refused:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        return wire, server

    def _is_cut(self, wire: "_Wire") -> bool:
        """Whether a connection cannot be opened: that takes packets in both directions."""
        if not self.is_disturbed:
            return False
        return wire.addresses in self._partitions or not self._lossy.isdisjoint(
            (wire.direction, wire.direction[::-1])
        )

    def close(self, wire: "_Wire") -> None:
        """Forget a connection that is broken."""
        self._open.pop(wire, None)
