"""The interface: what a broker asks of coordination, with ZooKeeper's semantics.

Invariant: what one session asks for is done in the order in which it was asked. A watch fires at
most once, and before the session sees what it announces: the result of a later read, or of the
write that set it off. While a session is suspended every operation is a ConnectionLoss and nothing
new is sent; once it is lost every operation is SessionExpired, for good.

Listeners and watches are plain functions, called on the event loop; they must not wait. A watch
may fire before the read that armed it has returned.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from ottla.coordination.operations import Operation


class Stat(NamedTuple):
    """What is known of a node beside its data."""

    version: int  # how often its data was replaced
    czxid: int  # the transaction that made it: another one means another node
    mzxid: int  # the transaction that last set its data
    ephemeral_owner: int  # the id of the session with which it goes; 0: it stays
    children_count: int


class Node(NamedTuple):
    """A node as it was read."""

    data: bytes
    stat: Stat


class Change(Enum):
    """What a watch tells."""

    CREATED = "the node is there now"
    DATA = "the node's data was set"
    DELETED = "the node is gone"
    CHILDREN = "a child was made or deleted"
    DISCONNECTED = "the connection broke: nothing is watched any more, read again"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """What happened to a watched node; what it is like now has to be read."""

    change: Change
    path: str


Watch = Callable[[WatchEvent], None]

Result = str | Stat | None
"""Of an operation: the path made, the new Stat, or nothing."""


class SessionState(Enum):
    """How a session is."""

    CONNECTED = "operations are done"
    SUSPENDED = "no connection: ephemeral nodes may go at any moment"
    LOST = "over: ephemeral nodes are gone or about to go"


Listener = Callable[[SessionState], None]


class Session(Protocol):
    """One session; its ephemeral nodes go when it ends."""

    @property
    def id(self) -> int:
        """What its ephemeral nodes have as their owner."""
        ...

    @property
    def state(self) -> SessionState:
        """How it is, as last told to the listener."""
        ...

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> str:
        """Make a node; returns its path."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """Read a node; the watch tells when it is set or deleted."""
        ...

    async def set(self, path: str, data: bytes, version: int | None = None) -> Stat:
        """Replace a node's data if it has the version expected."""
        ...

    async def delete(self, path: str, version: int | None = None) -> None:
        """Delete a node if it has the version expected, and no children."""
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Look at a node; the watch tells when it is made, set or deleted."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """The names of a node's children, sorted; the watch tells when they change."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Do all of it in one transaction or nothing; a NodeError tells which one failed."""
        ...

    async def sync(self) -> None:
        """Return when later reads see everything that was acknowledged to anybody before.

        After a ConnectionLoss this comes before the re-read: another server of the ensemble may
        not have seen the change yet.
        """
        ...

    def provisional(self) -> AbstractContextManager[None]:
        """Inside, changes may be put off while a disk is full, and are lost with the process then.

        For what every start makes anew.
        """
        ...

    async def close(self) -> None:
        """End the session, with its ephemeral nodes. Neither listener nor watch is called."""
        ...


class Coordination(Protocol):
    """Where sessions come from."""

    async def connect(self, listener: Listener) -> Session:
        """A session that is connected; the listener hears how it fares from then on."""
        ...
