"""Wide requests: with so many elements that reading, answering and writing take long.

Invariant: a wide request is read, and its answer written, in a thread, so that the event loop is
held up by neither; the handler works in turns. One at a time is read and answered, so that many of
them do not fill the memory with what was read; only those whose answer may wait for others let go
of their place then. What was sent is appended, be who sent it gone or not.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from typing import Final

from ottla.broker.state import BrokerState
from ottla.log.shield import shielded
from ottla.protocol import apis
from ottla.protocol.conversation import Request, Response, WideRequest
from ottla.protocol.message import Message
from ottla.protocol.primitives import Buffer
from ottla.transport.connection import Connection, DeferredResponse

_PROMPT: Final = frozenset(
    (
        apis.DESCRIBE_CONFIGS,
        apis.DESCRIBE_GROUPS,
        apis.DESCRIBE_TOPIC_PARTITIONS,
        apis.METADATA,
        apis.OFFSET_FETCH,
        apis.OFFSET_FOR_LEADER_EPOCH,
        apis.PRODUCE,
    )
)
"""They wait neither for records or members nor, as a rule, for the device."""


class LargeRequests:
    """Those of a broker."""

    def __init__(
        self, state: BrokerState, errors: Callable[[Request, Message], Iterable[int]]
    ) -> None:
        self._state = state
        self._errors = errors  # the codes in an answer that are to be counted
        self._turn = asyncio.Lock()

    async def answer(
        self,
        request: WideRequest,
        connection: Connection,
        handle: Callable[[BrokerState, Request, Connection], Response | DeferredResponse | None],
    ) -> Response | None:
        """Read, answer and write; ProtocolViolation when it is no request."""
        work = self._answer(request, connection, handle)
        return await (shielded(work) if request.api is apis.PRODUCE else work)

    async def _answer(
        self,
        request: WideRequest,
        connection: Connection,
        handle: Callable[[BrokerState, Request, Connection], Response | DeferredResponse | None],
    ) -> Response | None:
        blocking = self._state.logs.disk.blocking
        async with AsyncExitStack() as place:
            await place.enter_async_context(self._turn)
            await blocking(request.read)
            if request.api not in _PROMPT:
                await place.aclose()
            answer = handle(self._state, request, connection)
            if isinstance(answer, DeferredResponse):
                answer = await answer.response
            if not isinstance(answer, Message):
                return answer
            written = answer
            codes, buffers = await blocking(lambda: self._written(request, written))
        counts = self._state.requests[request.api.key]
        for code, count in codes.items():
            counts.note_error(code, count)
        return buffers

    def _written(self, request: Request, answer: Message) -> tuple[Counter[int], list[Buffer]]:
        return Counter(self._errors(request, answer)), answer.buffers(request.version)
