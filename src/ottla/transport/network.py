"""The network: somewhere to listen, and somebody to connect to.

Invariant: what listens is told of connections as the event loop tells it, by a protocol with a
transport; so a simulated network gives transports of its own and nothing else changes.
"""

import asyncio
import errno
import os
from collections.abc import Callable
from typing import Protocol


class Server(Protocol):
    """An address that is listened on."""

    @property
    def port(self) -> int:
        """Where."""
        ...

    async def start(self) -> None:
        """Accept connections; until then the address is only held. OSError when that cannot be."""
        ...

    def close(self) -> None:
        """Accept no more; connections that are there stay."""
        ...


class Network(Protocol):
    """Where addresses come from."""

    async def hold(
        self,
        protocol: Callable[[], asyncio.BaseProtocol],
        host: str | None,
        port: int,
        backlog: int,
    ) -> Server:
        """Take an address, None being all of them; OSError when that cannot be."""
        ...


class Connector(Protocol):
    """Who connects."""

    async def connect(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> None:
        """Connect to who listens there; OSError when nobody does."""
        ...


class _TcpServer:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.port = int(server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        await self._server.start_serving()
        # uvloop does not raise where another process listens by now: it closes the socket.
        if any(one.fileno() < 0 for one in self._server.sockets):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))

    def close(self) -> None:
        self._server.close()


class TcpNetwork:
    """TCP, by the event loop that runs."""

    async def hold(
        self,
        protocol: Callable[[], asyncio.BaseProtocol],
        host: str | None,
        port: int,
        backlog: int,
    ) -> Server:
        """Take an address; a host name may stand for several."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            protocol, host or None, port, backlog=backlog, reuse_address=True, start_serving=False
        )
        return _TcpServer(server)

    async def connect(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> None:
        """Connect; of a name with several addresses the first that answers is taken."""
        loop = asyncio.get_running_loop()
        await loop.create_connection(protocol, host, port)
