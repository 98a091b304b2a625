"""A session that loses requests or responses, as a broken connection does."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from enum import Enum, auto

from ottla.coordination.errors import ConnectionLoss
from ottla.coordination.operations import Create, Delete, Operation, SetData
from ottla.coordination.session import Node, Result, Session, SessionState, Stat, Watch


class Loss(Enum):
    """What a broken connection loses."""

    REQUEST = auto()
    RESPONSE = auto()


class LossySession:
    """A session whose next writes are lost, in order; None is not lost."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.losses: list[Loss | None] = []
        self.writes: list[Sequence[Operation]] = []  # those that arrived
        self.reads = 0  # calls that read
        self.before_write: Callable[[], Awaitable[None]] | None = None  # called once

    @property
    def id(self) -> int:
        return self._session.id

    @property
    def state(self) -> SessionState:
        return self._session.state

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> str:
        (made,) = await self.multi([Create(path, data, ephemeral, sequence)])
        assert isinstance(made, str)
        return made

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        self.reads += 1
        return await self._session.get(path, watch)

    async def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        self.reads += 1
        return await self._session.get_all(paths)

    async def set(self, path: str, data: bytes, version: int | None = None) -> Stat:
        (stat,) = await self.multi([SetData(path, data, version)])
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int | None = None) -> None:
        await self.multi([Delete(path, version)])

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        self.reads += 1
        return await self._session.exists(path, watch)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        self.reads += 1
        return await self._session.children(path, watch)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        loss = self.losses.pop(0) if self.losses else None
        if loss is Loss.REQUEST:
            raise ConnectionLoss
        if (act := self.before_write) is not None:
            self.before_write = None
            await act()
        results = await self._session.multi(operations)
        self.writes.append(operations)
        if loss is Loss.RESPONSE:
            raise ConnectionLoss
        return results

    async def sync(self) -> None:
        await self._session.sync()

    async def connected(self) -> None:
        await self._session.connected()

    def provisional(self) -> AbstractContextManager[None]:
        return self._session.provisional()

    async def close(self) -> None:
        await self._session.close()
