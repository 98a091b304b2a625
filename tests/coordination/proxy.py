"""A proxy to ZooKeeper that can be cut and can drop the server's responses."""

import asyncio
import struct
from contextlib import suppress


class Proxy:
    """Forwards bytes between one session and the server."""

    def __init__(self, port: int) -> None:
        self.port = 0
        self.identity: tuple[int, bytes] = (0, b"")  # of the session, as sent by the server
        self.connections = 0
        self._server_port = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._passing = asyncio.Event()  # responses of the server pass while set
        self._passing.set()
        self._is_cut = False

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Break the connection, and refuse new ones."""
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    def mend(self) -> None:
        self._is_cut = False
        self._passing.set()

    def swallow(self) -> None:
        """From now on forward requests but hold the responses."""
        self._passing.clear()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        self._passing.set()
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        if self._is_cut:
            writer.transport.abort()
            return
        self.connections += 1
        with suppress(OSError):
            theirs, ours = await asyncio.open_connection("127.0.0.1", self._server_port)
            self._writers.add(ours)
            await asyncio.gather(self._pass_on(reader, ours), self._pass_answers(theirs, writer))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.transport.abort()

    async def _pass_answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            # length, protocol, timeout, session id, length of the password, password
            greeting = await reader.readexactly(40)
            _, _, _, session_id, _, password = struct.unpack(">iiiqi16s", greeting)
            if session_id:
                self.identity = session_id, password
            writer.write(greeting)
            while data := await reader.read(65536):
                await self._passing.wait()
                writer.write(data)
        writer.transport.abort()
