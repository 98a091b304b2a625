"""Sends one broker the updates of the controller, in the order of its decisions.

Invariant: an update is sent again until the broker has applied or refused it, or the link is
closed. A later update is not sent before that, so a broker never sees decisions out of order.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from ottla.clock import Clock
from ottla.controller.control_update import ControlUpdate, Failures
from ottla.errors import ErrorCode, RequestError
from ottla.ids import BrokerId
from ottla.transport.failures import Disconnected, TimedOut

_LOG = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.1  # between two attempts to send an update

# The broker knows a later controller, or has registered again: it wants nothing more of this link.
_OUTDATED: Final = frozenset((ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH))


class _Sent(NamedTuple):
    update: ControlUpdate
    applied: asyncio.Future[Failures]


class BrokerLink:
    """The updates that one registration of a broker has not applied yet."""

    def __init__(
        self,
        broker: BrokerId,
        apply: Callable[[ControlUpdate], Awaitable[Failures]],
        clock: Clock,
        acts: asyncio.Event | None = None,
    ) -> None:
        """A link that calls `apply` for each update, while `acts` is set if it is given.

        `apply` raises Disconnected or TimedOut if the outcome is unknown, and RequestError if the
        broker refuses the update.
        """
        self._broker = broker
        self._apply = apply
        self._clock = clock
        self._acts = acts
        self._waiting: deque[_Sent] = deque()
        self._working: asyncio.Task[None] | None = None
        self._is_closed = False

    def send(self, update: ControlUpdate) -> "asyncio.Future[Failures]":
        """Send an update after those before it; the result has the partitions that failed."""
        applied: asyncio.Future[Failures] = asyncio.get_running_loop().create_future()
        if self._is_closed:
            applied.set_result({})
            return applied
        self._waiting.append(_Sent(update, applied))
        if self._working is None:
            self._working = asyncio.get_running_loop().create_task(self._work())
        return applied

    async def _work(self) -> None:
        try:
            while self._waiting:
                update, applied = self._waiting[0]
                try:
                    failures = await self._applied(update)
                except Exception as error:
                    self._waiting.popleft()
                    if not applied.done():
                        applied.set_exception(error)
                    continue
                self._waiting.popleft()
                if not applied.done():
                    applied.set_result(failures)
        except asyncio.CancelledError:
            self._forget()
            raise
        finally:
            self._working = None

    async def _applied(self, update: ControlUpdate) -> Failures:
        while True:
            if self._acts is not None:
                await self._acts.wait()
            try:
                return await self._apply(update)
            except (Disconnected, TimedOut) as error:
                _LOG.debug("control update not sent", {"broker": self._broker, "why": str(error)})
            except RequestError as error:
                if error.code in _OUTDATED:
                    _LOG.info("control update refused", {"broker": self._broker, "why": error.code})
                    self._forget()
                    return {}
                raise
            await self._clock.sleep(RETRY_SECONDS)

    def _forget(self) -> None:
        """Give up the updates that wait; their senders must not wait for them."""
        self._is_closed = True
        for _, applied in self._waiting:
            if not applied.done():
                applied.set_result({})

    async def close(self) -> None:
        """Send nothing more: the broker or the controller has gone."""
        self._forget()
        if (working := self._working) is not None:
            working.cancel()
            await asyncio.wait((working,))  # a cancellation of the caller is not lost
        self._waiting.clear()
