"""The session of a broker over its whole life: a new session replaces one that has expired.

Invariant: operations go to the newest session, and an expired session is never used again. Whoever
owns ephemeral nodes creates them again after `renew` (rule B8).
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from ottla.coordination.operations import Operation
from ottla.coordination.session import (
    Coordination,
    Listener,
    Node,
    Result,
    Session,
    SessionState,
    Stat,
    Watch,
)


class RenewedSession:
    """Delegates to the current session."""

    __slots__ = ("_coordination", "_current", "_listener")

    def __init__(self, coordination: Coordination, current: Session, listener: Listener) -> None:
        self._coordination = coordination
        self._current = current
        self._listener = listener

    async def renew(self) -> None:
        """Open a new session in place of one that has expired."""
        self._current = await self._coordination.connect(self._listener)

    @property
    def id(self) -> int:
        """The id of the current session."""
        return self._current.id

    @property
    def state(self) -> SessionState:
        """The state of the current session."""
        return self._current.state

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> str:
        """Create a node and return its path."""
        return await self._current.create(path, data, ephemeral=ephemeral, sequence=sequence)

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """Read a node."""
        return await self._current.get(path, watch)

    async def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """Read many nodes; None for a node that does not exist."""
        return await self._current.get_all(paths)

    async def set(self, path: str, data: bytes, version: int | None = None) -> Stat:
        """Replace a node's data if it has the expected version."""
        return await self._current.set(path, data, version)

    async def delete(self, path: str, version: int | None = None) -> None:
        """Delete a node if it has the expected version and no children."""
        await self._current.delete(path, version)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Return the Stat of a node, or None if it does not exist."""
        return await self._current.exists(path, watch)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names of a node's children, sorted."""
        return await self._current.children(path, watch)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Run all operations in one transaction, or none of them."""
        return await self._current.multi(operations)

    async def sync(self) -> None:
        """Return when later reads see everything that was acknowledged before."""
        await self._current.sync()

    async def connected(self) -> None:
        """Return when the current session is connected; raise SessionExpired if it ends before."""
        await self._current.connected()

    def provisional(self) -> AbstractContextManager[None]:
        """Let changes made inside be postponed while the disk is full."""
        return self._current.provisional()

    async def close(self) -> None:
        """End the current session and delete its ephemeral nodes."""
        await self._current.close()
