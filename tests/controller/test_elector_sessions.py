"""A broker stops controlling before it stands for election again (rules B2, B3 and B8)."""

import asyncio
from collections.abc import Callable

import pytest

from coordination.backends import ignore
from ottla.clock import SystemClock
from ottla.cluster.znodes import PERSISTENT_PATHS
from ottla.controller.elector import ControllerElector
from ottla.controller.lease import ControllerLease, Resigned, ensure
from ottla.coordination.embedded import EmbeddedStore
from ottla.coordination.errors import SessionExpired
from ottla.coordination.operations import Create
from ottla.coordination.renewed_session import RenewedSession
from ottla.ids import BrokerId
from ottla.testing.disk import SimulatedDisk


class Candidate:
    """A broker that stands for election, and what happened to it."""

    def __init__(self, number: int, session: RenewedSession, history: list[str]) -> None:
        self.number = number
        self.session = session
        self.leases: list[ControllerLease] = []
        self._history = history
        self.elector = ControllerElector(
            session, BrokerId(number), SystemClock(), self._elected, self._resigned
        )

    async def _elected(self, lease: ControllerLease, resign: Callable[[], None]) -> None:
        self.leases.append(lease)
        self._history.append(f"{self.number} elected in epoch {lease.epoch}")

    async def _resigned(self) -> None:
        self._history.append(f"{self.number} resigned")


class Election:
    """Two candidates on one store."""

    def __init__(self, store: EmbeddedStore, one: Candidate, two: Candidate) -> None:
        self.store = store
        self.one = one
        self.two = two

    @classmethod
    async def begun(cls, history: list[str]) -> "Election":
        store = EmbeddedStore.open(SimulatedDisk(), "/data/coordination", SystemClock())
        candidates: list[Candidate] = []
        for number in (1, 2):
            session = RenewedSession(store, await store.connect(ignore), ignore)
            await ensure(session, PERSISTENT_PATHS)
            candidates.append(Candidate(number, session, history))
        return cls(store, *candidates)


def test_b8_expired_controller_resigns_before_it_stands_again() -> None:
    async def scenario() -> None:
        history: list[str] = []
        election = await Election.begun(history)
        one, two = election.one, election.two
        assert await one.elector.elect()
        assert not await two.elector.elect()
        await election.store.expire(one.session.id)
        await one.elector.lose()
        assert history[-1] == "1 resigned", "before it has a session again"
        assert await two.elector.elect()
        await one.session.renew()
        assert not await one.elector.elect()
        assert history == ["1 elected in epoch 1", "1 resigned", "2 elected in epoch 2"]
        with pytest.raises((Resigned, SessionExpired)):
            await one.leases[0].change([Create("/late")])
        await two.elector.lose()
        await election.store.expire(two.session.id)
        assert await one.elector.elect()
        assert history[-1] == "1 elected in epoch 3", "it takes part in elections again"
        await election.store.close()

    asyncio.run(scenario())


def test_b3_controller_that_was_superseded_resigns() -> None:
    async def scenario() -> None:
        history: list[str] = []
        election = await Election.begun(history)
        one, two = election.one, election.two
        assert await one.elector.elect()
        assert await one.elector.elect(), "nothing has changed"
        one.elector.resign()
        await one.session.delete("/controller")
        assert await two.elector.elect()
        assert not await one.elector.elect()
        assert history == ["1 elected in epoch 1", "2 elected in epoch 2", "1 resigned"]
        await election.store.close()

    asyncio.run(scenario())
