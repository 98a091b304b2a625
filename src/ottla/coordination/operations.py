"""What is done to nodes, alone or several at once.

Invariant: operations that passed `check` are ones that ZooKeeper would read: it drops the
connection of whoever sends it more, and that would look like a loss of the connection.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ottla.coordination.errors import InvalidPath, TooLarge
from ottla.coordination.paths import ROOT, check_path

REQUEST_BYTES_MAX: Final = 1_000_000
"""ZooKeeper's jute.maxbuffer is 1,048,575 for all of a request."""

# What ZooKeeper adds to path and data: headers, lengths, flags, the access list.
_OVERHEAD_BYTES: Final = 64

SEQUENCE_DIGITS: Final = 10


@dataclass(frozen=True, slots=True)
class Create:
    """Make a node. The result is its path, which for a sequence ends with a number."""

    path: str
    data: bytes = b""
    ephemeral: bool = False  # it goes with the session
    sequence: bool = False  # ten digits, counted by the parent, are added to the path


@dataclass(frozen=True, slots=True)
class SetData:
    """Replace a node's data; its version counts up. The result is the new Stat."""

    path: str
    data: bytes
    version: int | None = None  # the one expected; None: any


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a node that has no children. The result is None."""

    path: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """Do nothing, but fail unless the node is there in this version. The result is None."""

    path: str
    version: int | None = None


Operation = Create | SetData | Delete | Check


def check(operations: Sequence[Operation]) -> None:
    """Raise InvalidPath or TooLarge for the first operation that cannot be asked for."""
    size = 0
    for index, operation in enumerate(operations):
        _check_path(operation, index)
        size += _OVERHEAD_BYTES + len(operation.path.encode())
        if isinstance(operation, Create | SetData):
            size += len(operation.data)
        if size > REQUEST_BYTES_MAX:
            raise TooLarge(operation.path, index)


def _check_path(operation: Operation, index: int) -> None:
    check_path(operation.path, index)
    if operation.path == ROOT and (
        isinstance(operation, Delete) or (isinstance(operation, Create) and operation.sequence)
    ):
        raise InvalidPath(operation.path, index)
    if not isinstance(operation, Create):
        assert operation.version is None or operation.version >= 0, "None is any version"
