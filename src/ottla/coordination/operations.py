"""Operations on nodes, single or several in a multi.

Invariant: ZooKeeper accepts the size of operations that passed `check`. It drops the connection of
a client that sends more, which would look like a ConnectionLoss.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from ottla.coordination.errors import InvalidPath, TooLarge
from ottla.coordination.paths import ROOT, check_path

REQUEST_BYTES_MAX: Final = 1_000_000
"""ZooKeeper's jute.maxbuffer limits a whole request to 1,048,575 bytes."""

# Bytes that ZooKeeper adds to path and data: headers, lengths, flags and the ACL.
_OVERHEAD_BYTES: Final = 64

SEQUENCE_DIGITS: Final = 10


class Create(Struct, frozen=True):
    """Create a node. The result is its path; a sequential node's path ends with a number."""

    path: str
    data: bytes = b""
    ephemeral: bool = False  # deleted when the session ends
    sequence: bool = False  # append a ten-digit counter of the parent to the path


class SetData(Struct, frozen=True):
    """Replace a node's data and increment its version. The result is the new Stat."""

    path: str
    data: bytes
    version: int | None = None  # the expected version; None: any


class Delete(Struct, frozen=True):
    """Delete a node that has no children. The result is None."""

    path: str
    version: int | None = None


class Check(Struct, frozen=True):
    """Fail unless the node exists with this version. The result is None."""

    path: str
    version: int | None = None


Operation = Create | SetData | Delete | Check


def check(operations: Sequence[Operation]) -> None:
    """Raise InvalidPath or TooLarge for the first operation that ZooKeeper would not accept."""
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
        assert operation.version is None or operation.version >= 0, "None matches any version"
