"""Large requests: so many elements that parsing, handling and encoding take long.

A large request is parsed and its response encoded in a thread; its handler runs cooperatively. One
large request is handled at a time, so that many of them do not fill the memory. A request whose
response may wait for others gives up its place while it waits.

Invariant: a large Produce is appended to the end, also if its client disconnects.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from typing import Final

from ottla.broker.request_metrics import RequestMetrics
from ottla.log.disk import Disk
from ottla.log.shield import shielded
from ottla.protocol import apis
from ottla.protocol.conversation import LargeRequest, Request, Response
from ottla.protocol.message import Message
from ottla.protocol.primitives import Buffer
from ottla.transport.connection import Connection, DeferredResponse, Served
from ottla.transport.pending_acks import PendingAck

Handler = Callable[[Request, Connection], Served]
"""Handles the requests of one API."""

_PROMPT: Final = frozenset(
    (
        apis.DESCRIBE_CONFIGS,
        apis.DESCRIBE_GROUPS,
        apis.DESCRIBE_TOPIC_PARTITIONS,
        apis.METADATA,
        apis.OFFSET_FETCH,
        apis.OFFSET_FOR_LEADER_EPOCH,
    )
)
"""These wait neither for records nor for members, and usually not for the disk."""


class LargeRequests:
    """Handles the large requests of a broker."""

    def __init__(
        self,
        *,
        disk: Disk,
        request_metrics: RequestMetrics,
        errors: Callable[[Request, Message], Iterable[int]],
    ) -> None:
        self._disk = disk
        self._request_metrics = request_metrics
        self._errors = errors  # returns the error codes in a response that are counted
        self._turn = asyncio.Lock()

    async def answer(
        self,
        request: LargeRequest,
        connection: Connection,
        handle: Handler,
    ) -> Response | None:
        """Parse the request, handle it and encode the response; raises ProtocolViolation."""
        if request.api is apis.PRODUCE:
            return await self._answer_produce(request, connection, handle)
        async with AsyncExitStack() as place:
            await place.enter_async_context(self._turn)
            await self._disk.blocking(request.read)
            if request.api not in _PROMPT:
                await place.aclose()
            answer = handle(request, connection)
            if isinstance(answer, DeferredResponse):
                answer = await answer.response
            assert not isinstance(answer, PendingAck), "only Produce waits for acknowledgements"
            return await self._encoded(request, answer)

    async def _answer_produce(
        self, request: LargeRequest, connection: Connection, handle: Handler
    ) -> Response | None:
        appended: list[Response | PendingAck] = []  # the response, unless there is none

        async def append() -> None:
            async with self._turn:
                await self._disk.blocking(request.read)
                answer = handle(request, connection)
                if isinstance(answer, DeferredResponse):
                    await answer.response
                    answer = answer.ack
            if answer is not None:
                appended.append(answer)

        try:
            await shielded(append())
        except asyncio.CancelledError:
            for one in appended:
                if isinstance(one, PendingAck):
                    one.cancel()
            raise
        if not appended:
            return None
        (answer,) = appended
        if isinstance(answer, PendingAck):
            response = await answer.completed()
        else:
            response = answer
        async with self._turn:
            return await self._encoded(request, response)

    async def _encoded(self, request: Request, answer: Response | None) -> Response | None:
        if not isinstance(answer, Message):
            return answer
        written = answer
        codes, buffers = await self._disk.blocking(lambda: self._written(request, written))
        counts = self._request_metrics.of(request.api)
        for code, count in codes.items():
            counts.note_error(code, count)
        return buffers

    def _written(self, request: Request, answer: Message) -> tuple[Counter[int], list[Buffer]]:
        return Counter(self._errors(request, answer)), answer.buffers(request.version)
