"""The bytes of a response that stay in a file until they are sent.

Encoders use the length only. The transport sends the bytes with sendfile.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import TypeAlias

from ottla.protocol.primitives import Buffer


class FileSlice(ABC):
    """A range of an open file.

    Invariant: the file stays open, and the bytes of the range do not change, as long as the slice
    or a socket refers to them.
    """

    __slots__ = ()

    @abstractmethod
    def __len__(self) -> int:
        """The number of bytes."""

    @property
    @abstractmethod
    def position(self) -> int:
        """Where the range starts in the file."""

    @abstractmethod
    def fileno(self) -> int:
        """The descriptor of the file."""

    @abstractmethod
    def is_cached(self, start: int, count: int) -> bool:
        """Whether `count` bytes from `start` on are in the page cache."""

    @abstractmethod
    def read(self, start: int, count: int) -> Awaitable[Buffer]:
        """Read `count` bytes from `start` on, and wait for the device."""


Piece: TypeAlias = Buffer | FileSlice
"""A part of an encoded response."""
