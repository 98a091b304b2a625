"""A recess of a connection: what is asked meanwhile waits, and goes on in its order afterwards.

Invariant: it lasts as long as a login is renewed, or as the broker wants no requests (KIP-219),
whichever is longer; a pause is at most PAUSE_MAX_S. What waited is handed over once, at the end.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from ottla.errors import RequestError
from ottla.protocol.message import Message

# No quota of a broker asks for more, and who waits for an answer has a bound.
PAUSE_MAX_S: Final = 60.0

OnResponse: TypeAlias = Callable[[Message | RequestError], None]
"""Is told what became of a request: its answer, or why there is none."""


class QueuedRequest(NamedTuple):
    """A request that waits its turn, and who hears its answer; None for one without."""

    message: Message
    version: int
    timeout_s: float
    tell: OnResponse | None
    answer: asyncio.Future[Message] | None = None
    """Where somebody waits for it, who may give up."""


class ThrottleQueue:
    """Of one connection; `over` takes what waited."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, over: Callable[[Sequence[QueuedRequest]], None]
    ) -> None:
        self.held: list[QueuedRequest] = []
        self.is_on = False
        self._loop = loop
        self._over = over
        self._is_login = False
        self._pause: asyncio.TimerHandle | None = None  # its end

    @property
    def is_pause(self) -> bool:
        """Whether the broker wanted a pause that is not over."""
        return self._pause is not None

    def log_in(self) -> None:
        """A login begins."""
        assert not self._is_login, "one login at a time"
        self._is_login = self.is_on = True

    def logged_in(self) -> None:
        """It is over."""
        self._is_login = False
        self._go_on()

    def rest(self, pause_s: float) -> None:
        """The broker wants a pause before the next request."""
        end_s = self._loop.time() + min(pause_s, PAUSE_MAX_S)
        if self._pause is not None:
            end_s = max(end_s, self._pause.when())
            self._pause.cancel()
        self._pause, self.is_on = self._loop.call_at(end_s, self._rested), True

    def end(self) -> Sequence[QueuedRequest]:
        """The connection is lost: what waited goes nowhere."""
        if self._pause is not None:
            self._pause.cancel()
        held, self.held = self.held, []
        return held

    def _rested(self) -> None:
        self._pause = None
        self._go_on()

    def _go_on(self) -> None:
        if not self._is_login and self._pause is None:
            self.is_on = False
            held, self.held = self.held, []
            self._over(held)
