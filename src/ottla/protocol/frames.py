"""Frames: a length of four bytes, then that many bytes.

Invariant: a frame that was handed out is never written to again, so what refers to it may keep
it. A length is judged before anything is allocated for it, and allocated memory is touched only
as bytes arrive.

Bytes come in two ways. `receive(data)` takes what somebody else read. `buffer()` and `filled(n)`
let the transport read into the framer's own memory: a frame larger than the scratch buffer gets
memory of its own, and its bytes beyond the first read are not copied.
"""

from struct import Struct as Layout
from typing import Final

from ottla.errors import ProtocolViolation
from ottla.protocol.primitives import Buffer

FRAME_BYTES_MAX: Final = 100 * 1024 * 1024
"""The default of socket.request.max.bytes."""

SCRATCH_BYTES: Final = 64 * 1024

_LENGTH: Final = Layout(">i")


class Framer:
    """Cuts a stream of bytes into frames."""

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._scratch = bytearray(SCRATCH_BYTES)
        self._scratch_used = 0
        self._frame: bytearray | None = None  # a frame that needs more than the scratch
        self._frame_used = 0

    @property
    def partial(self) -> bool:
        """Whether a frame has begun and not ended: the deadline of a frame runs meanwhile."""
        return self._frame is not None or self._scratch_used > 0

    def buffer(self) -> memoryview:
        """Memory for the next bytes of the stream, never empty."""
        if self._frame is not None:
            return memoryview(self._frame)[self._frame_used :]
        return memoryview(self._scratch)[self._scratch_used :]

    def filled(self, count: int) -> list[memoryview]:
        """Take note that `count` bytes of buffer() were filled; returns the frames now whole."""
        if self._frame is None:
            self._scratch_used += count
            return self._cut()
        self._frame_used += count
        if self._frame_used < len(self._frame):
            return []
        frame, self._frame = self._frame, None
        return [memoryview(frame).toreadonly()]

    def receive(self, data: Buffer) -> list[memoryview]:
        """Take the next bytes of the stream; returns the frames that they complete."""
        frames: list[memoryview] = []
        rest = memoryview(data)
        while len(rest):
            room = self.buffer()
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            rest = rest[count:]
            frames += self.filled(count)
        return frames

    def _cut(self) -> list[memoryview]:
        """Take the whole frames out of the scratch, and keep what is left at its front."""
        frames: list[memoryview] = []
        scratch, used, start = self._scratch, self._scratch_used, 0
        while used - start >= 4:
            (length,) = _LENGTH.unpack_from(scratch, start)
            if not 0 <= length <= self.frame_bytes_max:
                raise ProtocolViolation(
                    f"a frame of {length} bytes; at most {self.frame_bytes_max} are allowed"
                )
            stop = start + 4 + length
            if stop > used:
                if stop - start > len(scratch):
                    self._begin(length, start + 4)
                    return frames
                break
            frames.append(memoryview(bytes(memoryview(scratch)[start + 4 : stop])))
            start = stop
        scratch[: used - start] = scratch[start:used]
        self._scratch_used = used - start
        return frames

    def _begin(self, length: int, start: int) -> None:
        """Give a large frame memory of its own, with what has arrived of it."""
        arrived = memoryview(self._scratch)[start : self._scratch_used]
        # bytearray(n) maps zero pages without touching them: a length that is only claimed
        # costs address space, not memory.
        self._frame = bytearray(length)
        self._frame[: len(arrived)] = arrived
        self._frame_used = len(arrived)
        self._scratch_used = 0


def frame_length(size: int) -> bytes:
    """The four bytes in front of a frame."""
    return _LENGTH.pack(size)
