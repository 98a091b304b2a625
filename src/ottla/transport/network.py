"""The network interface: listen on an address, connect to one.

Connections are asyncio protocols with transports, so a simulated network only has to provide its
own transports.
"""

import asyncio
import errno
import os
from collections.abc import Callable
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


class Network(Protocol):
    """Binds addresses."""

    async def hold(
        self,
        protocol: Callable[[], asyncio.BaseProtocol],
        host: str | None,
        port: int,
        backlog: int,
    ) -> Server:
        """Bind an address, or all addresses for None; raises OSError."""
        ...


class Connector(Protocol):
    """Opens connections."""

    async def connect(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> None:
        """Connect; raises OSError."""
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


class TcpNetwork:
    """TCP through the running event loop."""

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

    async def connect(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> None:
        """Connect to the first address of the host that answers."""
        loop = asyncio.get_running_loop()
        await loop.create_connection(protocol, host, port)
