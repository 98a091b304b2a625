"""Writes a stream of records to stdout in large pieces.

Invariant: output is in order and complete. At most two pieces are held: one being filled and one
being written. After `flush` everything is written. Output to a terminal has no characters that it
acts on except line ends and tabs.
"""

import asyncio
import os
import re
import select
import sys
from typing import Final

from ottla.cli.blocking_calls import BlockingCalls

PIECE_BYTES: Final = 1 << 18

# Control characters except \t and \n, and direction marks.
_ACTS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)


class RecordOutput:
    """Takes bytes and writes them in a thread."""

    def __init__(self, descriptor: int, *, harmless: bool) -> None:
        """With `harmless`, what a terminal would act on is escaped."""
        self._descriptor = descriptor
        self.is_terminal: Final = os.isatty(descriptor)
        self._harmless = harmless
        self._calls = BlockingCalls()
        self._pieces: list[bytes] = []
        self._size = 0
        self._writing: asyncio.Future[None] | None = None

    async def write(self, piece: bytes) -> None:
        """Take a piece; raises OSError if an earlier one could not be written."""
        self._pieces.append(harmless(piece) if self._harmless else piece)
        self._size += len(piece)
        if self._size >= PIECE_BYTES:
            await self._hand_over()

    async def flush(self) -> None:
        """Write everything and wait for it."""
        await self._hand_over()
        await self._settled()

    async def _hand_over(self) -> None:
        await self._settled()
        if self._pieces:
            whole = b"".join(self._pieces)
            self._pieces.clear()
            self._size = 0
            self._writing = self._calls.begin(lambda: _write(self._descriptor, whole))

    async def _settled(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            await writing


def stdout() -> RecordOutput:
    """Return the output for the process's stdout."""
    sys.stdout.flush()
    return RecordOutput(sys.stdout.fileno(), harmless=sys.stdout.isatty())


def harmless(piece: bytes) -> bytes:
    """Escape what a terminal would act on."""
    text = piece.decode("utf-8", "backslashreplace")
    return _ACTS.sub(_escape, text).encode("utf-8", "backslashreplace")


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def _write(descriptor: int, data: bytes) -> None:
    with memoryview(data) as left:
        while left:
            try:
                left = left[os.write(descriptor, left) :]
            except BlockingIOError:  # somebody made it non-blocking for all who share it
                select.select([], [descriptor], [])
