"""Where lines end, and what the fingerprints of a file recognise."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.cli.collect.tail import (
    HEAD_BYTES,
    TAIL_BYTES,
    Block,
    Likeness,
    Mark,
    advanced,
    fingerprint,
    has_head,
    has_tail,
    likeness,
    may_be_copy,
    next_block,
    stretch_after,
)
from sampling import examples

texts = st.lists(st.binary(max_size=12).map(lambda one: one.replace(b"\n", b"")), max_size=12)


def blocks(data: bytes, limit: int, size: int, *, is_end: bool) -> tuple[list[Block], bytes]:
    """Return the blocks of a file that is read `size` bytes at a time, and the rest."""
    found: list[Block] = []
    position = parts = 0
    while True:
        for length in (size, limit + 1):
            rest = data[position:]
            ends = is_end and len(rest) <= length
            block = next_block(rest[:length], limit, parts, is_end=ends)
            if block is not None:
                break
        else:
            return found, data[position:]
        assert 0 < block.used <= max(size, limit + 1)
        found.append(block)
        position += block.used
        parts = block.parts


def joined(found: list[Block], limit: int) -> list[bytes]:
    """Return the lines of blocks, with long lines put together."""
    lines: list[bytes] = []
    parts: list[bytes] = []
    for block in found:
        assert all(len(value) <= limit for value in block.values)
        if not block.part:
            assert not parts
            lines += block.values
            continue
        assert block.part == len(parts) + 1
        parts += block.values
        if block.is_last:
            lines.append(b"".join(parts))
            parts = []
    assert not parts
    return lines


@given(texts, st.integers(1, 10), st.integers(1, 40))
@settings(max_examples=examples(100, usual=300), deadline=None)
def test_lines_are_found_whole_and_in_order(lines: list[bytes], limit: int, size: int) -> None:
    data = b"".join(line + b"\n" for line in lines)
    found, rest = blocks(data, limit, size, is_end=False)
    assert (joined(found, limit), rest) == (lines, b"")
    assert sum(block.used for block in found) == len(data)


@given(texts, st.binary(min_size=1, max_size=12), st.integers(1, 10), st.integers(1, 40))
@settings(max_examples=examples(100, usual=300), deadline=None)
def test_last_line_waits_for_its_newline(
    lines: list[bytes], last: bytes, limit: int, size: int
) -> None:
    last = last.replace(b"\n", b"x")
    data = b"".join(line + b"\n" for line in lines) + last
    found, rest = blocks(data, limit, size, is_end=False)
    assert len(rest) <= limit
    complete = [one for one in found if not one.part or one.is_last]
    assert sum(len(one.values) for one in complete if not one.part) <= len(lines)
    found, rest = blocks(data, limit, size, is_end=True)
    assert (joined(found, limit), rest) == ([*lines, last], b"")


def walked(data: bytes, steps: list[int]) -> Mark:
    """Return the mark after the file was read in these steps."""
    mark = Mark()
    for step in steps:
        start, size = stretch_after(mark, step)
        read = data[start : start + size]
        assert has_tail(mark, start, read)
        assert has_head(mark, data)
        mark = advanced(mark, start, read, max(0, len(read) - (mark.position - start)), 0)
    return mark


@given(st.lists(st.integers(1, 700), max_size=8))
@settings(max_examples=examples(50, usual=200), deadline=None)
def test_mark_does_not_depend_on_the_steps(steps: list[int]) -> None:
    data = bytes(at * 7 % 251 for at in range(sum(steps)))
    mark = walked(data, steps)
    assert mark.position == len(data)
    assert mark.head == fingerprint(data[:HEAD_BYTES])
    assert mark.tail == fingerprint(data[-TAIL_BYTES:])


@given(st.integers(1, 3000), st.integers(0, 3000), st.binary(max_size=20))
@settings(max_examples=examples(50, usual=200), deadline=None)
def test_content_is_recognised(size: int, changed: int, more: bytes) -> None:
    data = bytes(at * 7 % 251 for at in range(size))
    mark = walked(data, [size])

    def like(other: bytes) -> Likeness:
        before = other[max(0, size - TAIL_BYTES) : size]
        return likeness(mark, len(other), other[:HEAD_BYTES], before)

    assert like(data + more) is Likeness.SAME
    at = changed % size
    other = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    if at < HEAD_BYTES or at >= size - TAIL_BYTES:
        assert like(other + more) is Likeness.NONE
    shorter = data[: changed % size]
    expected = Likeness.BEGINNING if len(shorter) >= mark.head.size else Likeness.NONE
    assert like(shorter) is expected


def test_names_of_copies() -> None:
    for name in ("app.log.1", "app.log-20261118", "app-1.log", "app.1.log", "app.log.copy"):
        assert may_be_copy(name, "app.log"), name
    for name in ("app.log", "other.log", "my-app.log"):
        assert not may_be_copy(name, "app.log"), name
