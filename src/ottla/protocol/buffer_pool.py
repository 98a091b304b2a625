"""Spare memory: that of frames which nobody refers to any more, for those that come.

Invariant: memory is given away once, and only when nobody has a view of it, so what was handed out
never changes under whoever keeps it. At most COUNT_MAX pieces and `bytes_max` bytes are kept; of
those that are too many the smallest go, so that before long all that is kept is of use.

Memory that was used before is real and warm: to fill new pages costs more than to read into them.
"""

from typing import Final

COUNT_MAX: Final = 8

PIECE_BYTES_MIN: Final = 32 * 1024
"""Less than this is new fast enough."""


class BufferPool:
    """Of all connections of a process that share them."""

    __slots__ = ("_bytes", "_bytes_max", "_pieces")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._pieces: list[bytearray] = []  # the smallest first

    @property
    def kept_bytes(self) -> int:
        """How much is kept, whether somebody refers to it or not."""
        return self._bytes

    def take(self, length: int) -> bytearray | None:
        """The smallest piece that has so many bytes, whatever is in them; None without any."""
        if length >= PIECE_BYTES_MIN:
            for at, piece in enumerate(self._pieces):
                if len(piece) >= length and _is_free(piece):
                    del self._pieces[at]
                    self._bytes -= len(piece)
                    return piece
        return None

    def keep(self, piece: bytearray) -> None:
        """Take a piece to which others may still refer; they are asked when it is given away."""
        size = len(piece)
        if not PIECE_BYTES_MIN <= size <= self._bytes_max // 2:
            return
        at = sum(len(one) < size for one in self._pieces)
        self._pieces.insert(at, piece)
        self._bytes += size
        while self._bytes > self._bytes_max or len(self._pieces) > COUNT_MAX:
            self._bytes -= len(self._pieces.pop(0))


def _is_free(piece: bytearray) -> bool:
    """Whether nobody has a view of it: only then can its length change."""
    try:
        piece.append(piece.pop())
    except BufferError:
        return False
    return True
