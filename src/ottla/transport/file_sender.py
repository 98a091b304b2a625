"""Sends the file slices of responses with sendfile, beside the transport of their connection.

A response is a sequence of buffers and file slices. Its buffers are sent with MSG_MORE, so that the
records follow in the same packet. When the socket is full, the sender waits until it can be written
and goes on.

Invariant: bytes leave in the order in which responses were written. The sender starts only when the
transport has sent all of its own, and while the sender is active everything goes through it.
Invariant: the event loop never waits for the device. Before each call the sender asks whether the
bytes are in the page cache, unless the handler has asked in the same turn of the event loop. If
they are not, what is left of the response is read in a thread, and the transport sends it like any
other response.

The same is done after COPY_SECONDS: a client that reads slowly would keep files open, and the disk
space of deleted segments in use.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from socket import AF_INET, MSG_MORE, SOCK_STREAM, SocketType
from typing import Final

from ottla.errors import StorageFailure
from ottla.protocol.file_slice import FileSlice, Piece
from ottla.protocol.primitives import Buffer
from ottla.transport.network import WritableWatch

CHUNK_BYTES: Final = 1024 * 1024
"""How much is sent after one look at the page cache."""

TURN_BYTES: Final = 4 * CHUNK_BYTES
"""How much one connection sends before others get their turn."""

COPY_SECONDS: Final = 1.0
"""How long a response may take before what is left of it is copied."""


_TRUNCATED: Final = "the records file was truncated by another process"


def has_file_slice(pieces: Sequence[Piece]) -> bool:
    """Whether a response has to be sent by a FileSender."""
    for piece in pieces:  # noqa: SIM110 - `any` would call a generator for each piece
        if isinstance(piece, FileSlice):
            return True
    return False


class FileSender:
    """The part of a connection that sends responses with file slices."""

    __slots__ = (
        "_descriptor",
        "_end",
        "_fail",
        "_pieces",
        "_since_s",
        "_start",
        "_task",
        "_transport",
        "_watch",
        "is_active",
        "unsent",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        watch: WritableWatch,
        end: Callable[[Sequence[Buffer]], None],
        fail: Callable[[str], None],
    ) -> None:
        """A sender that calls `end` when it ends being active, and `fail` if it cannot go on.

        `end` gets what the transport has to send instead; usually nothing.
        """
        self._transport = transport
        self._descriptor: int = transport.get_extra_info("socket").fileno()
        self._watch = watch  # calls `advance`
        self._end = end
        self._fail = fail
        self._pieces: deque[Piece] = deque()
        self._start = 0  # of the first piece: the bytes before it are sent
        self._task: asyncio.Task[None] | None = None  # reads from the device
        self.is_active = False  # not all is sent
        self._since_s = 0.0  # when it became active
        self.unsent = 0

    def send(self, pieces: Sequence[Piece], now_s: float, *, is_known_cached: bool = False) -> int:
        """Send a response and return its size; unless it is complete, the sender becomes active.

        With `is_known_cached`, the page cache was asked in this turn of the event loop, so it is
        not asked again before the first calls.
        """
        if self._transport.is_closing():
            return 0
        self._pieces.extend(pieces)
        size = sum(map(len, pieces))
        self.unsent += size
        if not self.is_active:
            self.is_active = True
            self._since_s = now_s
            self._advance(is_known_cached=is_known_cached)
        return size

    def advance(self) -> None:
        """Go on: the socket can be written."""
        if self.is_active and self._task is None and not self._transport.is_closing():
            self._advance()
            if not self.is_active:
                self._end(())

    def _advance(self, *, is_known_cached: bool = False) -> None:
        if not self._transport.get_write_buffer_size():
            try:
                self._send_pieces(is_known_cached)
            except BlockingIOError:
                pass
            except OSError:  # the client has closed the connection
                self._transport.abort()
                return
        if not self._pieces:
            self.is_active = False
        elif self._task is None:
            self._watch.wait()

    def _send_pieces(self, is_known_cached: bool) -> None:
        """Send until the socket is full, or it is enough for a turn."""
        pieces, descriptor, left = self._pieces, self._descriptor, TURN_BYTES
        # The socket of a transport refuses to send. This one does not own the descriptor.
        socket = SocketType(AF_INET, SOCK_STREAM, 0, fileno=descriptor)
        try:
            while pieces and left > 0:
                piece, start = pieces[0], self._start
                size = wanted = len(piece) - start
                if isinstance(piece, FileSlice):
                    wanted = min(size, CHUNK_BYTES)
                    if not is_known_cached and not piece.is_cached(start, wanted):
                        self._read_rest()
                        return
                    sent = os.sendfile(descriptor, piece.fileno(), piece.position + start, wanted)
                    if not sent:
                        self._fail(_TRUNCATED)
                        return
                else:
                    rest = memoryview(piece)[start:] if start else piece
                    sent = socket.send(rest, MSG_MORE if len(pieces) > 1 else 0)
                self.unsent -= sent
                left -= sent
                if sent == size:
                    pieces.popleft()
                    self._start = 0
                else:
                    self._start += sent
                    if sent < wanted:
                        return
        finally:
            socket.detach()

    def copy_overdue(self, now_s: float) -> None:
        """Copy what is left of a response that takes too long; the caller polls it."""
        if self.is_active and now_s - self._since_s > COPY_SECONDS:
            self._read_rest()

    def _read_rest(self) -> None:
        """Read what is left in threads, and let the transport send it."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._copy_rest())

    async def _copy_rest(self) -> None:
        rest: list[Buffer] = []
        try:
            while self._pieces:
                piece, start = self._pieces[0], self._start
                if isinstance(piece, FileSlice):
                    size = len(piece) - start
                    data = await piece.read(start, size)
                    if len(data) != size:
                        raise StorageFailure(_TRUNCATED)
                else:
                    data = memoryview(piece)[start:]
                rest.append(data)
                self._pieces.popleft()
                self._start = 0
        except Exception as error:
            self._fail(str(error))
            return
        self._task = None
        self.is_active = False
        self.unsent = 0
        self._end(rest)

    def stop(self) -> None:
        """Drop what is not sent: the connection is closed."""
        self.is_active = False
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._watch.end()
        self._pieces.clear()
        self.unsent = 0
