"""Queues requests of a channel while it is throttled (KIP-219) or authenticating.

Invariant: the queue is active while a login runs or a throttle lasts, whichever ends later. A
throttle lasts at most THROTTLE_SECONDS_MAX. Queued requests are handed over once, in order, when
the queue becomes inactive.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from ottla.errors import RequestError
from ottla.protocol.message import Message

THROTTLE_SECONDS_MAX: Final = 60.0
"""No quota of a broker asks for more; a request must not wait without a bound."""

OnResponse: TypeAlias = Callable[[Message | RequestError], None]
"""Receives the response to a request, or the error that took its place."""


class QueuedRequest(NamedTuple):
    """A request that waits to be sent; `on_response` is None for a request without a response."""

    message: Message
    version: int
    timeout_s: float
    on_response: OnResponse | None
    response: asyncio.Future[Message] | None = None
    """Set if a caller waits for it; a cancelled request is not sent."""


class ThrottleQueue:
    """The queue of one channel; `resume` sends the requests that were queued."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, resume: Callable[[Sequence[QueuedRequest]], None]
    ) -> None:
        self.requests: list[QueuedRequest] = []
        self.is_active = False
        self._loop = loop
        self._resume = resume
        self._is_authenticating = False
        self._throttle_end: asyncio.TimerHandle | None = None

    @property
    def is_throttled(self) -> bool:
        """Whether a throttle that the broker asked for is not over."""
        return self._throttle_end is not None

    def begin_authentication(self) -> None:
        """Queue every request that is not part of the login."""
        assert not self._is_authenticating, "one login at a time"
        self._is_authenticating = self.is_active = True

    def end_authentication(self) -> None:
        """Send queued requests, unless the channel is throttled."""
        self._is_authenticating = False
        self._resume_if_inactive()

    def throttle(self, seconds: float) -> None:
        """Queue requests for this long; a longer throttle that runs already stays."""
        end_s = self._loop.time() + min(seconds, THROTTLE_SECONDS_MAX)
        if self._throttle_end is not None:
            end_s = max(end_s, self._throttle_end.when())
            self._throttle_end.cancel()
        self._throttle_end, self.is_active = self._loop.call_at(end_s, self._unthrottle), True

    def drain(self) -> Sequence[QueuedRequest]:
        """Return the queued requests for good: the connection is lost."""
        if self._throttle_end is not None:
            self._throttle_end.cancel()
        requests, self.requests = self.requests, []
        return requests

    def _unthrottle(self) -> None:
        self._throttle_end = None
        self._resume_if_inactive()

    def _resume_if_inactive(self) -> None:
        if not self._is_authenticating and self._throttle_end is None:
            self.is_active = False
            requests, self.requests = self.requests, []
            self._resume(requests)
