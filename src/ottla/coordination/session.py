"""The coordination interface of the broker, with ZooKeeper's semantics.

Invariant: the operations of a session run in the order of the calls. A watch fires at most once,
and before the session sees the change that it announces: in a later read, or in the write that
triggered it. While a session is suspended, every operation raises ConnectionLoss and nothing new is
sent. Once it is lost, every operation raises SessionExpired, for good.

Listeners and watches are plain functions that the event loop calls; they must not block. A watch
may fire before the read that set it has returned.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import NamedTuple, Protocol

from msgspec import Struct

from ottla.coordination.operations import Operation


class Stat(NamedTuple):
    """Metadata of a node."""

    version: int  # number of times its data was replaced
    czxid: int  # the transaction that created it; a different one means a different node
    mzxid: int  # the transaction that last set its data
    ephemeral_owner: int  # id of the session that owns an ephemeral node; 0: persistent
    children_count: int


class Node(NamedTuple):
    """A node's data and Stat."""

    data: bytes
    stat: Stat


class Change(Enum):
    """The kind of a watch event."""

    CREATED = "the node was created"
    DATA = "the node's data was replaced"
    DELETED = "the node was deleted"
    CHILDREN = "a child was created or deleted"
    DISCONNECTED = "the connection was lost: the watch is removed, read again"


class WatchEvent(Struct, frozen=True):
    """A change of a watched node; read the node for its new state."""

    change: Change
    path: str


Watch = Callable[[WatchEvent], None]

Result = str | Stat | None
"""Result of an operation: the created path, the new Stat, or None."""


class SessionState(Enum):
    """Connection state of a session."""

    CONNECTED = "connected: operations are served"
    SUSPENDED = "disconnected: the session may expire at any moment"
    LOST = "expired: its ephemeral nodes are deleted or about to be"


Listener = Callable[[SessionState], None]


class Session(Protocol):
    """One session; its ephemeral nodes are deleted when it ends."""

    @property
    def id(self) -> int:
        """The session id, the owner of its ephemeral nodes."""
        ...

    @property
    def state(self) -> SessionState:
        """The state that the listener received last."""
        ...

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> str:
        """Create a node and return its path."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """Read a node; the watch fires when it is set or deleted."""
        ...

    async def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """Read many nodes without watches; None for a node that does not exist.

        The reads are not one transaction: others may change nodes in between.
        """
        ...

    async def set(self, path: str, data: bytes, version: int | None = None) -> Stat:
        """Replace a node's data if it has the expected version."""
        ...

    async def delete(self, path: str, version: int | None = None) -> None:
        """Delete a node if it has the expected version and no children."""
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Return the Stat of a node or None; the watch fires when it is created, set or deleted."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the sorted names of a node's children; the watch fires when they change."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Run all operations in one transaction, or none; a NodeError names the one that failed."""
        ...

    async def sync(self) -> None:
        """Return when later reads see every change that was acknowledged before, to any client.

        Call this after a ConnectionLoss and before reading again: another server of the ensemble
        may not have seen the change yet.
        """
        ...

    async def connected(self) -> None:
        """Return when the session is connected; raise SessionExpired if it ends before.

        Use this after a ConnectionLoss. The session timeout limits the wait.
        """
        ...

    def provisional(self) -> AbstractContextManager[None]:
        """Let changes made inside be postponed while the disk is full.

        A postponed change is lost when the process ends, so use this only for changes that every
        start repeats.
        """
        ...

    async def close(self) -> None:
        """End the session and delete its ephemeral nodes. No listener or watch is called."""
        ...


class Coordination(Protocol):
    """A factory of sessions."""

    async def connect(self, listener: Listener) -> Session:
        """Return a connected session; the listener receives its later states."""
        ...
