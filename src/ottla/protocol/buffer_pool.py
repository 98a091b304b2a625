"""A pool of large buffers, for reuse by later frames and reads.

Invariant: a buffer is handed out only while no view of it exists, so the data of a frame never
changes. The pool keeps at most COUNT_MAX buffers and `bytes_max` bytes; it drops the smallest
first.

Reused memory is mapped and cached; filling new pages costs more than reading into them.
"""

from typing import Final

COUNT_MAX: Final = 8

PIECE_BYTES_MIN: Final = 32 * 1024
"""The minimum size of a buffer in the pool; smaller ones are allocated fast enough."""


class BufferPool:
    """A pool that is used on one event loop."""

    __slots__ = ("_bytes", "_bytes_max", "_pieces")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._pieces: list[bytearray] = []  # sorted by size

    @property
    def kept_bytes(self) -> int:
        """The size of the pool, including buffers with views."""
        return self._bytes

    def take(self, length: int) -> bytearray | None:
        """Remove and return the smallest free buffer of this size or more; None if none fits.

        It is at most four times as large: a small response to a slow client must not hold more.
        """
        if length >= PIECE_BYTES_MIN:
            for at, piece in enumerate(self._pieces):
                if length <= len(piece) <= 4 * length and is_free(piece):
                    del self._pieces[at]
                    self._bytes -= len(piece)
                    return piece
        return None

    def keep(self, piece: bytearray) -> None:
        """Add a buffer. It can still have views; `take` returns it only when they are released."""
        size = len(piece)
        if not PIECE_BYTES_MIN <= size <= self._bytes_max // 2:
            return
        at = sum(len(one) < size for one in self._pieces)
        self._pieces.insert(at, piece)
        self._bytes += size
        while self._bytes > self._bytes_max or len(self._pieces) > COUNT_MAX:
            self._bytes -= len(self._pieces.pop(0))


def is_free(piece: bytearray) -> bool:
    """Whether the buffer has no views: Python allows resizing only then."""
    try:
        piece.append(piece.pop())
    except BufferError:
        return False
    return True
