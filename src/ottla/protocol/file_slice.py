"""The bytes of a response that stay in a file until they are sent.

Encoders use the length only. The transport sends the bytes with sendfile.
"""

from collections.abc import Awaitable
from typing import TypeAlias

from ottla.protocol.primitives import Buffer


class FileSlice:
    """A range of an open file; subclasses implement it.

    It is no abstract base class: `isinstance` would cost five times as much.

    Invariant: the file stays open, and the bytes of the range do not change, as long as the slice
    or a socket refers to them.
    """

    __slots__ = ()

    def __len__(self) -> int:
        """The number of bytes."""
        raise NotImplementedError

    @property
    def position(self) -> int:
        """Where the range starts in the file."""
        raise NotImplementedError

    def fileno(self) -> int:
        """The descriptor of the file."""
        raise NotImplementedError

    def is_cached(self, start: int, count: int) -> bool:
        """Whether `count` bytes from `start` on are in the page cache."""
        raise NotImplementedError

    def read(self, start: int, count: int) -> Awaitable[Buffer]:
        """Read `count` bytes from `start` on, and wait for the device."""
        raise NotImplementedError


Piece: TypeAlias = Buffer | FileSlice
"""A part of an encoded response."""
