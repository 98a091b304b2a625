"""Frames: a length of four bytes, then that many bytes.

Invariant: a frame that was handed out is never written to again, so what refers to it may keep
it. A length is judged before anything is allocated for it, and a frame that is only claimed costs
no more than 32 KiB: beyond that, memory is at most four times what has arrived, and at most 4 MiB
more. It grows when the next bytes are let in and not before, so whoever has no memory for them
only has to stop reading. Frames that came before a violation are handed out, however the stream
was cut; the violation is raised after them.

Bytes come in two ways. `receive(data)` takes what somebody else read. `buffer()` and `filled(n)`
let the transport read into the framer's own memory: a frame larger than the scratch buffer gets
memory of its own, which grows fourfold as it fills, so that at most a third of it is copied, and
from some size on in steps, which the system does without a copy. A huge frame has memory that
whoever made the framer gives it, of which nothing should be real before it is used. Where there is
spare memory of earlier frames that is large enough, a frame has that from the start.
"""

from collections.abc import Callable
from contextlib import suppress
from struct import Struct as Layout
from typing import Final

from ottla.errors import ProtocolViolation
from ottla.protocol.buffer_pool import BufferPool
from ottla.protocol.primitives import Buffer

FRAME_BYTES_MAX: Final = 100 * 1024 * 1024
"""The default of socket.request.max.bytes."""

# A connection that says nothing costs little; larger frames get memory of their own.
SCRATCH_BYTES: Final = 8 * 1024

# Python writes zeros into a new bytearray, so its pages are real from the start. Memory that the
# system maps at the first touch would do without growing, but is 8 times as slow to fill as one
# that was used before. What is huge was not.
GROWTH: Final = 4
STEP_BYTES: Final = 4 * 1024 * 1024
HUGE_BYTES: Final = 16 * 1024 * 1024

_LENGTH: Final = Layout(">i")


class Framer:
    """Cuts a stream of bytes into frames."""

    def __init__(
        self,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        huge_memory: Callable[[int], memoryview] | None = None,
        buffer_pool: BufferPool | None = None,
    ) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._buffer_pool = buffer_pool
        self._huge_memory = huge_memory  # for so many bytes; None: huge frames are like large ones
        self._scratch = bytearray(SCRATCH_BYTES)
        self._scratch_used = 0
        self._frame: bytearray | memoryview | None = None  # more than the scratch holds
        self._frame_room = 0  # of its memory, as far as it counts
        self._frame_used = 0
        self._frame_length = 0
        self.violation: ProtocolViolation | None = None

    @property
    def partial(self) -> bool:
        """Whether a frame has begun and not ended: the deadline of a frame runs meanwhile."""
        return self._frame is not None or self._scratch_used > 0

    @property
    def is_large(self) -> bool:
        """Whether a frame is coming that has memory of its own."""
        return self._frame is not None

    @property
    def claimed(self) -> int:
        """The length of the large frame that is coming, 0 when there is none."""
        return self._frame_length if self._frame is not None else 0

    @property
    def arrived(self) -> int:
        """How much there is of the frame that has begun."""
        return self._scratch_used if self._frame is None else self._frame_used

    @property
    def memory(self) -> int:
        """The memory of the large frame that is coming, 0 when there is none."""
        return 0 if self._frame is None else self._frame_room

    @property
    def growth(self) -> int:
        """How much more of it the next call of buffer() takes."""
        room = self._frame_room
        if self._frame is None or self._frame_used < room:
            return 0
        return min((GROWTH - 1) * room, STEP_BYTES, self._frame_length - room)

    def drop(self) -> None:
        """Forget the frame that is coming, with its memory: the stream is over."""
        self._frame = None
        self._scratch_used = 0

    def buffer(self) -> memoryview:
        """Memory for the next bytes of the stream, never empty."""
        if self._frame is not None:
            if growth := self.growth:
                self._frame = _larger(self._frame, growth)
                self._frame_room += growth
            return memoryview(self._frame)[self._frame_used : self._frame_room]
        return memoryview(self._scratch)[self._scratch_used :]

    def filled(self, count: int) -> list[memoryview]:
        """Take note that `count` bytes of buffer() were filled; returns the frames now whole.

        A violation behind them is kept in `violation`, and raised by the next call.
        """
        frames = self._filled(count)
        if self.violation is not None and not frames:
            raise self.violation
        return frames

    def _filled(self, count: int) -> list[memoryview]:
        if self.violation is not None:
            return []
        if self._frame is None:
            self._scratch_used += count
            return self._cut()
        self._frame_used += count
        if self._frame_used < self._frame_length:
            return []
        frame, self._frame = self._frame, None
        if self._buffer_pool is not None and isinstance(frame, bytearray):
            self._buffer_pool.keep(frame)
        return [memoryview(frame)[: self._frame_length].toreadonly()]

    def receive(self, data: Buffer) -> list[memoryview]:
        """Take the next bytes of the stream; returns the frames that they complete."""
        frames: list[memoryview] = []
        rest = memoryview(data)
        while len(rest) and self.violation is None:
            with self.buffer() as room:
                count = min(len(room), len(rest))
                room[:count] = rest[:count]
            rest = rest[count:]
            frames += self._filled(count)
        if self.violation is not None and not frames:
            raise self.violation
        return frames

    def _cut(self) -> list[memoryview]:
        """Take the whole frames out of the scratch, and keep what is left at its front."""
        frames: list[memoryview] = []
        scratch, used, start = self._scratch, self._scratch_used, 0
        while used - start >= 4:
            (length,) = _LENGTH.unpack_from(scratch, start)
            if not 0 <= length <= self.frame_bytes_max:
                self.violation = ProtocolViolation(
                    f"a frame of {length} bytes; at most {self.frame_bytes_max} are allowed"
                )
                return frames
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
        self._frame_used = len(arrived)
        self._frame_length = length
        self._scratch_used = 0
        spare = None if self._buffer_pool is None else self._buffer_pool.take(length)
        if spare is not None:
            spare[: len(arrived)] = arrived
            self._frame, self._frame_room = spare, length
            return
        # A size that grows fourfold into exactly the length: so a third of it is copied at most.
        size = length
        while size > GROWTH * SCRATCH_BYTES:
            size = -(-size // GROWTH)
        given = self._huge_memory if length > HUGE_BYTES else None
        self._frame = bytearray(size) if given is None else given(length)
        self._frame[: len(arrived)] = arrived
        self._frame_room = size


def _larger(frame: bytearray | memoryview, growth: int) -> bytearray | memoryview:
    """More memory for a large frame, with what has arrived of it."""
    if isinstance(frame, memoryview):
        return frame  # it has all of it
    if len(frame) >= STEP_BYTES:
        with suppress(BufferError):  # somebody still has a view of it
            frame += bytes(growth)
            return frame
    larger = bytearray(len(frame) + growth)
    larger[: len(frame)] = frame
    return larger


def frame_length(size: int) -> bytes:
    """The four bytes in front of a frame."""
    return _LENGTH.pack(size)
