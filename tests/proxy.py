"""A proxy in front of each broker that delays, stops, resets and refuses connections.

A client that connects through a Detour reaches every broker through a proxy, whatever addresses the
brokers return.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from types import TracebackType
from typing import Self

from ottla.transport.network import TcpNetwork

HOST = "127.0.0.1"
RESET = struct.pack("ii", 1, 0)  # linger 0: unsent bytes are discarded and the connection is reset


class Trouble:
    """The faults on all connections; none by default."""

    def __init__(self) -> None:
        self.chunk_bytes = 1 << 16
        self.pause_s = 0.0
        self.is_refusing = False
        self.is_mute = False  # responses of the broker are lost
        self.reset_after: Callable[[], int] | None = None
        """The number of bytes that a new connection takes from the client until it is reset."""

        self.cut_answers_after: Callable[[], int] | None = None
        """The number of bytes that a new connection takes from the broker until it is reset."""

        self._flowing = asyncio.Event()
        self._flowing.set()
        self._lines: set[_Line] = set()
        self.resets = 0

    def freeze(self) -> None:
        """Forward nothing and close nothing: connections are half open."""
        self._flowing.clear()

    def thaw(self) -> None:
        self._flowing.set()

    def forget_frozen(self) -> None:
        """Discard the bytes in frozen connections, which stay frozen for ever."""
        for line in self._lines:
            line.is_dead = True

    def reset(self) -> int:
        """Reset all connections; returns their number."""
        lines = [*self._lines]
        for line in lines:
            line.reset()
        return len(lines)

    @property
    def open_lines(self) -> int:
        return len(self._lines)

    async def pass_on(self, line: "_Line", reader: asyncio.StreamReader, to: "_End") -> None:
        while data := await reader.read(self.chunk_bytes):
            await self._flowing.wait()
            if self.pause_s:
                await asyncio.sleep(self.pause_s)
            if line.is_dead or (self.is_mute and to is line.client):
                continue
            if to is line.broker and line.left is not None:
                data, line.left = data[: line.left], line.left - len(data)
            if to is line.client and line.answers_left is not None:
                data, line.answers_left = data[: line.answers_left], line.answers_left - len(data)
            to.writer.write(data)
            await to.writer.drain()
            if line.is_used_up:
                line.reset()
                return

    def opened(self, line: "_Line") -> None:
        self._lines.add(line)

    def closed(self, line: "_Line") -> None:
        self._lines.discard(line)


class _End:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def cut(self) -> None:
        line: socket.socket = self.writer.get_extra_info("socket")
        if not self.writer.is_closing():  # otherwise the socket may be closed
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.writer.transport.abort()


class _Line:
    """A connection of a client, and its connection to the broker."""

    def __init__(self, trouble: Trouble, client: _End, broker: _End) -> None:
        self._trouble = trouble
        self.client, self.broker = client, broker
        self.left = trouble.reset_after() if trouble.reset_after else None
        cut_after = trouble.cut_answers_after
        self.answers_left = cut_after() if cut_after else None
        self.is_dead = False

    @property
    def is_used_up(self) -> bool:
        lefts = (self.left, self.answers_left)
        return any(left is not None and left <= 0 for left in lefts)

    def reset(self) -> None:
        self._trouble.resets += 1
        self.client.cut()
        self.broker.cut()

    async def run(self) -> None:
        self._trouble.opened(self)
        ways = [
            asyncio.create_task(self._trouble.pass_on(self, self.client.reader, self.broker)),
            asyncio.create_task(self._trouble.pass_on(self, self.broker.reader, self.client)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self.client.writer.transport.abort()
            self.broker.writer.transport.abort()
            self._trouble.closed(self)


async def relay(
    trouble: Trouble,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    to: tuple[str, int],
) -> None:
    """Connect an accepted connection to a broker until one of them closes it."""
    try:
        broker = await asyncio.open_connection(*to)
    except OSError:
        writer.transport.abort()
        return
    except BaseException:
        writer.transport.abort()
        raise
    await _Line(trouble, _End(reader, writer), _End(*broker)).run()


class Detour(TcpNetwork):
    """Connects clients through proxies."""

    def __init__(self) -> None:
        self.trouble = Trouble()
        self.made = 0
        self._servers: dict[tuple[str, int], asyncio.Server] = {}
        self._lines: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for server in self._servers.values():
            server.close()
        for line in self._lines:
            line.cancel()
        await asyncio.gather(*self._lines, return_exceptions=True)
        for _ in range(5):  # aborted connections close a loop iteration or two later
            await asyncio.sleep(0)

    async def connect(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> None:
        if self.trouble.is_refusing:
            raise ConnectionRefusedError(111, "Connection refused")
        server = self._servers.get((host, port))
        if server is None:

            def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                line = asyncio.create_task(relay(self.trouble, reader, writer, (host, port)))
                self._lines.add(line)
                line.add_done_callback(self._lines.discard)

            server = self._servers[host, port] = await asyncio.start_server(accepted, HOST, 0)
        self.made += 1
        await super().connect(protocol, HOST, server.sockets[0].getsockname()[1])
