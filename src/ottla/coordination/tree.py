"""The nodes of the embedded store, and how operations change them.

Invariant: every node except the root has its parent in the tree, and ephemeral nodes have no
children. Operations of one commit are applied together or not at all. Replaying the changes of all
transactions in order on an empty tree gives the same tree.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from ottla.coordination.errors import (
    BadVersion,
    NoChildrenForEphemerals,
    NodeError,
    NodeExists,
    NoNode,
    NotEmpty,
)
from ottla.coordination.operations import SEQUENCE_DIGITS, Create, Delete, Operation, SetData
from ottla.coordination.paths import ROOT, name_of, parent_of
from ottla.coordination.session import Change, Node, Result, Stat, WatchEvent

NOBODY: Final = 0  # the owner of persistent nodes


class Made(NamedTuple):
    """A node was created."""

    path: str
    data: bytes
    owner: int


class Replaced(NamedTuple):
    """A node's data was replaced."""

    path: str
    data: bytes


class Removed(NamedTuple):
    """A node was deleted."""

    path: str


class Kept(NamedTuple):
    """A node with all its metadata, as part of a snapshot."""

    path: str
    data: bytes
    version: int
    czxid: int
    mzxid: int
    owner: int
    creations: int  # number of children ever created; the next sequence number


NodeChange = Made | Replaced | Removed | Kept


class Transaction(NamedTuple):
    """Changes that are applied together."""

    zxid: int
    changes: Sequence[NodeChange]


class _TreeNode:
    __slots__ = ("children", "creations", "czxid", "data", "mzxid", "owner", "version")

    def __init__(self, data: bytes, zxid: int, owner: int) -> None:
        self.data = data
        self.version = 0
        self.czxid = zxid
        self.mzxid = zxid
        self.owner = owner
        self.creations = 0
        self.children: set[str] = set()

    @property
    def stat(self) -> Stat:
        return Stat(self.version, self.czxid, self.mzxid, self.owner, len(self.children))


class Tree:
    """Nodes by their paths."""

    def __init__(self) -> None:
        self.zxid = 0  # of the last transaction
        self._nodes = {ROOT: _TreeNode(b"", 0, NOBODY)}
        self._owned: dict[int, set[str]] = {}  # the ephemeral nodes of each session
        self._undo: list[Callable[[], None]] = []  # functions that roll back the unsettled changes

    def __len__(self) -> int:
        return len(self._nodes)

    def get(self, path: str) -> Node:
        """Return a node; raise NoNode if it does not exist."""
        node = self._find(path, 0)
        return Node(node.data, node.stat)

    def get_or_none(self, path: str) -> Node | None:
        """Return a node, or None if it does not exist."""
        node = self._nodes.get(path)
        return None if node is None else Node(node.data, node.stat)

    def exists(self, path: str) -> Stat | None:
        """Return the Stat of a node, or None if it does not exist."""
        node = self._nodes.get(path)
        return None if node is None else node.stat

    def children(self, path: str) -> list[str]:
        """Return the names of a node's children, sorted."""
        return sorted(self._find(path, 0).children)

    def owners(self) -> list[int]:
        """Return the ids of the sessions that have ephemeral nodes."""
        return sorted(self._owned)

    # Changes.

    def commit(
        self, operations: Iterable[Operation], session_id: int
    ) -> tuple[list[Result], Transaction]:
        """Apply operations as one transaction, or raise the NodeError of the first that fails.

        A commit of checks only returns a transaction without changes and uses no zxid.
        """
        zxid = self.zxid + 1
        results: list[Result] = []
        changes: list[NodeChange] = []
        undo: list[Callable[[], None]] = []
        try:
            for index, operation in enumerate(operations):
                change = self._decide(operation, index, session_id)
                if change is not None:
                    undo.append(self._carry_out(change, zxid))
                    changes.append(change)
                results.append(self._result(operation, change))
        except NodeError:
            for step in reversed(undo):
                step()
            raise
        if changes:
            self.zxid = zxid
            self._undo += undo
        return results, Transaction(zxid, changes)

    def end_session(self, session_id: int) -> Transaction:
        """Delete the ephemeral nodes of a session."""
        zxid = self.zxid + 1
        changes = [Removed(path) for path in sorted(self._owned.get(session_id, ()))]
        self._undo += [self._carry_out(change, zxid) for change in changes]
        if changes:
            self.zxid = zxid
        return Transaction(zxid, changes)

    def settle(self) -> None:
        """Make the changes so far permanent."""
        self._undo.clear()

    def take_back(self) -> None:
        """Roll back to the last settled state; the zxids are not reused."""
        while self._undo:
            self._undo.pop()()

    def replay(self, transaction: Transaction) -> None:
        """Apply a transaction from the journal; raise NodeError if it does not fit the tree."""
        for index, change in enumerate(transaction.changes):
            self._check_fits(change, index)
            self._carry_out(change, transaction.zxid)
        self.zxid = transaction.zxid

    def _check_fits(self, change: NodeChange, index: int) -> None:
        if isinstance(change, Replaced | Removed):
            node = self._find(change.path, index)
            if isinstance(change, Removed) and (node.children or change.path == ROOT):
                raise NotEmpty(change.path, index)
        elif isinstance(change, Made) or change.path != ROOT or len(self._nodes) > 1:
            self._check_place(change.path, index)

    @property
    def content_bytes(self) -> int:
        """The size of all paths and data."""
        return sum(len(path.encode()) + len(node.data) for path, node in self._nodes.items())

    def snapshot(self) -> Transaction:
        """Return the whole tree as one transaction, parents before their children."""
        return Transaction(self.zxid, list(self._kept()))

    def _kept(self) -> Iterator[Kept]:
        # A parent's path is a prefix of its children's paths and sorts before them.
        for path in sorted(self._nodes):
            node = self._nodes[path]
            stat = (node.version, node.czxid, node.mzxid, node.owner, node.creations)
            yield Kept(path, node.data, *stat)

    # Decide which change an operation makes.

    def _decide(self, operation: Operation, index: int, session_id: int) -> NodeChange | None:
        if isinstance(operation, Create):
            return self._decide_create(operation, index, session_id)
        node = self._find(operation.path, index)
        if operation.version not in (None, node.version):
            raise BadVersion(operation.path, index)
        if isinstance(operation, SetData):
            return Replaced(operation.path, bytes(operation.data))
        if isinstance(operation, Delete):
            if node.children:
                raise NotEmpty(operation.path, index)
            return Removed(operation.path)
        return None

    def _decide_create(self, operation: Create, index: int, session_id: int) -> Made:
        path = operation.path
        if operation.sequence:
            parent = self._nodes.get(parent_of(path))
            if parent is None:
                raise NoNode(path, index)
            path += f"{parent.creations:0{SEQUENCE_DIGITS}d}"
        self._check_place(path, index)
        owner = session_id if operation.ephemeral else NOBODY
        return Made(path, bytes(operation.data), owner)

    def _check_place(self, path: str, index: int) -> None:
        if path in self._nodes:  # the root always exists
            raise NodeExists(path, index)
        parent = self._nodes.get(parent_of(path))
        if parent is None:
            raise NoNode(path, index)
        if parent.owner != NOBODY:
            raise NoChildrenForEphemerals(path, index)

    def _find(self, path: str, index: int) -> _TreeNode:
        try:
            return self._nodes[path]
        except KeyError:
            raise NoNode(path, index) from None

    def _result(self, operation: Operation, change: NodeChange | None) -> Result:
        if isinstance(operation, Create):
            assert change is not None
            return change.path
        return self._nodes[operation.path].stat if isinstance(operation, SetData) else None

    # Apply a change; each step returns the function that rolls it back.

    def _carry_out(self, change: NodeChange, zxid: int) -> Callable[[], None]:
        if isinstance(change, Made):
            return self._make(change, zxid)
        if isinstance(change, Replaced):
            return self._replace(change, zxid)
        if isinstance(change, Removed):
            node = self._detach(change.path)
            return lambda: self._attach(change.path, node)
        return self._keep(change)

    def _make(self, made: Made, zxid: int) -> Callable[[], None]:
        parent = self._nodes[parent_of(made.path)]
        self._attach(made.path, _TreeNode(made.data, zxid, made.owner))
        parent.creations += 1

        def undo() -> None:
            self._detach(made.path)
            parent.creations -= 1

        return undo

    def _replace(self, replaced: Replaced, zxid: int) -> Callable[[], None]:
        node = self._nodes[replaced.path]
        before = node.data, node.version, node.mzxid
        node.data, node.version, node.mzxid = replaced.data, node.version + 1, zxid

        def undo() -> None:
            node.data, node.version, node.mzxid = before

        return undo

    def _keep(self, kept: Kept) -> Callable[[], None]:
        node = _TreeNode(kept.data, kept.czxid, kept.owner)
        node.version, node.mzxid, node.creations = kept.version, kept.mzxid, kept.creations
        if kept.path == ROOT:
            self._nodes[ROOT] = node
        else:
            self._attach(kept.path, node)
        return lambda: None  # a snapshot is never rolled back

    def _attach(self, path: str, node: _TreeNode) -> None:
        self._nodes[path] = node
        self._nodes[parent_of(path)].children.add(name_of(path))
        if node.owner != NOBODY:
            self._owned.setdefault(node.owner, set()).add(path)

    def _detach(self, path: str) -> _TreeNode:
        node = self._nodes.pop(path)
        self._nodes[parent_of(path)].children.remove(name_of(path))
        if node.owner != NOBODY:
            owned = self._owned[node.owner]
            owned.remove(path)
            if not owned:
                del self._owned[node.owner]
        return node


def events(transaction: Transaction, watched: Container[str]) -> Iterator[WatchEvent]:
    """Yield the events of a transaction at watched paths, in order."""
    for change in transaction.changes:
        path = change.path
        if isinstance(change, Replaced):
            if path in watched:
                yield WatchEvent(Change.DATA, path)
            continue
        if path in watched:
            yield WatchEvent(Change.CREATED if isinstance(change, Made) else Change.DELETED, path)
        if (parent := parent_of(path)) in watched:
            yield WatchEvent(Change.CHILDREN, parent)
