"""Decides where to read a growing file next, what its changes mean, and where its lines end.

A mark is the place up to which a file was read, with fingerprints of the bytes before it: its first
bytes, and the last bytes before the place. The fingerprints recognise the content, also after the
file was renamed or copied. A file whose content before the mark is different was truncated or
replaced.

Invariant: `0 <= head.size <= position` and `0 <= tail.size <= position`. A line is returned only
when its newline was read, unless the file has ended. The values of a block and the newlines between
them are exactly the bytes by which the mark advances. A line longer than the limit is returned in
parts, each of at most the limit.
"""

from dataclasses import dataclass
from enum import Enum, auto
from hashlib import blake2b
from typing import Final, NamedTuple

HEAD_BYTES: Final = 1024
TAIL_BYTES: Final = 256
COPY_BYTES_MIN: Final = 256
"""Files with fewer bytes in common are not taken for copies: many logs begin with the same line."""

_DIGEST_BYTES: Final = 16


class Fingerprint(NamedTuple):
    """The digest of some bytes, and their number."""

    size: int
    digest: str


def fingerprint(data: bytes) -> Fingerprint:
    """Return the fingerprint of these bytes."""
    return Fingerprint(len(data), blake2b(data, digest_size=_DIGEST_BYTES).hexdigest())


NOTHING: Final = fingerprint(b"")


class FileId(NamedTuple):
    """What the file system calls a file; it may be used again when the file is deleted."""

    device: int
    inode: int


class Mark(NamedTuple):
    """A place in a file, and the fingerprints of what is before it."""

    position: int = 0
    head: Fingerprint = NOTHING
    tail: Fingerprint = NOTHING
    parts: int = 0
    """The number of parts of the line at this place that come before it; 0 at the start of a line.
    """


class Stretch(NamedTuple):
    """The bytes of a file to read."""

    start: int
    size: int


def stretch_after(mark: Mark, size: int) -> Stretch:
    """Return what to read for up to `size` bytes after the mark.

    It includes the bytes of the tail, and all bytes from the start while the head is not complete.
    """
    start = 0 if mark.position < HEAD_BYTES else mark.position - mark.tail.size
    return Stretch(start, mark.position - start + size)


def has_tail(mark: Mark, start: int, data: bytes) -> bool:
    """Whether bytes that were read from `start` on have the tail of the mark before its place."""
    end = mark.position - start
    if len(data) < end:
        return False
    return fingerprint(data[end - mark.tail.size : end]) == mark.tail


def has_head(mark: Mark, first: bytes) -> bool:
    """Whether a file that begins with these bytes has the head of the mark."""
    return fingerprint(first[: mark.head.size]) == mark.head


def advanced(mark: Mark, start: int, data: bytes, used: int, parts: int) -> Mark:
    """Return the mark after `used` more bytes of the bytes that were read from `start` on."""
    position = mark.position + used
    before = data[: position - start]
    head = mark.head
    if head.size < HEAD_BYTES and start == 0:
        head = fingerprint(before[:HEAD_BYTES])
    return Mark(position, head, fingerprint(before[-TAIL_BYTES:]), parts)


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines, or one part of a line that is too long."""

    values: list[bytes]
    used: int
    """The number of bytes that they take in the file, with their newlines."""

    parts: int = 0
    """The parts of an incomplete long line after this block."""

    part: int = 0
    """The number of the part, from 1 on; 0 for whole lines."""

    is_last: bool = False
    """Whether it is the last part of its line."""


def next_block(data: bytes, limit: int, parts: int = 0, *, is_end: bool = False) -> Block | None:
    """Return the next lines of the bytes after a mark; None if they have to wait for more bytes.

    `parts` is that of the mark. With `is_end` there will be no more bytes, and the last line may
    lack its newline.
    """
    if parts:
        return _next_part(data, limit, parts, is_end=is_end)
    end = data.rfind(b"\n")
    if end < 0:
        if len(data) > limit:
            return Block([data[:limit]], limit, parts=1, part=1)
        return Block([data], len(data)) if is_end and data else None
    values = data[:end].split(b"\n")
    if len(data) > limit and max(map(len, values)) > limit:
        count = next(at for at, value in enumerate(values) if len(value) > limit)
        if count == 0:
            return Block([data[:limit]], limit, parts=1, part=1)
        values = values[:count]
        return Block(values, sum(map(len, values)) + count)
    return Block(values, end + 1)


def _next_part(data: bytes, limit: int, parts: int, *, is_end: bool) -> Block | None:
    end = data.find(b"\n", 0, limit + 1)
    if end >= 0:
        return Block([data[:end]], end + 1, part=parts + 1, is_last=True)
    if len(data) > limit:
        return Block([data[:limit]], limit, parts=parts + 1, part=parts + 1)
    if is_end and data:
        return Block([data], len(data), part=parts + 1, is_last=True)
    return None


class Look(NamedTuple):
    """A look at an open file."""

    size: int
    changed_ns: int
    links: int
    """0 if it is deleted."""


def is_unchanged(before: Look | None, now: Look) -> bool:
    """Whether a file has nothing new since the look after which it was read to its end."""
    return before is not None and before[:2] == now[:2]


def is_over(*, is_named: bool, quiet_s: float, close_after_s: float) -> bool:
    """Whether to close a file that was read to its end.

    One that the patterns no longer find was renamed or deleted. The program that writes it may
    keep it open for a while.
    """
    return not is_named and quiet_s >= close_after_s


def may_be_copy(name: str, of: str) -> bool:
    """Whether the name of a file can be that of a copy of another one in the same directory."""
    stem = of.lstrip(".").partition(".")[0]
    return name != of and bool(stem) and name.lstrip(".").startswith(stem)


class Likeness(Enum):
    """What a file has in common with the content before a mark."""

    NONE = auto()
    BEGINNING = auto()
    """It has the head, but is too short to have the tail."""

    SAME = auto()
    """It has the head and the tail, so what follows is what followed the mark."""


def likeness(mark: Mark, size: int, first: bytes, before: bytes) -> Likeness:
    """Compare a file of this size, its first bytes and the bytes before the place of the mark."""
    if len(first) < mark.head.size or not has_head(mark, first):
        return Likeness.NONE
    if size < mark.position:
        return Likeness.BEGINNING
    return Likeness.SAME if fingerprint(before) == mark.tail else Likeness.NONE
