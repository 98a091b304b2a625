"""A client of the simulated broker: one connection, with one or several requests in flight."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
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
        self.awaited: deque[asyncio.Future[ReceivedResponse]] = deque()  # the oldest first
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimulatedTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for response in self.conversation.receive(data):
            assert self.awaited, "an answer that nobody asked for"
            awaited = self.awaited.popleft()
            if not awaited.done():
                awaited.set_result(response)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if self.awaited and not self.awaited[0].done():  # nobody waits for the others any more
            self.awaited[0].set_exception(Gone("the connection broke"))


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
        responses = await self.ask_all([message], answer, version, seconds_max=seconds_max)
        if not responses:
            raise Gone(f"{answer.__name__} did not arrive")
        return responses[0]

    async def ask_all(
        self,
        messages: Sequence[Message],
        answer: type[M],
        version: int | None = None,
        *,
        seconds_max: float = REQUEST_SECONDS_MAX,
        on_arrival: Callable[[int, M], None] = lambda number, response: None,
    ) -> list[M]:
        """Send all requests at once; return the responses that came before the connection broke.

        `on_arrival` gets the number of each request with its response, as soon as it arrives.
        """
        found: list[M] = []
        try:
            async with asyncio.timeout(seconds_max):
                for awaited in await self._send(messages, version):
                    response = await awaited
                    assert isinstance(response.message, answer)
                    on_arrival(len(found), response.message)
                    found.append(response.message)
        except (TimeoutError, ConnectionError, Gone):
            self.hang_up()
        return found

    async def _send(
        self, messages: Sequence[Message], version: int | None
    ) -> list["asyncio.Future[ReceivedResponse]"]:
        ear = self._ear
        if ear is None or ear.lost:
            _, ear = await self.world.network.connect(lambda: _Ear(self.name), PORT)
            self._ear = ear
        assert ear.transport is not None
        sent: list[asyncio.Future[ReceivedResponse]] = []
        for message in messages:
            api = message.API
            assert api is not None
            _, buffers = ear.conversation.send(
                message, api.advertised.high if version is None else version
            )
            sent.append(asyncio.get_running_loop().create_future())
            ear.awaited.append(sent[-1])
            ear.transport.writelines(buffers)
        return sent

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
