"""What goes wrong in coordination.

Invariant: a NodeError says that nothing was changed, and which operation is to blame: `index` is
its place in a multi, 0 outside of one. A ConnectionLoss says nothing about what was changed: read
again (rule B6). After SessionExpired the session is of no use any more, and its ephemeral nodes are
gone or about to go (rule B8).
"""

from ottla.errors import OttlaError


class CoordinationError(OttlaError):
    """Everything that coordination raises, apart from StorageFailure."""


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
    """The node, or the parent of one that is to be made, is not there."""

    text = "there is no such node, or no parent for it"


class NodeExists(NodeError):
    """The node that is to be made is there already."""

    text = "the node exists already"


class BadVersion(NodeError):
    """The node has another version than the one expected."""

    text = "the node has another version than expected"


class NotEmpty(NodeError):
    """The node that is to be deleted has children."""

    text = "the node has children"


class NoChildrenForEphemerals(NodeError):
    """The parent goes with its session and therefore has no children."""

    text = "an ephemeral node has no children"


class InvalidPath(NodeError):
    """The path is none, or may not be used so."""

    text = "not a valid path for this"


class TooLarge(NodeError):
    """More than ZooKeeper takes in one request."""

    text = "the request is larger than coordination takes"


class ConnectionLoss(CoordinationError):
    """The connection broke: a change may or may not have been made."""

    def __str__(self) -> str:
        return "the connection was lost: a change may or may not have been made"


class SessionExpired(CoordinationError):
    """The session has ended; open another one."""

    def __str__(self) -> str:
        return "the session has ended"


class StoreRefused(CoordinationError):
    """The file of the embedded store cannot be used; a person has to decide what to do."""


class StoreInUse(StoreRefused):
    """Another process has the file."""


class EnsembleFailed(CoordinationError):
    """ZooKeeper cannot be reached, or its server did not start; the text says what was tried."""
