"""The network interface: listen on an address, connect to one.

Connections are asyncio protocols with transports, so a simulated network only has to provide its
own transports.
"""

import asyncio
import errno
import os
import select
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol


class Server(Protocol):
    """A bound address."""

    @property
    def port(self) -> int:
        """The bound port."""
        ...

    async def start(self) -> None:
        """Accept connections; raises OSError if another process listens by now."""
        ...

    def close(self) -> None:
        """Stop accepting; open connections stay."""
        ...


class Connector(Protocol):
    """Opens connections."""

    async def connect(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> None:
        """Connect; raises OSError."""
        ...


class Network(Connector, Protocol):
    """Binds addresses, connects to other brokers, and notices clients that leave."""

    async def refuses(self, host: str, port: int) -> bool:
        """Whether every address of a host refuses connections to the port.

        An address that cannot be reached, or does not respond, does not refuse.
        """
        ...

    async def hold(
        self,
        protocol: Callable[[], asyncio.BaseProtocol],
        host: str | None,
        port: int,
        backlog: int,
    ) -> Server:
        """Bind an address, or all addresses for None; raises OSError."""
        ...

    def watch_departure(
        self, transport: asyncio.Transport, departed: Callable[[], None]
    ) -> Callable[[], None]:
        """Call `departed` when the peer closes its end, even while reading is paused.

        Returns a function that ends the watch. The peer may have sent more before it closed.
        """
        ...

    def watch_writable(
        self, transport: asyncio.Transport, writable: Callable[[], None]
    ) -> "WritableWatch | None":
        """Prepare to call `writable` when the socket of a transport can be written again.

        None if the socket must be left to the transport: a simulated network, or TLS.
        """
        ...


class WritableWatch(Protocol):
    """Waits until a socket can be written, beside its transport."""

    def wait(self) -> None:
        """Call the function of the watch once, in a later turn of the event loop."""
        ...

    def end(self) -> None:
        """End the watch: the function is not called any more."""
        ...


class _TcpServer:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.port = int(server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        await self._server.start_serving()
        # If another process listens by now, uvloop closes the socket instead of raising.
        if any(one.fileno() < 0 for one in self._server.sockets):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))

    def close(self) -> None:
        self._server.close()


class _Departures:
    """Reports peers that close their end, through an epoll set of its own.

    The event loop does not see the end of a connection while reading is paused. Invariant: the set
    is open exactly while it watches a connection, so nothing has to close it.
    """

    def __init__(self) -> None:
        self._watched: dict[int, Callable[[], None]] = {}  # by file descriptor
        self._epoll: select.epoll | None = None

    def watch(self, descriptor: int, departed: Callable[[], None]) -> Callable[[], None]:
        if self._epoll is None:
            self._epoll = select.epoll()
            asyncio.get_running_loop().add_reader(self._epoll.fileno(), self._report)
        # Edge-triggered: a departure is reported once, not in every turn of the loop.
        self._epoll.register(descriptor, select.EPOLLRDHUP | select.EPOLLET)
        self._watched[descriptor] = departed
        return partial(self._forget, descriptor, asyncio.get_running_loop())

    def _report(self) -> None:
        if self._epoll is None:
            return  # the last connection ended after the event loop had seen the event
        for descriptor, _ in self._epoll.poll(0, len(self._watched)):
            if (departed := self._watched.get(descriptor)) is not None:
                departed()

    def _forget(self, descriptor: int, loop: asyncio.AbstractEventLoop) -> None:
        del self._watched[descriptor]
        assert self._epoll is not None
        with suppress(OSError):  # the event loop has closed the socket
            self._epoll.unregister(descriptor)
        if not self._watched:
            loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None


class _Writables:
    """Reports sockets that can be written, through an epoll set of its own.

    The event loop does not watch the descriptor of a transport for anybody else. A set of its own
    takes one descriptor for all sockets; a duplicate would take one for each. Invariant: the set is
    open exactly while it watches a socket.
    """

    def __init__(self) -> None:
        self._watched: dict[int, Callable[[], None]] = {}  # by file descriptor
        self._epoll: select.epoll | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def wait(self, descriptor: int, writable: Callable[[], None]) -> None:
        """Call `writable` once."""
        if self._epoll is None:
            self._epoll, self._loop = select.epoll(), asyncio.get_running_loop()
            self._loop.add_reader(self._epoll.fileno(), self._report)
        if descriptor in self._watched:
            self._epoll.modify(descriptor, select.EPOLLOUT | select.EPOLLONESHOT)
        else:
            self._epoll.register(descriptor, select.EPOLLOUT | select.EPOLLONESHOT)
            self._watched[descriptor] = writable

    def _report(self) -> None:
        if self._epoll is None:
            return  # the last watch ended after the event loop had seen the event
        for descriptor, _ in self._epoll.poll(0, len(self._watched)):
            if (writable := self._watched.get(descriptor)) is not None:
                writable()

    def end(self, descriptor: int) -> None:
        """Forget a socket."""
        if self._watched.pop(descriptor, None) is None:
            return
        assert self._epoll is not None
        assert self._loop is not None
        with suppress(OSError):  # the event loop has closed the socket
            self._epoll.unregister(descriptor)
        if not self._watched:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = self._loop = None


class _SocketWatch:
    """Waits until one socket can be written."""

    __slots__ = ("_descriptor", "_writable", "_writables")

    def __init__(
        self, writables: _Writables, descriptor: int, writable: Callable[[], None]
    ) -> None:
        self._writables = writables
        self._descriptor = descriptor
        self._writable = writable

    def wait(self) -> None:
        self._writables.wait(self._descriptor, self._writable)

    def end(self) -> None:
        self._writables.end(self._descriptor)


class TcpNetwork:
    """TCP through the running event loop."""

    def __init__(self) -> None:
        # Only Linux has epoll. Elsewhere a departure is noticed when the response is sent.
        self._departures = _Departures() if hasattr(select, "epoll") else None
        self._writables = _Writables() if hasattr(select, "epoll") else None

    async def hold(
        self,
        protocol: Callable[[], asyncio.BaseProtocol],
        host: str | None,
        port: int,
        backlog: int,
    ) -> Server:
        """Bind an address; a host name may have several."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            protocol, host or None, port, backlog=backlog, reuse_address=True, start_serving=False
        )
        return _TcpServer(server)

    def watch_departure(
        self, transport: asyncio.Transport, departed: Callable[[], None]
    ) -> Callable[[], None]:
        """Call `departed` when the peer closes its end; return a function that ends the watch."""
        socket = transport.get_extra_info("socket")
        if self._departures is None or socket is None:
            return lambda: None
        return self._departures.watch(socket.fileno(), departed)

    def watch_writable(
        self, transport: asyncio.Transport, writable: Callable[[], None]
    ) -> WritableWatch | None:
        """Prepare to call `writable` when the socket of a transport can be written again."""
        socket = transport.get_extra_info("socket")
        is_encrypted = transport.get_extra_info("sslcontext") is not None
        if self._writables is None or socket is None or is_encrypted:
            return None
        return _SocketWatch(self._writables, socket.fileno(), writable)

    async def connect(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> None:
        """Connect to the first address of the host that answers."""
        loop = asyncio.get_running_loop()
        await loop.create_connection(protocol, host, port)

    async def refuses(self, host: str, port: int) -> bool:
        """Whether every address of a host answers a connection attempt with ECONNREFUSED."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError:
            return False
        refusals = await asyncio.gather(*(_is_refused(one[0], one[4]) for one in found))
        return bool(refusals) and all(refusals)


async def _is_refused(family: int, address: "tuple[object, ...]") -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(probe, address)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
