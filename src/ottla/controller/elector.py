"""Keeps a broker a candidate for the controller: elects it when there is none.

Invariant: while the broker is the controller, it holds the lease of the current controller epoch,
as far as it knows. When a guarded write or the session shows otherwise, it stops controlling before
it is a candidate again (rules B2, B3 and B8).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import Final

from ottla.clock import Clock
from ottla.cluster.znodes import CONTROLLER, broker_path
from ottla.controller.lease import (
    ControllerLease,
    CurrentController,
    Resigned,
    elect_controller,
    read_controller,
)
from ottla.coordination.errors import CoordinationError
from ottla.coordination.session import Session, WatchEvent
from ottla.errors import StorageFailure
from ottla.ids import BrokerEpoch, BrokerId

_LOG = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0  # after coordination failed


class ControllerElector:
    """Elects a broker as controller."""

    def __init__(
        self,
        session: Session,
        node_id: BrokerId,
        clock: Clock,
        on_elected: Callable[[ControllerLease, Callable[[], None]], Awaitable[None]],
        on_resigned: Callable[[], Awaitable[None]],
        *,
        dead: Callable[[], Mapping[BrokerId, BrokerEpoch]] = dict,
        session_timeout_s: float = 0.0,
    ) -> None:
        """An elector that calls `on_elected` with the lease and a function that gives it up.

        `dead` returns the brokers that are proven dead. A controller among them is replaced before
        its session expires, at most once per session timeout (rule B13).
        """
        self._session = session
        self._node_id = node_id
        self._clock = clock
        self._on_elected = on_elected
        self._on_resigned = on_resigned
        self._changed = asyncio.Event()  # /controller may have changed since it was read
        self._is_controller = False
        self._has_lost = False  # whether a write has shown that the lease has ended
        self._dead = dead
        self._session_timeout_s = session_timeout_s
        self._replaced_s = -inf  # when it last replaced a controller that was proven dead

    async def elect(self) -> bool:
        """Become the controller unless another broker is; return whether this broker is."""
        self._changed.clear()
        found = await self._session.exists(CONTROLLER, self._watch)
        if self._is_controller:
            is_mine = found is not None and found.ephemeral_owner == self._session.id
            if is_mine and not self._has_lost:
                return True
            await self._stop_controlling()
        dead = None
        if found is not None:
            dead = await self._dead_controller()
            if dead is None:
                return False
        lease = await elect_controller(self._session, self._node_id, self._clock.now_ms(), dead)
        if lease is None:
            return False
        if dead is not None and dead.broker != self._node_id:
            self._replaced_s = self._clock.elapsed_s()
            _LOG.warning("dead controller replaced", {"broker": dead.broker, "epoch": dead.epoch})
        self._is_controller = True
        _LOG.info("controller elected", {"broker": self._node_id, "epoch": lease.epoch})
        try:
            await self._on_elected(lease, self.resign)
        except (CoordinationError, Resigned):
            self.resign()  # it controls nothing: a new election reads everything again
            raise
        return True

    async def _dead_controller(self) -> CurrentController | None:
        """Return the current controller if it does not control any more.

        It may be this broker in an earlier session, or earlier. This session holds the registration
        of the broker id. So the process that was elected is this one, which does not control any
        more, or it is dead; its session may live on.

        Another broker is dead if its newest process is (rule B13): a process registers before it is
        elected, so the registration in the proven broker epoch is that of the controller.
        """
        current = await read_controller(self._session)
        if current is None:
            return None
        registered = await self._session.exists(broker_path(current.broker))
        if registered is None:
            return None
        if current.broker == self._node_id:
            return current if registered.ephemeral_owner == self._session.id else None
        is_dead = self._dead().get(current.broker) == registered.czxid
        return current if is_dead and self._may_replace() else None

    def _may_replace(self) -> bool:
        return self._clock.elapsed_s() - self._replaced_s >= self._session_timeout_s

    def _watch(self, event: WatchEvent) -> None:
        self._changed.set()

    def resign(self) -> None:
        """Stop controlling: a write has shown that another broker has been elected."""
        self._has_lost = True
        self._changed.set()

    async def lose(self) -> None:
        """Stop controlling: the session has expired, and another broker may be elected."""
        await self._stop_controlling()

    def stand(self) -> None:
        """Stand for election again, in a new session."""
        self._changed.set()

    async def _stop_controlling(self) -> None:
        if self._is_controller:
            self._is_controller = self._has_lost = False
            _LOG.warning("controller resigned", {"broker": self._node_id})
            await self._on_resigned()

    async def run(self) -> None:
        """Stand for election whenever there is no controller, until cancelled."""
        logged = ""  # the last failure, because coordination may be away for long
        while True:
            await self._changed.wait()
            try:
                await self.elect()
                logged = ""
            except (CoordinationError, Resigned, StorageFailure) as error:
                if (why := str(error)) != logged:
                    _LOG.warning("controller election failed", {"why": why})
                    logged = why
                await self._clock.sleep(RETRY_SECONDS)
                self._changed.set()
