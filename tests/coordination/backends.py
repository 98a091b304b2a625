"""Interface of an implementation under test: sessions, and control over their connections."""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from itertools import count
from typing import Any, Generic, Protocol, TypeVar

from ottla.clock import SystemClock
from ottla.coordination.embedded import EmbeddedStore
from ottla.coordination.session import Session, SessionState, WatchEvent
from ottla.testing.coordination import ADDRESS, SimulatedCoordination, SimulatedSession
from ottla.testing.disk import SimulatedDisk
from ottla.testing.simulation import Simulation, simulate

T = TypeVar("T")

SIMULATED_SESSION_S = 4.0
PATIENCE_S = 60  # an expected event that takes longer has failed


class Told(Generic[T]):
    """A watch or a listener that records its calls."""

    def __init__(self) -> None:
        self.all: list[T] = []
        self._more = asyncio.Event()

    def __call__(self, news: T) -> None:
        self.all.append(news)
        self._more.set()

    async def until(self, *news: T) -> None:
        """Wait until exactly these have been received."""
        await self.until_count(len(news))
        assert tuple(self.all) == news

    async def until_count(self, count: int) -> None:
        """Wait until this many have been received."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.all) < count:
                self._more.clear()
                await self._more.wait()

    async def until_last(self, news: T) -> None:
        """Wait until this is the last one received."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.all or self.all[-1] != news:
                self._more.clear()
                await self._more.wait()


Watched = Told[WatchEvent]
States = Told[SessionState]


class Backend(Protocol):
    """An implementation with an empty tree."""

    async def session(self, listener: Callable[[SessionState], None] | None = None) -> Session: ...

    async def cut(self, session: Session) -> None:
        """Break the connection of a session."""
        ...

    async def mend(self, session: Session) -> None:
        """Let the session reconnect."""
        ...

    async def expire(self, session: Session) -> None:
        """Expire a connected session from outside."""
        ...

    async def let_expire(self, session: Session) -> None:
        """Leave a session disconnected until it expires."""
        ...


Scenario = Callable[[Backend], Coroutine[Any, Any, None]]
Runner = Callable[[Scenario], None]


def ignore(state: SessionState) -> None:
    """A listener that does nothing."""


class EmbeddedBackend:
    """A store on a simulated disk."""

    def __init__(self, store: EmbeddedStore) -> None:
        self.store = store

    async def session(self, listener: Callable[[SessionState], None] | None = None) -> Session:
        return await self.store.connect(listener or ignore)

    async def cut(self, session: Session) -> None:
        self.store.suspend(session.id)

    async def mend(self, session: Session) -> None:
        self.store.resume(session.id)

    async def expire(self, session: Session) -> None:
        await self.store.expire(session.id)

    async def let_expire(self, session: Session) -> None:
        await self.store.expire(session.id)


def run_embedded(scenario: Scenario) -> None:
    async def program() -> None:
        store = EmbeddedStore.open(SimulatedDisk(), "/data/coordination", SystemClock())
        await scenario(EmbeddedBackend(store))
        await store.close()

    asyncio.run(program())


class SimulatedBackend:
    """Sessions of the cluster simulation, each of a process at its own address."""

    def __init__(self, world: Simulation, coordination: SimulatedCoordination) -> None:
        self._network = world.network
        self._coordination = coordination
        self._numbers = count(1)

    async def session(self, listener: Callable[[SessionState], None] | None = None) -> Session:
        address = f"10.0.0.{next(self._numbers)}"
        client = self._coordination.client(address, copy_context(), lambda: True, lambda: False)
        return await client.connect(listener or ignore)

    async def cut(self, session: Session) -> None:
        address = _address(session)
        self._network.partition(address, ADDRESS)
        self._coordination.break_connections(address)

    async def mend(self, session: Session) -> None:
        self._network.heal(_address(session), ADDRESS)

    async def expire(self, session: Session) -> None:
        await self._coordination.expire(_address(session))

    async def let_expire(self, session: Session) -> None:
        """Stay disconnected; the timeout passes in simulated time."""


def _address(session: Session) -> str:
    assert isinstance(session, SimulatedSession)
    return session.client.address


def run_simulated(scenario: Scenario) -> None:
    async def program(world: Simulation) -> None:
        await world.cluster(0, session_timeout_s=SIMULATED_SESSION_S)
        coordination = world.coordination
        assert coordination is not None
        await scenario(SimulatedBackend(world, coordination))
        await coordination.close()

    simulate(0, program)
