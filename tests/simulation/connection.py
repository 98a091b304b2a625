"""A client of the simulated broker: one connection, one request at a time, with retries."""

import asyncio
from typing import TypeVar

from ottla.protocol.conversation import ClientConversation, ReceivedResponse
from ottla.protocol.message import Message
from ottla.testing.network import SimulatedTransport
from ottla.testing.simulation import PORT, Simulation

M = TypeVar("M", bound=Message)

REQUEST_SECONDS_MAX = 8.0


class Gone(Exception):
    """No response arrived; it is unknown whether the request was carried out."""


class _Ear(asyncio.Protocol):
    def __init__(self, name: str) -> None:
        self.conversation = ClientConversation(name)
        self.transport: SimulatedTransport | None = None
        self.awaited: asyncio.Future[ReceivedResponse] | None = None
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimulatedTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for response in self.conversation.receive(data):
            assert self.awaited is not None, "an answer that nobody asked for"
            if not self.awaited.done():
                self.awaited.set_result(response)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if self.awaited is not None and not self.awaited.done():
            self.awaited.set_exception(Gone("the connection broke"))


class Speaker:
    def __init__(self, world: Simulation, name: str) -> None:
        self.world = world
        self.name = name
        self._ear: _Ear | None = None

    async def ask(
        self,
        message: Message,
        answer: type[M],
        version: int | None = None,
        *,
        seconds_max: float = REQUEST_SECONDS_MAX,
    ) -> M:
        """Return the response or raise Gone; after Gone the next request uses a new connection."""
        try:
            async with asyncio.timeout(seconds_max):
                response = await self._ask(message, version)
        except (TimeoutError, ConnectionError) as error:
            self.hang_up()
            raise Gone(str(error)) from None
        except Gone:
            self.hang_up()
            raise
        assert isinstance(response.message, answer)
        return response.message

    async def _ask(self, message: Message, version: int | None) -> ReceivedResponse:
        ear = self._ear
        if ear is None or ear.lost:
            _, ear = await self.world.network.connect(lambda: _Ear(self.name), PORT)
            self._ear = ear
        api = message.API
        assert api is not None
        assert ear.transport is not None
        _, buffers = ear.conversation.send(
            message, api.advertised.high if version is None else version
        )
        ear.awaited = asyncio.get_running_loop().create_future()
        ear.transport.writelines(buffers)
        return await ear.awaited

    def hang_up(self) -> None:
        if self._ear is not None and self._ear.transport is not None:
            self._ear.transport.abort()
        self._ear = None

    def vanish(self) -> None:
        """Disappear without closing the connection."""
        if self._ear is not None and self._ear.transport is not None:
            self._ear.transport.vanish()
        self._ear = None

    async def pause(self, seconds: float) -> None:
        await self.world.clock.sleep(seconds)
