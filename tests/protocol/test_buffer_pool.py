"""Buffer pool: buffers are reused only without views, and the pool is bounded."""

import struct
from random import Random

from cases import each_case
from ottla.protocol.buffer_pool import COUNT_MAX, PIECE_BYTES_MIN, BufferPool
from ottla.protocol.frames import KEPT_BYTES_MAX, Framer

KB = 1024


def test_buffer_is_taken_once_and_only_without_views() -> None:
    buffer_pool = BufferPool(1000 * KB)
    piece = bytearray(100 * KB)
    view = memoryview(piece)[10:20].toreadonly()
    buffer_pool.keep(piece)
    assert buffer_pool.take(100 * KB) is None
    part = view[2:4]
    view.release()
    assert buffer_pool.take(100 * KB) is None  # a part of a view is a view, too
    part.release()
    assert buffer_pool.take(100 * KB + 1) is None
    assert buffer_pool.take(100 * KB) is piece
    assert len(piece) == 100 * KB
    assert buffer_pool.take(100 * KB) is None
    assert buffer_pool.kept_bytes == 0


def test_smallest_fitting_buffer_is_taken() -> None:
    buffer_pool = BufferPool(2000 * KB)
    pieces = [bytearray(size * KB) for size in (300, 100, 200)]
    for piece in pieces:
        buffer_pool.keep(piece)
    assert buffer_pool.take(150 * KB) is pieces[2]
    assert buffer_pool.take(150 * KB) is pieces[0]
    assert buffer_pool.take(150 * KB) is None
    assert buffer_pool.take(PIECE_BYTES_MIN - 1) is None  # allocating that size is fast enough


def test_much_larger_buffer_is_not_taken() -> None:
    buffer_pool = BufferPool(2000 * KB)
    buffer_pool.keep(bytearray(400 * KB))
    assert buffer_pool.take(100 * KB - 1) is None
    assert buffer_pool.take(100 * KB) is not None


def test_pool_is_bounded_and_keeps_the_largest() -> None:
    buffer_pool = BufferPool(1000 * KB)
    for size in (100, 200, 300, 400, 500, 501, 5):
        buffer_pool.keep(bytearray(size * KB))
        assert buffer_pool.kept_bytes <= 1000 * KB
    assert buffer_pool.kept_bytes == (400 + 500) * KB  # a buffer takes at most half of the pool
    for _ in range(2 * COUNT_MAX):
        buffer_pool.keep(bytearray(50 * KB))
    assert buffer_pool.kept_bytes <= 1000 * KB
    many = BufferPool(1000 * KB)
    for _ in range(2 * COUNT_MAX):
        many.keep(bytearray(40 * KB))
    assert many.kept_bytes == COUNT_MAX * 40 * KB


@each_case("seed", range(5))
def test_frames_with_views_do_not_change(seed: int) -> None:
    random = Random(seed)
    buffer_pool = BufferPool(2000 * KB)
    framers = [Framer(buffer_pool=buffer_pool) for _ in range(4)]
    unsent: list[bytes] = [b""] * len(framers)
    coming: list[bytes] = [b""] * len(framers)
    kept: list[tuple[memoryview, bytes]] = []
    reused, seen = 0, set[int]()
    for _ in range(400):
        at = random.randrange(len(framers))
        if not unsent[at]:
            size = random.choice((5, KEPT_BYTES_MAX, 40 * KB, 200 * KB, 600 * KB))
            coming[at] = random.randbytes(size)
            unsent[at] = struct.pack(">i", size) + coming[at]
        count = random.choice((3, 1000, 100 * KB, 1000 * KB))
        piece, unsent[at] = unsent[at][:count], unsent[at][count:]
        for frame in framers[at].receive(piece):
            assert frame == coming[at]
            reused += id(frame.obj) in seen
            seen.add(id(frame.obj))
            kept.append((frame, coming[at]))
        if len(kept) > 6:
            for _ in range(random.randrange(6)):
                kept.pop(random.randrange(len(kept)))
        assert all(frame == body for frame, body in kept[-3:])
    assert all(frame == body for frame, body in kept)
    assert reused > 10


def test_pooled_frame_has_full_size_from_the_start() -> None:
    buffer_pool = BufferPool(2000 * KB)
    framer = Framer(buffer_pool=buffer_pool)
    size = 600 * KB
    (first,) = framer.receive(struct.pack(">i", size) + b"\7" * size)
    memory = first.obj
    first.release()
    framer.receive(struct.pack(">i", size - 5) + b"\1")
    assert (framer.memory, framer.growth, framer.claimed) == (size - 5, 0, size - 5)
    (second,) = framer.receive(b"\2" * (size - 6))
    assert second.obj is memory
    assert second == b"\1" + b"\2" * (size - 6)


def test_memory_of_a_dropped_stream_is_not_kept() -> None:
    buffer_pool = BufferPool(2000 * KB)
    framer = Framer(buffer_pool=buffer_pool)
    framer.receive(struct.pack(">i", 600 * KB) + bytes(300 * KB))
    framer.drop()
    assert buffer_pool.kept_bytes == 0
