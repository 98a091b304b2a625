"""A broker in the test's process, on real sockets, and a client for it."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import uvloop

from ottla.broker.dispatch import BrokerParts
from ottla.broker.node import Environment, Node
from ottla.broker.process_limits import UNLIMITED, ProcessLimits
from ottla.clock import SystemClock
from ottla.coordination.embedded import EmbeddedStore
from ottla.ids import BrokerId, Uuid
from ottla.log.cleaner.cleaner_runners import LocalCleaner
from ottla.log.files import OsDisk
from ottla.protocol.conversation import ClientConversation
from ottla.protocol.message import Message
from ottla.settings.config_parser import broker_config
from ottla.settings.derived import broker_id
from ottla.testing.troubled_disk import TroubledDisk
from ottla.transport.listener import Listener
from ottla.transport.memory_pool import MemoryPools
from ottla.transport.network import TcpNetwork

M = TypeVar("M", bound=Message)


class Client:
    """A connection that sends one request at a time."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        client_id: str = "test",
    ) -> None:
        self._reader, self._writer = reader, writer
        self._conversation = ClientConversation(client_id)

    async def ask(self, message: Message, answer: type[M], version: int | None = None) -> M:
        api = message.API
        assert api is not None
        _, buffers = self._conversation.send(
            message, api.advertised.high if version is None else version
        )
        self._writer.writelines(buffers)
        while True:
            data = await self._reader.read(1 << 20)
            if not data:
                raise EOFError("the broker closed the connection")
            for response in self._conversation.receive(data):
                assert isinstance(response.message, answer)
                assert getattr(response.message, "throttle_time_ms", 0) == 0
                return response.message

    async def responses(self) -> list[Message]:
        """Return the responses that arrive next, one or more."""
        found: list[Message] = []
        while not found:
            data = await self._reader.read(1 << 20)
            if not data:
                raise EOFError("the broker closed the connection")
            found = [response.message for response in self._conversation.receive(data)]
        return found

    async def ask_all(self, messages: Sequence[Message], answer: type[M], version: int) -> list[M]:
        """Send the requests without waiting for responses, then return all responses."""
        for message in messages:
            self._writer.writelines(self._conversation.send(message, version)[1])
        found: list[M] = []
        while len(found) < len(messages):
            data = await self._reader.read(1 << 20)
            if not data:
                raise EOFError("the broker closed the connection")
            for response in self._conversation.receive(data):
                assert isinstance(response.message, answer)
                found.append(response.message)
        return found

    async def send(self, message: Message, version: int) -> None:
        """Send a request that has no response."""
        _, buffers = self._conversation.send(message, version, answered=False)
        self._writer.writelines(buffers)
        await self._writer.drain()

    async def send_only(self, message: Message, version: int) -> None:
        """Send a request and do not wait for its response."""
        self._writer.writelines(self._conversation.send(message, version)[1])
        await self._writer.drain()

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


class OpenNode(Node):
    """A broker whose parts a test can read and change."""

    parts: BrokerParts

    @property
    def listeners(self) -> list[Listener]:
        return self._listeners

    @property
    def memory(self) -> MemoryPools:
        return self._memory

    async def _serve(self, parts: BrokerParts) -> None:
        self.parts = parts
        await super()._serve(parts)


class RunningBroker:
    def __init__(self, node: OpenNode) -> None:
        self.node = node
        self.parts = node.parts
        self.port = node.addresses["PLAINTEXT"].port
        self._clients: list[Client] = []

    async def client(self, client_id: str = "test") -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port), client_id)
        self._clients.append(client)
        return client

    async def close_clients(self) -> None:
        for client in self._clients:
            await client.close()


@asynccontextmanager
async def broker(
    folder: Path,
    *overrides: str,
    disk: OsDisk | TroubledDisk | None = None,
    limits: ProcessLimits = UNLIMITED,
) -> AsyncGenerator[RunningBroker]:
    """Start a broker with its data in a folder; a broker started there later has the same data."""
    clock, disk, random = SystemClock(), disk or OsDisk(), Random(7)
    store = EmbeddedStore.open(disk, f"{folder}/coordination", clock)
    settings = (
        "node.id=1",
        "listeners=PLAINTEXT://127.0.0.1:0",
        f"log.dirs={folder}/data",
        *overrides,
    )
    around = Environment(
        clock,
        disk,
        TcpNetwork(),
        store,
        LocalCleaner(),
        random.random,
        lambda: Uuid(os.urandom(16)),
        os.urandom,
        limits,
    )
    try:
        config = broker_config(overrides=settings)
        node_id = broker_id(config)
        assert node_id is not None
        async with OpenNode(config, BrokerId(node_id), around) as node:
            running = RunningBroker(node)
            try:
                yield running
            finally:
                await running.close_clients()
    finally:
        await store.close()
        disk.close()


async def closed(reader: asyncio.StreamReader) -> bool:
    """Wait until the peer has closed or reset the connection."""
    with suppress(ConnectionError):
        return await reader.read() == b""
    return True


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())
