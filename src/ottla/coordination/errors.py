"""Exceptions of coordination.

Invariant: a NodeError means that nothing was changed; `index` is the position of the failed
operation in a multi, and 0 outside one. After a ConnectionLoss the change may or may not have been
made: read again (rule B6). After SessionExpired the session is unusable, and its ephemeral nodes
are deleted or about to be (rule B8).
"""

from ottla.errors import OttlaError


class CoordinationError(OttlaError):
    """Base of every exception that coordination raises, except StorageFailure."""


class NodeError(CoordinationError):
    """An operation was refused; nothing was changed."""

    text = "refused"

    def __init__(self, path: str, index: int = 0) -> None:
        super().__init__(path, index)
        self.path = path
        self.index = index

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


class NoNode(NodeError):
    """The node does not exist, or the parent of a node to create does not."""

    text = "the node or its parent does not exist"


class NodeExists(NodeError):
    """The node to create exists already."""

    text = "the node exists already"


class BadVersion(NodeError):
    """The node's version differs from the expected version."""

    text = "the node's version differs from the expected version"


class NotEmpty(NodeError):
    """The node to delete has children."""

    text = "the node has children"


class NoChildrenForEphemerals(NodeError):
    """The parent is an ephemeral node, which cannot have children."""

    text = "an ephemeral node cannot have children"


class InvalidPath(NodeError):
    """The path is malformed, or the operation is not allowed on it."""

    text = "the path is invalid or not allowed here"


class TooLarge(NodeError):
    """The request is larger than ZooKeeper accepts."""

    text = "the request is larger than coordination accepts"


class ConnectionLoss(CoordinationError):
    """The connection broke: a change may or may not have been made."""

    def __str__(self) -> str:
        return "the connection was lost: a change may or may not have been made"


class SessionExpired(CoordinationError):
    """The session has expired; open a new one."""

    def __str__(self) -> str:
        return "the session has expired"


class StoreRefused(CoordinationError):
    """The file of the embedded store is damaged; an operator has to decide what to do."""


class StoreInUse(StoreRefused):
    """Another process holds the file."""


class EnsembleFailed(CoordinationError):
    """ZooKeeper is unreachable or its server did not start; the text lists what was tried."""
