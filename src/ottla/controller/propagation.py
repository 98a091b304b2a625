"""How far the changes of one request have been applied, and how long the request waits for it."""

import asyncio
import math
from collections.abc import Collection, Coroutine, Mapping
from typing import Any, TypeAlias, TypeVar

from ottla.clock import Clock
from ottla.controller.control_update import Failures
from ottla.errors import ErrorCode, RequestError
from ottla.ids import BrokerId

T = TypeVar("T")

Updates: TypeAlias = "Mapping[BrokerId, asyncio.Future[Failures]]"
"""Updates that were sent to brokers; a future is done when its broker has applied the update."""


class Propagation:
    """The brokers that are late with the changes of one request, and the time that is left.

    A change does not wait for a broker that was late with an earlier change of the same request.
    The request waits for all of them at its end. A broker that dies is no longer waited for.

    Invariant: after the client has left, nothing waits for brokers. A request that has begun to
    change the cluster is carried out to its end all the same, and any other one changes nothing.
    """

    def __init__(self, clock: Clock, timeout_s: float, *, begin_within_s: float = math.inf) -> None:
        """The changes of a request with this timeout; no change begins after `begin_within_s`."""
        self._clock = clock
        self._begin_within_s = begin_within_s
        self._begin_until_s = clock.elapsed_s() + begin_within_s
        self._deadline_s = clock.elapsed_s() + timeout_s
        self._late: dict[BrokerId, asyncio.Future[Failures]] = {}
        self._has_begun = False
        self._client_left: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def carry_out(self, changes: Coroutine[Any, Any, T]) -> T:
        """Carry out the changes of the request; it is cancelled when its client has left."""
        task = asyncio.get_running_loop().create_task(changes)
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as error:
                cancelled = error
                if not self._has_begun:
                    task.cancel()
                elif not self.has_client_left:
                    self._client_left.set_result(None)
        if cancelled is not None:
            if not task.cancelled():
                task.exception()  # nobody gets it; retrieve it for asyncio
            raise cancelled
        return task.result()

    def begin(self) -> None:
        """Note that the first change is about to be stored."""
        self._has_begun = True

    @property
    def has_client_left(self) -> bool:
        """Whether the client has left after the request had begun to change the cluster."""
        return self._client_left.done()

    def check_time(self) -> None:
        """Raise if the request has taken so long that no other of its changes may begin.

        The timeout of the request does not end its changes: it limits the wait for brokers.
        """
        if self._clock.elapsed_s() > self._begin_until_s:
            why = f"not begun: the request has taken more than {self._begin_within_s:g} s"
            raise RequestError(ErrorCode.REQUEST_TIMED_OUT, why)

    @property
    def left_s(self) -> float:
        """The seconds until the timeout."""
        return max(0.0, self._deadline_s - self._clock.elapsed_s())

    @property
    def late(self) -> Updates:
        """The brokers that were late so far, each with its latest update."""
        return dict(self._late)

    def note_late(self, sent: Updates) -> None:
        """Note brokers that have not applied an update in time."""
        self._late.update(sent)

    def without_late(
        self, sent: "dict[BrokerId, asyncio.Future[Failures]]"
    ) -> "dict[BrokerId, asyncio.Future[Failures]]":
        """Return the updates to brokers that were in time so far, and note the others."""
        if not self._late:
            return sent
        self._late.update({broker: one for broker, one in sent.items() if broker in self._late})
        return {broker: one for broker, one in sent.items() if broker not in self._late}

    async def next_applied(
        self, sent: "Collection[asyncio.Future[Failures]]", timeout_s: float
    ) -> "set[asyncio.Future[Failures]]":
        """Wait for the next broker that applies its update; none if the wait is over."""
        await asyncio.wait(
            {*sent, self._client_left},
            timeout=min(timeout_s, self.left_s),
            return_when=asyncio.FIRST_COMPLETED,
        )
        return {one for one in sent if one.done()}

    async def timed_out(self, what: str, updates: Updates) -> RequestError | None:
        """Wait until brokers have applied updates; return an error if they have not in time."""
        waiting = {broker: one for broker, one in updates.items() if not one.done()}
        if waiting:
            await asyncio.wait(waiting.values(), timeout=self.left_s)
        if left := sorted(broker for broker, one in waiting.items() if not one.done()):
            brokers = ", ".join(map(str, left))
            why = f"{what}, but these brokers have not applied it in time: {brokers}"
            return RequestError(ErrorCode.REQUEST_TIMED_OUT, why)
        return None
