"""Acknowledgements of a connection that wait: completed by callbacks, sent in request order.

A Produce request whose records are appended may have to wait for its acknowledgement, for example
until a flush. It needs neither a task nor its frame meanwhile: a PendingAck holds the response. The
part that ends the wait, for example the group commit, calls `complete`. The connection appends the
Produce requests behind it, and queues their responses, too.

Invariant: responses leave the queue in the order of their requests, each after it is complete.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from ottla.protocol.conversation import Request, Response

PENDING_ACKS_MAX: Final = 64
"""Requests without a response, above which a connection serves and reads no more."""

PENDING_ACK_BYTES_MAX: Final = 128 * 1024
"""Memory of pending acknowledgements, above which a connection serves and reads no more."""


class PendingAck:
    """A response that is sent after `complete` is called; `size` is about the memory it takes."""

    __slots__ = ("_failure", "_response", "is_complete", "listener", "on_cancel", "on_complete",
                 "on_response", "size")  # fmt: skip

    def __init__(self, response: Response | None, size: int, *, is_complete: bool = False) -> None:
        self._response = response
        self._failure: Exception | None = None
        self.size = size
        self.is_complete = is_complete
        self.listener = ""  # of the connection; a response names brokers by its addresses
        self.on_complete: Callable[[PendingAck], None] | None = None
        self.on_response: Callable[[Response | None], None] | None = None
        self.on_cancel: Callable[[], None] | None = None  # called if it is not needed any more

    def complete(self, failure: Exception | None = None) -> None:
        """Let the response be sent; a failure closes the connection instead."""
        self._failure, self.is_complete = failure, True
        if self.on_complete is not None:
            self.on_complete(self)

    def cancel(self) -> None:
        """End the wait: nobody needs the response any more."""
        if self.on_cancel is not None and not self.is_complete:
            self.on_cancel()

    async def completed(self) -> Response | None:
        """Return the response when it may be sent; raises the failure."""
        if not self.is_complete:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.on_complete = lambda _: None if waiting.done() else waiting.set_result(None)
            try:
                await waiting
            except asyncio.CancelledError:
                self.cancel()
                raise
        return self.take()

    def take(self) -> Response | None:
        """Return the response to send now; raises the failure."""
        if self._failure is not None:
            raise self._failure
        if self.on_response is not None:
            self.on_response(self._response)
        return self._response


class AckQueue:
    """The pending acknowledgements of one connection, in request order.

    It calls `wake` when the first one is complete, and leaves it to the connection to send it: the
    call may come from the middle of another connection's request.
    """

    __slots__ = ("_pending", "_wake", "size")

    def __init__(self, wake: Callable[[], None]) -> None:
        self._pending: deque[tuple[Request, PendingAck]] = deque()
        self._wake = wake
        self.size = 0

    def __len__(self) -> int:
        return len(self._pending)

    def is_full(self, unanswered: int) -> bool:
        """Whether a connection with this many requests without a response has to wait."""
        return unanswered >= PENDING_ACKS_MAX or self.size >= PENDING_ACK_BYTES_MAX

    def add(self, request: Request, ack: PendingAck) -> None:
        """Queue an acknowledgement; drops what its request refers to."""
        request.drop_message()
        self._pending.append((request, ack))
        self.size += ack.size
        if ack.is_complete:
            self._completed(ack)
        else:
            ack.on_complete = self._completed

    def _completed(self, ack: PendingAck) -> None:
        if self._pending and self._pending[0][1] is ack:
            self._wake()

    def take_complete(self) -> list[tuple[Request, PendingAck]]:
        """Remove and return the complete ones before the first that is not."""
        taken: list[tuple[Request, PendingAck]] = []
        pending = self._pending
        while pending and pending[0][1].is_complete:
            taken.append(pending.popleft())
            self.size -= taken[-1][1].size
        return taken

    def cancel(self) -> list[Request]:
        """Drop all of them, because the client has left; return their requests."""
        pending, self._pending, self.size = self._pending, deque(), 0
        for _, ack in pending:
            ack.cancel()
        return [request for request, _ in pending]
