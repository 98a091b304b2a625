"""Keeps a broker a candidate for the controller: elects it when there is none.

Invariant: while the broker is the controller, it holds the lease of the current controller epoch,
as far as it knows. When a guarded write or the session shows otherwise, it stops controlling before
it is a candidate again (rules B2, B3 and B8).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from ottla.clock import Clock
from ottla.cluster.znodes import CONTROLLER
from ottla.controller.lease import ControllerLease, elect_controller
from ottla.coordination.errors import CoordinationError
from ottla.coordination.session import Session, WatchEvent
from ottla.ids import BrokerId

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
    ) -> None:
        """An elector that calls `on_elected` with the lease and a function that gives it up."""
        self._session = session
        self._node_id = node_id
        self._clock = clock
        self._on_elected = on_elected
        self._on_resigned = on_resigned
        self._changed = asyncio.Event()  # /controller may have changed since it was read
        self._is_controller = False
        self._has_lost = False  # whether a write has shown that the lease has ended

    async def elect(self) -> bool:
        """Become the controller unless another broker is; return whether this broker is."""
        self._changed.clear()
        found = await self._session.exists(CONTROLLER, self._watch)
        if self._is_controller:
            is_mine = found is not None and found.ephemeral_owner == self._session.id
            if is_mine and not self._has_lost:
                return True
            await self._stop_controlling()
        if found is not None:
            return False
        lease = await elect_controller(self._session, self._node_id, self._clock.now_ms())
        if lease is None:
            return False
        self._is_controller = True
        _LOG.info("controller elected", {"broker": self._node_id, "epoch": lease.epoch})
        await self._on_elected(lease, self.resign)
        return True

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
        while True:
            await self._changed.wait()
            try:
                await self.elect()
            except CoordinationError as error:
                _LOG.warning("controller election failed", {"why": str(error)})
                await self._clock.sleep(RETRY_SECONDS)
                self._changed.set()
