"""Sessions on one embedded store, for tests of the controller."""

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from broker.nodes import run
from ottla.clock import SystemClock
from ottla.cluster.image import PartitionChange, PartitionState
from ottla.cluster.znodes import PERSISTENT_PATHS
from ottla.controller.lease import ControllerLease, elect_controller, ensure
from ottla.coordination.embedded import EmbeddedStore
from ottla.coordination.session import Session, SessionState
from ottla.ids import BrokerId
from ottla.log.files import OsDisk


class Coordinated:
    """A store on which tests open sessions."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self._sessions: list[Session] = []

    async def session(self) -> Session:
        def changed(state: SessionState) -> None:
            pass

        session = await self._store.connect(changed)
        self._sessions.append(session)
        await ensure(session, PERSISTENT_PATHS)
        return session

    async def lease(self, broker: int = 1) -> ControllerLease:
        found = await elect_controller(await self.session(), BrokerId(broker), 0)
        assert found is not None
        return found

    async def close(self) -> None:
        for session in self._sessions:
            await session.close()
        await self._store.close()


@asynccontextmanager
async def _coordinated(folder: Path) -> AsyncGenerator[Coordinated]:
    disk = OsDisk()
    there = Coordinated(EmbeddedStore.open(disk, f"{folder}/journal", SystemClock()))
    try:
        yield there
    finally:
        await there.close()
        disk.close()


def coordinated(folder: Path, scenario: Callable[[Coordinated], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with _coordinated(folder) as there:
            await scenario(there)

    run(whole)


def led_by(broker: BrokerId, topic: str, index: int, before: PartitionState) -> PartitionChange:
    """Elect a broker as leader and only ISR member of a partition."""
    return PartitionChange(topic, index, before, before.led_by(broker, (broker,)))
