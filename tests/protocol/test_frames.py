"""Frames: independent of how the stream is split, unchanged, and bounded in memory."""

import gc
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import pairwise
from mmap import mmap
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import each_case
from ottla.errors import ProtocolViolation
from ottla.protocol.frames import (
    COPIED_BYTES_MAX,
    FRAME_BYTES_MAX,
    HUGE_BYTES,
    KEPT_BYTES_MAX,
    STEP_BYTES,
    Framer,
    ReadBuffer,
    frame_length,
)
from sampling import examples

HugeMemory = Callable[[int], memoryview] | None
Feed = Callable[[Framer, bytes], list[memoryview]]


def by_receive(framer: Framer, data: bytes) -> list[memoryview]:
    return framer.receive(data)


def by_buffer(framer: Framer, data: bytes) -> list[memoryview]:
    """Feed as a transport does: at most as much as the framer has room for."""
    frames: list[memoryview] = []
    while data:
        room = framer.buffer()
        assert len(room) > 0
        count = min(len(room), len(data))
        room[:count] = data[:count]
        frames += framer.filled(count)
        data = data[count:]
    return frames


both_ways = each_case("feed", [by_receive, by_buffer])


def stream(bodies: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def chunks(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    edges = [0, *sorted(cuts), len(data)]
    for start, stop in pairwise(edges):
        yield data[start:stop]


EDGES = (
    0,
    1,
    3,
    4,
    5,
    KEPT_BYTES_MAX - 5,
    KEPT_BYTES_MAX - 4,
    KEPT_BYTES_MAX - 3,
    KEPT_BYTES_MAX,
    2 * KEPT_BYTES_MAX,
    4 * KEPT_BYTES_MAX - 4,
    4 * KEPT_BYTES_MAX,
    4 * KEPT_BYTES_MAX + 1,
    16 * KEPT_BYTES_MAX + 7,
)


@st.composite
def cut_streams(draw: st.DrawFn) -> tuple[list[bytes], list[int]]:
    sizes = draw(st.lists(st.one_of(st.integers(0, 40), st.sampled_from(EDGES)), max_size=6))
    random = Random(draw(st.integers(0, 2**32)))
    bodies = [random.randbytes(size) for size in sizes]
    total = sum(sizes) + 4 * len(sizes)
    cuts = draw(st.lists(st.integers(0, total), max_size=12))
    return bodies, cuts


@both_ways
@settings(max_examples=examples(50, usual=150), deadline=None, derandomize=True, database=None)
@given(case=cut_streams())
def test_frames_do_not_depend_on_how_the_stream_is_split(
    feed: Feed, case: tuple[list[bytes], list[int]]
) -> None:
    bodies, cuts = case
    framer = Framer()
    frames: list[memoryview] = []
    for chunk in chunks(stream(bodies), cuts):
        frames += feed(framer, chunk)
    assert [bytes(frame) for frame in frames] == bodies
    assert not framer.partial


@both_ways
def test_every_split_and_single_bytes(feed: Feed) -> None:
    bodies = [b"", b"a", b"", b"bcd" * 5, b"\0\0\0\1", b""]
    data = stream(bodies)
    for cut in range(len(data) + 1):
        framer = Framer()
        frames = feed(framer, data[:cut]) + feed(framer, data[cut:])
        assert [bytes(frame) for frame in frames] == bodies
    framer = Framer()
    frames = [frame for byte in data for frame in feed(framer, bytes([byte]))]
    assert [bytes(frame) for frame in frames] == bodies


@both_ways
def test_partial_frame_is_reported(feed: Feed) -> None:
    framer = Framer()
    assert not framer.partial
    data = stream([b"x" * (KEPT_BYTES_MAX + 10)])
    for byte in data[:6]:
        assert not feed(framer, bytes([byte]))
        assert framer.partial
    assert not feed(framer, data[6:-1])
    assert framer.partial
    assert len(feed(framer, data[-1:])) == 1
    assert not framer.partial


@both_ways
def test_returned_frames_do_not_change(feed: Feed) -> None:
    random = Random(7)
    framer = Framer()
    kept: list[tuple[memoryview, bytes]] = []
    for _ in range(60):
        bodies = [random.randbytes(random.choice((0, 3, 900, 70_000, 300_000))) for _ in range(3)]
        data = stream(bodies)
        frames: list[memoryview] = []
        for chunk in chunks(data, [random.randrange(len(data)) for _ in range(3)]):
            frames += feed(framer, chunk)
        kept += zip(frames, bodies, strict=True)
    assert all(frame == body for frame, body in kept)
    assert all(frame.readonly for frame, _ in kept)


@each_case("length", [-1, -2, -(2**31), FRAME_BYTES_MAX + 1, 2**31 - 1])
@both_ways
def test_invalid_frame_length_is_rejected(feed: Feed, length: int) -> None:
    with pytest.raises(ProtocolViolation, match=f"frame of {length} bytes"):
        feed(Framer(), struct.pack(">i", length))


@both_ways
def test_frame_length_limits(feed: Feed) -> None:
    assert [bytes(frame) for frame in feed(Framer(10), stream([b"x" * 10]))] == [b"x" * 10]
    with pytest.raises(ProtocolViolation):
        feed(Framer(10), struct.pack(">i", 11))
    assert [bytes(frame) for frame in feed(Framer(0), stream([b""]))] == [b""]
    assert not feed(Framer(), struct.pack(">i", FRAME_BYTES_MAX))


def test_invalid_length_is_detected_before_its_frame_arrives() -> None:
    framer = Framer(1000)
    assert not framer.receive(b"\0\0\x03")
    with pytest.raises(ProtocolViolation):
        framer.receive(b"\xe9")


@both_ways
def test_frame_limit_may_change_between_frames(feed: Feed) -> None:
    """Authentication raises the limit; frames before it are small."""
    framer = Framer(100)
    feed(framer, stream([b"x" * 100]))
    framer.frame_bytes_max = KEPT_BYTES_MAX * 3
    (frame,) = feed(framer, stream([b"y" * (KEPT_BYTES_MAX * 2)]))
    assert len(frame) == KEPT_BYTES_MAX * 2
    large = stream([b"z" * KEPT_BYTES_MAX * 3])
    assert not feed(framer, large[: KEPT_BYTES_MAX * 2])
    framer.frame_bytes_max = 10
    (begun,) = feed(framer, large[KEPT_BYTES_MAX * 2 :])
    assert len(begun) == KEPT_BYTES_MAX * 3
    with pytest.raises(ProtocolViolation):
        feed(framer, stream([b"x" * 11]))


def test_announced_frame_allocates_little_memory() -> None:
    claims = [Framer() for _ in range(20)]
    tracemalloc.start()
    before = resident_bytes()
    try:
        for framer in claims:
            framer.receive(struct.pack(">i", FRAME_BYTES_MAX) + b"only this")
        assert tracemalloc.get_traced_memory()[1] < 20 * 5 * KEPT_BYTES_MAX
    finally:
        tracemalloc.stop()
    assert resident_bytes() - before < 20 * 6 * KEPT_BYTES_MAX


def resident_bytes() -> int:
    """Return the resident memory on Linux, elsewhere the memory traced by Python."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * 4096 if statm.exists() else 0


def test_memory_of_a_large_frame_follows_the_arrived_bytes() -> None:
    framer = Framer()
    size = HUGE_BYTES
    piece = bytes(KEPT_BYTES_MAX)
    frames: list[memoryview] = []
    tracemalloc.start()
    try:
        framer.receive(struct.pack(">i", size))
        arrived = 0
        while arrived < size:
            frames = framer.receive(piece)
            arrived += len(piece)
            held = tracemalloc.get_traced_memory()[0]
            assert held <= 4 * max(arrived, KEPT_BYTES_MAX) + 2 * KEPT_BYTES_MAX
            # Python over-allocates a growing bytearray by an eighth.
            assert held <= arrived * 9 / 8 + 1.5 * STEP_BYTES
        assert tracemalloc.get_traced_memory()[1] <= size * 9 / 8 + 2 * STEP_BYTES
    finally:
        tracemalloc.stop()
    assert [len(frame) for frame in frames] == [size]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux tells")
def test_huge_frame_uses_memory_as_it_arrives() -> None:
    framer = Framer(huge_memory=mapped)
    size, piece = FRAME_BYTES_MAX, b"\7" * 1_000_000
    before = resident_bytes()
    framer.receive(struct.pack(">i", size))
    arrived = 0
    while arrived + len(piece) < size:
        assert framer.receive(piece) == []
        arrived += len(piece)
        assert resident_bytes() - before <= arrived + 2_000_000
    (frame,) = framer.receive(b"\7" * (size - arrived))
    assert frame == b"\7" * size
    del frame
    assert resident_bytes() - before <= 2_000_000


def mapped(size: int) -> memoryview:
    return memoryview(mmap(-1, size))


@each_case("size", [HUGE_BYTES, HUGE_BYTES + 1])
def test_huge_frame_allocates_once(size: int) -> None:
    asked: list[int] = []

    def memory(count: int) -> memoryview:
        asked.append(count)
        return mapped(count)

    frames = Framer(huge_memory=memory).receive(frame_length(size) + b"\7" * size)
    assert [len(frame) for frame in frames] == [size]
    assert asked == ([size] if size > HUGE_BYTES else [])


both_kinds = each_case(
    ("size", "huge_memory"),
    [(HUGE_BYTES, mapped), (HUGE_BYTES + 1, mapped), (20_000_000, mapped), (20_000_000, None)],
)


@each_case(
    "size", [KEPT_BYTES_MAX, 4 * KEPT_BYTES_MAX, 4 * KEPT_BYTES_MAX + 1, 1_048_577, STEP_BYTES]
)
def test_large_frame_is_read_into_its_own_memory(size: int) -> None:
    """Data is read into the memory of the frame, and at most a third of it is moved."""
    framer = Framer()
    framer.receive(struct.pack(">i", size))
    memories = [framer.buffer()]
    while not (frames := framer.filled(len(memories[-1]))):
        memories.append(framer.buffer())
        memories[-1][:] = b"\7" * len(memories[-1])
    (frame,) = frames
    assert len(frame) == size
    assert frame.obj is memories[-1].obj
    assert frame[-len(memories[-1]) :] == memories[-1]
    moved = sum(len(bytes(memory)) for memory in memories[:-1])
    assert moved <= size / 3 + 8
    assert sum(len(memory) for memory in memories) == size


@both_kinds
def test_large_frame_allocates_only_when_read(size: int, huge_memory: HugeMemory) -> None:
    framer = Framer(huge_memory=huge_memory)
    framer.receive(struct.pack(">i", size))
    assert framer.is_large
    assert (framer.growth, framer.claimed) == (0, size)
    seen = 0
    while framer.is_large:
        memory = framer.memory
        framer.receive(b"\7" * (memory - framer.arrived))
        seen += 1
        if framer.is_large:
            assert framer.memory == framer.arrived == memory  # full, and of the same size as before
            assert 0 < framer.growth <= min(3 * memory, STEP_BYTES, size - memory)
            growth = framer.growth
            framer.receive(b"\7")
            assert framer.memory == memory + growth
            assert framer.growth == 0
    assert seen > 5
    assert (framer.memory, framer.growth, framer.arrived) == (0, 0, 0)


@both_kinds
def test_frame_with_views_is_copied_when_it_grows(size: int, huge_memory: HugeMemory) -> None:
    framer = Framer(huge_memory=huge_memory)
    framer.receive(struct.pack(">i", size))
    views: list[memoryview] = []
    frames: list[memoryview] = []
    while not frames:
        views.append(framer.buffer())
        views[-1][:] = bytes([len(views)]) * len(views[-1])
        frames = framer.filled(len(views[-1]))
    assert frames[0] == b"".join(bytes([at]) * len(view) for at, view in enumerate(views, 1))


def test_frame_does_not_reference_scratch_buffer() -> None:
    """A small frame that is kept must not keep 64 KiB alive."""
    framer = Framer()
    tracemalloc.start()
    try:
        frames = [framer.receive(stream([b"small"]))[0] for _ in range(100)]
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()
    assert all(frame == b"small" for frame in frames)


def test_length_prefix() -> None:
    assert frame_length(0) == b"\0\0\0\0"
    assert frame_length(258) == b"\0\0\1\2"
    with pytest.raises(struct.error):
        frame_length(2**31)


def test_dropped_frame_releases_memory() -> None:
    framer = Framer()
    framer.receive(frame_length(10_000_000) + bytes(100_000))
    assert framer.memory
    framer.drop()
    assert not framer.memory
    assert not framer.partial


# The read buffer that several framers share.

IN_PLACE = b"\0\0"


def sharing(count: int, size: int = 16 * KEPT_BYTES_MAX) -> tuple[ReadBuffer, list[Framer]]:
    shared = ReadBuffer(size)
    return shared, [Framer(read_buffer=shared, in_place=IN_PLACE) for _ in range(count)]


@both_ways
@settings(max_examples=examples(50, usual=150), deadline=None, derandomize=True, database=None)
@given(cases=st.lists(cut_streams(), min_size=2, max_size=3), in_place=st.booleans())
def test_framers_that_share_a_buffer_do_not_mix_their_streams(
    feed: Feed, cases: list[tuple[list[bytes], list[int]]], in_place: bool
) -> None:
    _, framers = sharing(len(cases))
    first = IN_PLACE if in_place else b""
    bodies = [[first + body for body in wanted] for wanted, _ in cases]
    pieces = [
        list(chunks(stream(wanted), [min(cut, len(stream(wanted))) for cut in cuts]))
        for wanted, (_, cuts) in zip(bodies, cases, strict=True)
    ]
    frames: list[list[memoryview]] = [[] for _ in cases]
    for turn in range(max(map(len, pieces))):
        for at, framer in enumerate(framers):
            for piece in pieces[at][turn : turn + 1]:
                frames[at] += feed(framer, piece)
    assert [[bytes(frame) for frame in got] for got in frames] == bodies
    assert all(frame.readonly for got in frames for frame in got)


def test_frame_in_place_is_a_view_of_the_read_buffer() -> None:
    shared, (framer,) = sharing(1)
    memory = shared.free()
    frames = framer.receive(stream([IN_PLACE + b"first", b"copied", IN_PLACE + b"last"]))
    assert frames == [IN_PLACE + b"first", b"copied", IN_PLACE + b"last"]
    assert [frame.obj is memory for frame in frames] == [True, False, True]


def test_read_buffer_is_replaced_while_a_view_of_it_exists() -> None:
    shared, (one, other) = sharing(2)
    (kept,) = one.receive(stream([IN_PLACE + b"kept"]))
    (next_one,) = other.receive(stream([IN_PLACE + b"next"]))
    assert next_one.obj is not kept.obj
    assert (kept, next_one) == (IN_PLACE + b"kept", IN_PLACE + b"next")
    first = kept.obj
    del kept
    held = [other.receive(stream([IN_PLACE + b"more"]))[0] for _ in range(2)]
    assert any(view.obj is first for view in held)  # reused once it was free
    assert len({id(view.obj) for view in [next_one, *held]}) == 3
    del next_one, held
    memory = shared.free()
    assert shared.free() is memory


def test_beginning_of_a_frame_leaves_the_read_buffer_free() -> None:
    shared, (one, other) = sharing(2)
    memory = shared.free()
    assert one.receive(stream([IN_PLACE + b"begun"])[:-1]) == []
    assert shared.free() is memory
    assert other.receive(stream([b"of another"])) == [b"of another"]
    assert one.receive(b"n") == [IN_PLACE + b"begun"]


def test_large_copied_frame_is_reported() -> None:
    _, (framer,) = sharing(1)
    framer.receive(stream([b"x" * COPIED_BYTES_MAX, IN_PLACE + b"y" * COPIED_BYTES_MAX]))
    assert framer.copied == 0
    framer.receive(stream([b"x" * (COPIED_BYTES_MAX + 1)]))
    assert framer.copied == COPIED_BYTES_MAX + 1


def test_read_can_be_limited() -> None:
    _, (framer,) = sharing(1)
    assert len(framer.buffer(100)) == 100
    assert framer.filled(0) == []
    framer.receive(b"\0\0")
    assert len(framer.buffer(100)) == 100
    assert len(framer.buffer()) == 16 * KEPT_BYTES_MAX - 2


def test_next_frame_is_recognised_before_it_is_taken() -> None:
    framer = Framer(read_buffer=ReadBuffer(1 << 16))

    def read(data: bytes) -> None:
        framer.buffer()[: len(data)] = data
        framer.accept(len(data))

    assert framer.next_begins_with(b"ab")  # nothing is known of it
    read(frame_length(3) + b"abc" + frame_length(3) + b"acb" + frame_length(9) + b"a")
    assert framer.next_begins_with(b"ab")
    assert framer.next_frame() == b"abc"
    assert not framer.next_begins_with(b"ab")
    assert framer.keep_rest() == framer.kept == 7 + 5
    assert not framer.next_begins_with(b"ab")
    assert framer.next_frame() == b"acb"
    assert framer.kept == 7 + 5
    assert framer.next_begins_with(b"ab")  # its first byte fits
    assert framer.next_frame() is None
    assert framer.kept == 0
    read(b"bcdefghi" + frame_length(50_000) + b"xb" + bytes(100))
    assert framer.next_begins_with(b"ab")
    assert framer.next_frame() == b"abcdefghi"
    assert framer.next_frame() is None  # a large frame has begun
    assert not framer.next_begins_with(b"ab")
    assert framer.next_begins_with(b"xb")


def test_frames_are_skipped_up_to_the_first_of_another_key() -> None:
    fetch, other = b"\0\1fetch", b"\0\2other"
    framer = Framer(read_buffer=ReadBuffer(1000))
    data = stream([fetch, b"\0\1", fetch, other, fetch, fetch]) + stream([fetch])[:-1]
    framer.buffer()[: len(data)] = data
    framer.accept(len(data))
    assert framer.skip_frames({1}) == 3
    assert framer.skip_frames({1}) == 0
    assert framer.next_frame() == other
    assert framer.skip_frames({1, 2}) == 2
    assert framer.next_frame() is None  # the last one is incomplete
    framer.buffer()[:1] = fetch[-1:]
    framer.accept(1)
    assert framer.skip_frames({1}) == 1
    assert not framer.has_rest


def test_frame_that_is_too_long_is_not_skipped() -> None:
    framer = Framer(10, read_buffer=ReadBuffer(1000))
    data = stream([b"\0\1", b"\0\1" + bytes(9)])
    framer.buffer()[: len(data)] = data
    framer.accept(len(data))
    assert framer.skip_frames({1}) == 1
    with pytest.raises(ProtocolViolation):
        framer.next_frame()
    assert framer.skip_frames({1}) == 0
