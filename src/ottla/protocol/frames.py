"""Splits a stream into frames: a length of four bytes, then that many bytes.

Invariants. A frame that was returned is never written to again, so views of it stay valid. The
length is checked before memory is allocated. A frame allocates at most 32 KiB before data arrives;
after that at most four times the received bytes, and at most 4 MiB more than them. Memory grows
only in `buffer()`, so a connection without memory just stops reading. Frames before a violation
are returned, however the stream is split; the violation is raised by the next call.

There are two ways to pass data. `receive(data)` takes bytes that the caller has read. `buffer()`
and `accept(n)` let the transport read into memory of the framer: into the read buffer, which all
connections of an event loop share, or into the memory of a frame. Nothing else may use the read
buffer between the two calls. `next_frame()` then returns the frames one by one. A caller that stops
before the last one calls `keep_rest()`, and reads on only after it has taken all of them.

Frames that begin with `in_place` are returned as views of the read buffer. The next read then uses
another buffer if such a view still exists. All other frames are copied, because a request that
waits must not keep a whole read buffer. The beginning of an incomplete frame is kept by its framer.
If the whole frame is larger than KEPT_BYTES_MAX it gets its own memory, which grows fourfold, so
that at most a third is copied. Large memory grows in steps, which the operating system does without
copying. The memory of huge frames comes from `huge_memory`, which should map pages lazily. A free
buffer of the pool that is large enough is used from the start.
"""

from collections.abc import Callable, Container
from contextlib import suppress
from struct import Struct as Layout
from typing import Final

from ottla.errors import ProtocolViolation
from ottla.protocol.buffer_pool import BufferPool, is_free
from ottla.protocol.primitives import Buffer

FRAME_BYTES_MAX: Final = 100 * 1024 * 1024
"""The default of socket.request.max.bytes."""

KEPT_BYTES_MAX: Final = 8 * 1024
"""The largest frame whose beginning is kept and read again; a larger one gets its own memory."""

COPIED_BYTES_MAX: Final = 32 * 1024
"""The largest complete frame that is copied without being reported in `copied`."""

# Python zeroes a new bytearray, so all its pages are mapped at once. Lazily mapped memory need not
# grow, but is 8 times as slow to fill as memory that was used before.
GROWTH: Final = 4
STEP_BYTES: Final = 4 * 1024 * 1024
HUGE_BYTES: Final = 16 * 1024 * 1024

# Read buffers that are kept for reuse while requests still refer to one of them.
_SPARE_MAX: Final = 4

_LENGTH: Final = Layout(">i")
_LENGTH_AND_KEY: Final = Layout(">ih")


class ReadBuffer:
    """Memory that is read into again and again; a buffer with views is replaced, never changed."""

    __slots__ = ("_memory", "_spare")

    def __init__(self, size: int = KEPT_BYTES_MAX) -> None:
        self._memory = bytearray(size)
        self._spare = [self._memory]  # the last few buffers, the newest last

    def free(self) -> bytearray:
        """Return memory without views, the one of the last call if that is possible."""
        if not is_free(self._memory):
            spare = next((one for one in self._spare if is_free(one)), None)
            if spare is None:
                spare = bytearray(len(self._memory))
                self._spare = [*self._spare[-_SPARE_MAX:], spare]
            self._memory = spare
        return self._memory


class Framer:
    """Splits a stream of bytes into frames."""

    def __init__(
        self,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        huge_memory: Callable[[int], memoryview] | None = None,
        buffer_pool: BufferPool | None = None,
        read_buffer: ReadBuffer | None = None,
        in_place: bytes | None = None,
    ) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._buffer_pool = buffer_pool
        self._huge_memory = huge_memory  # None: huge frames are treated as large ones
        self._read_buffer = read_buffer or ReadBuffer()
        self._in_place = in_place
        # What was read, with the beginning in front, and the part that was not returned yet.
        self._read: bytearray = bytearray()
        self._start = self._end = 0
        self._owns_rest = False  # that part is not in the read buffer
        self._beginning = b""  # of an incomplete frame that has no memory of its own
        self._frame: bytearray | memoryview | None = None  # a frame with its own memory
        self._frame_room = 0  # size of its memory
        self._frame_used = 0
        self._frame_length = 0
        self.is_in_place = False  # the last frame is a view of the read buffer
        self.copied = 0  # bytes of large frames that came in one piece; the caller sets it to 0
        self.violation: ProtocolViolation | None = None

    @property
    def partial(self) -> bool:
        """Whether a frame is incomplete; the frame deadline applies meanwhile."""
        return self._frame is not None or len(self._beginning) > 0

    @property
    def is_large(self) -> bool:
        """Whether the incomplete frame has its own memory."""
        return self._frame is not None

    @property
    def claimed(self) -> int:
        """The length of the incomplete large frame; 0 if there is none."""
        return self._frame_length if self._frame is not None else 0

    @property
    def arrived(self) -> int:
        """The number of received bytes of the incomplete frame."""
        return len(self._beginning) if self._frame is None else self._frame_used

    @property
    def memory(self) -> int:
        """The memory of the incomplete large frame; 0 if there is none."""
        return 0 if self._frame is None else self._frame_room

    @property
    def growth(self) -> int:
        """How much memory the next call of buffer() adds."""
        room = self._frame_room
        if self._frame is None or self._frame_used < room:
            return 0
        return min((GROWTH - 1) * room, STEP_BYTES, self._frame_length - room)

    def drop(self) -> None:
        """Drop the incomplete frame and its memory."""
        self._frame = None
        self._beginning = b""
        self._start = self._end = 0

    @property
    def has_rest(self) -> bool:
        """Whether bytes were read that `next_frame` has not looked at."""
        return self._start < self._end

    @property
    def kept(self) -> int:
        """The size of the rest that `keep_rest` has copied; 0 after all of it is taken."""
        return len(self._read) if self._owns_rest and self._start < self._end else 0

    def next_begins_with(self, prefix: bytes) -> bool:
        """Whether the next frame begins with `prefix`, as far as it was read."""
        if self._frame is not None:
            memory, start, end = self._frame, 0, self._frame_used
        else:
            memory, start, end = self._read, self._start + 4, self._end
        known = min(len(prefix), max(end - start, 0))
        return bytes(memory[start : start + known]) == prefix[:known]

    def skip_frames(self, api_keys: Container[int]) -> int:
        """Skip the complete frames that come next, while they begin with one of these API keys.

        Returns their number. The next frame may be such a frame, too, if it has its own memory.
        """
        if self._frame is not None or self.violation is not None:
            return 0
        memory, start, end, skipped = self._read, self._start, self._end, 0
        while end - start >= _LENGTH_AND_KEY.size:
            length, api_key = _LENGTH_AND_KEY.unpack_from(memory, start)
            stop = start + 4 + length
            if api_key not in api_keys or not 2 <= length <= self.frame_bytes_max or stop > end:
                break
            start = stop
            skipped += 1
        self._start = start
        return skipped

    def keep_rest(self) -> int:
        """Copy the rest out of the read buffer, for later; return its size if it was there."""
        if self._start == self._end or self._owns_rest:
            return 0
        self._read = self._read[self._start : self._end]
        self._start, self._end = 0, len(self._read)
        self._owns_rest = True
        return self._end

    def buffer(self, bytes_max: int | None = None) -> memoryview:
        """Return memory for the next bytes of the stream; it is never empty.

        Of the read buffer at most `bytes_max` are used, but enough for a frame without own memory.
        """
        if self._frame is not None:
            if growth := self.growth:
                self._frame = _larger(self._frame, growth)
                self._frame_room += growth
            return memoryview(self._frame)[self._frame_used : self._frame_room]
        assert self._start == self._end, "frames that were read come before the next read"
        memory = self._read = self._read_buffer.free()
        self._owns_rest = False
        if not self._beginning:
            return memoryview(memory)[:bytes_max]
        kept = len(self._beginning)
        memory[:kept] = self._beginning
        return memoryview(memory)[kept : None if bytes_max is None else kept + bytes_max]

    def accept(self, count: int) -> None:
        """Accept `count` bytes that were read into buffer()."""
        if self._frame is not None:
            self._frame_used += count
        else:
            self._start, self._end = 0, len(self._beginning) + count
            self._beginning = b""

    def next_frame(self) -> memoryview | None:
        """Return the next complete frame; None if there is none. Raises ProtocolViolation."""
        if self.violation is not None:
            raise self.violation
        if self._frame is not None:
            return self._large_frame(self._frame)
        memory, start, end = self._read, self._start, self._end
        if end - start >= 4:
            (length,) = _LENGTH.unpack_from(memory, start)
            if not 0 <= length <= self.frame_bytes_max:
                self._start = self._end = 0
                self.violation = ProtocolViolation(
                    f"frame of {length} bytes; at most {self.frame_bytes_max} are allowed"
                )
                raise self.violation
            stop = start + 4 + length
            if stop <= end:
                self._start = stop
                return self._small_frame(memory, start + 4, stop)
            if length > KEPT_BYTES_MAX - 4:
                self._begin(length, memoryview(memory)[start + 4 : end])
                self._start = self._end = 0
                return self._large_frame(self._frame) if self._frame is not None else None
        self._beginning = bytes(memory[start:end]) if start < end else b""
        self._start = self._end = 0
        return None

    def _small_frame(self, memory: bytearray, start: int, stop: int) -> memoryview:
        frame = memoryview(memory)[start:stop]
        self.is_in_place = False
        if self._in_place is not None and memory.startswith(self._in_place, start):
            self.is_in_place = not self._owns_rest
            return frame.toreadonly()
        if stop - start > COPIED_BYTES_MAX:
            self.copied += stop - start
        return memoryview(bytes(frame))

    def _large_frame(self, frame: bytearray | memoryview) -> memoryview | None:
        if self._frame_used < self._frame_length:
            return None
        self._frame = None
        self.is_in_place = False
        if self._buffer_pool is not None and isinstance(frame, bytearray):
            self._buffer_pool.keep(frame)
        return memoryview(frame)[: self._frame_length].toreadonly()

    def filled(self, count: int) -> list[memoryview]:
        """Accept `count` bytes that were read into buffer(); return the frames now complete.

        A violation after them is stored in `violation` and raised by the next call.
        """
        if self._frame is None and not self._beginning and 4 <= count <= KEPT_BYTES_MAX:
            (length,) = _LENGTH.unpack_from(self._read)
            is_valid = length <= self.frame_bytes_max and self.violation is None
            if length == count - 4 and is_valid:  # usual: exactly one frame
                return [self._small_frame(self._read, 4, count)]
        frames: list[memoryview] = []
        self._accept_to(frames, count)
        return frames

    def receive(self, data: Buffer) -> list[memoryview]:
        """Accept the next bytes of the stream; return the frames now complete."""
        if self.violation is not None:
            raise self.violation
        frames: list[memoryview] = []
        rest = memoryview(data)
        while len(rest) and self.violation is None:
            with self.buffer() as room:
                count = min(len(room), len(rest))
                room[:count] = rest[:count]
            rest = rest[count:]
            self._accept_to(frames, count)
        return frames

    def _accept_to(self, frames: list[memoryview], count: int) -> None:
        """Accept bytes and append their frames; raise a violation if no frame precedes it."""
        if self.violation is not None:
            raise self.violation
        self.accept(count)
        try:
            while (frame := self.next_frame()) is not None:
                frames.append(frame)
        except ProtocolViolation:
            if not frames:
                raise

    def _begin(self, length: int, arrived: memoryview) -> None:
        """Allocate the memory of a large frame and copy the received bytes into it."""
        self._frame_used = len(arrived)
        self._frame_length = length
        self._beginning = b""
        spare = None if self._buffer_pool is None else self._buffer_pool.take(length)
        if spare is not None:
            spare[: len(arrived)] = arrived
            self._frame, self._frame_room = spare, length
            return
        size = length
        if length > GROWTH * len(arrived):
            # An initial size that grows fourfold to exactly the length: at most a third is copied.
            while size > COPIED_BYTES_MAX:
                size = -(-size // GROWTH)
            size = max(size, len(arrived))
        given = self._huge_memory if length > HUGE_BYTES else None
        self._frame = bytearray(size) if given is None else given(length)
        self._frame[: len(arrived)] = arrived
        self._frame_room = size


def _larger(frame: bytearray | memoryview, growth: int) -> bytearray | memoryview:
    """Return larger memory for a large frame, with the received bytes."""
    if isinstance(frame, memoryview):
        return frame  # already has its full size
    if len(frame) >= STEP_BYTES:
        with suppress(BufferError):  # a view of it exists
            frame += bytes(growth)
            return frame
    larger = bytearray(len(frame) + growth)
    larger[: len(frame)] = frame
    return larger


def frame_length(size: int) -> bytes:
    """Encode the length of a frame."""
    return _LENGTH.pack(size)
