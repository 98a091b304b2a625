"""Tracks the files that patterns find, through rotations, truncations and restarts.

Each file has two marks: up to which it was read, and up to which its lines are acknowledged. Only
the second one is stored. A file is known by its identity (device and inode) and its content
(`tail.py`), not by its name: a renamed file is read on, and a file that was truncated after it was
copied is read on in the copy. Records keep the path under which the file was found first.

Invariant: `acknowledged.position <= mark.position` for each file. Each file is tracked once. A file
is forgotten only when all its lines are acknowledged and no pattern finds it, or when its content
is gone. The disk and the time come from outside.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

from ottla.cli.collect.disk import Disk, OpenFile
from ottla.cli.collect.tail import (
    COPY_BYTES_MIN,
    HEAD_BYTES,
    TAIL_BYTES,
    Block,
    FileId,
    Likeness,
    Look,
    Mark,
    Stretch,
    advanced,
    fingerprint,
    has_head,
    has_tail,
    is_over,
    is_unchanged,
    likeness,
    may_be_copy,
    next_block,
    stretch_after,
)

BLOCK_BYTES: Final = 1 << 18
COMPRESSED: Final = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip")
"""Files with these endings are not text: rotated logs are often compressed."""

NO_FILE: Final = FileId(0, 0)


@dataclass(frozen=True, slots=True)
class Stored:
    """What is stored of a file."""

    path: str
    id: FileId
    mark: Mark


@dataclass(frozen=True, slots=True)
class TrackerConfig:
    """How files are read."""

    patterns: Sequence[str]
    line_bytes_max: int = 1_000_000
    close_after_s: float = 30.0
    block_bytes: int = BLOCK_BYTES


@dataclass(eq=False, slots=True)
class TrackedFile:
    """A file, and how far it is."""

    path: str
    """Where it was found first."""

    file: OpenFile | None
    """None if there is nothing more to read."""

    mark: Mark
    acknowledged: Mark
    unacknowledged: int = 0
    """The number of blocks that were read and are not acknowledged."""

    is_named: bool = True
    """Whether the patterns still find it."""

    read_to_end: Look | None = None
    news_s: float = 0.0
    size: int = 0
    """When it was last looked at."""

    @property
    def id(self) -> FileId:
        """The identity of the open file."""
        return NO_FILE if self.file is None else self.file.id


@dataclass(frozen=True, slots=True)
class ReadBlock:
    """Lines that were read from a file."""

    source: TrackedFile
    block: Block
    after: Mark


@dataclass(slots=True)
class Tracker:
    """The tracked files of a collector."""

    disk: Disk
    config: TrackerConfig
    problems: dict[str, str] = field(default_factory=dict[str, str])
    """Why files cannot be opened."""

    _files: list[TrackedFile] = field(default_factory=list[TrackedFile])
    """In the order in which they were found, so that predecessors come first."""

    _turn: int = 0
    _truncations: int = 0
    _copies: set[FileId] = field(default_factory=set[FileId])
    """Files that were seen to be copies of tracked ones."""

    @property
    def files(self) -> Sequence[TrackedFile]:
        """The files that can be read."""
        return [one for one in self._files if one.file is not None]

    def stored(self) -> list[Stored]:
        """Return what to store: how far each file is acknowledged."""
        return [Stored(one.path, one.id, one.acknowledged) for one in self._files]

    def restore(self, stored: Sequence[Stored], now_s: float) -> None:
        """Find the files of an earlier run again, wherever they are in their directories."""
        matched = self.disk.matches(self.config.patterns)
        by_id = {file_id: path for path, file_id in matched.items()}
        order = {id(one): at for at, one in enumerate(stored)}
        found: dict[int, TrackedFile] = {}
        # Entries with content first: an empty mark fits every file.
        for one in sorted(stored, key=lambda one: -one.mark.position):
            file = self._find(one, by_id)
            if file is not None:
                tracked = TrackedFile(one.path, file, one.mark, one.mark, news_s=now_s)
                self._track(tracked)
                found[order[id(one)]] = tracked
        others = [one for one in self._files if one not in found.values()]
        self._files = [*others, *(found[at] for at in sorted(found))]

    def scan(self, now_s: float, *, at_end: bool = False) -> None:
        """Look which files the patterns find; with `at_end`, new ones begin at their last line."""
        found = self.disk.matches(self.config.patterns)
        named = {*found.values()}
        for one in self._files:
            is_named = one.id in named
            if one.is_named and not is_named:
                one.news_s = now_s
            one.is_named = is_named
        self.problems = {path: why for path, why in self.problems.items() if path in found}
        tracked = {one.id for one in self._files}
        for path, file_id in found.items():
            if path.endswith(COMPRESSED) or file_id in tracked:
                continue
            file = self._open(path)
            if file is None:
                continue
            if self._is_tracked(file.id) or self._is_copy(path, file):
                file.close()
                continue
            mark = self._last_line(file) if at_end else Mark()
            tracked.add(file.id)
            self._track(TrackedFile(path, file, mark, mark, news_s=now_s))

    def read(self, now_s: float) -> ReadBlock | None:
        """Return the next lines of any file; None if there are none now.

        Files take turns. The predecessors of a file come before it, so that its lines come after
        theirs.
        """
        while True:
            truncations = self._truncations
            for one in self._in_turn():
                found = self._read(one, now_s)
                if found is not None:
                    self._turn += 1
                    return found
                if self._truncations != truncations:
                    break  # the rest of the former content comes first
            else:
                return None

    def _in_turn(self) -> Iterator[TrackedFile]:
        newest = {one.path: one for one in self._files}
        files = [*self._files]
        yield from (one for one in files if newest[one.path] is not one or not one.is_named)
        for at in range(len(files)):
            one = files[(self._turn + at) % len(files)]
            if newest[one.path] is one and one.is_named:
                yield one

    def acknowledge(self, read: ReadBlock) -> None:
        """Note that the lines of a block are written; for each file in the order of reading."""
        one = read.source
        assert one.acknowledged.position <= read.after.position
        one.acknowledged = read.after
        one.unacknowledged -= 1
        self._forget_if_done(one)

    def close(self) -> None:
        """Close all files."""
        for one in self._files:
            if one.file is not None:
                one.file.close()
                one.file = None

    def _read(self, one: TrackedFile, now_s: float) -> ReadBlock | None:
        if one.file is None:
            return None
        look = one.file.look()
        one.size = look.size
        is_end = False
        if is_unchanged(one.read_to_end, look):
            quiet_s = now_s - one.news_s
            is_end = is_over(
                is_named=one.is_named, quiet_s=quiet_s, close_after_s=self.config.close_after_s
            )
            if not is_end:
                return None
        else:
            one.news_s = now_s
        found = self._next_block(one, one.file, is_end=is_end)
        if found is None:
            self._truncated(one, now_s)
            return None
        block, after = found
        if block is not None:
            one.mark = after
            one.read_to_end = None
            one.unacknowledged += 1
            return ReadBlock(one, block, after)
        one.read_to_end = look
        if is_end:
            one.file.close()
            one.file = None
            self._forget_if_done(one)
        return None

    def _next_block(
        self, one: TrackedFile, file: OpenFile, *, is_end: bool
    ) -> tuple[Block | None, Mark] | None:
        """Return the next block, if there is one, and the mark after it; None if truncated."""
        mark, limit = one.mark, self.config.line_bytes_max
        for size in (self.config.block_bytes, limit + 1):
            start, length = stretch_after(mark, size)
            data = file.read(start, length)
            # The head is compared after the bytes were read: they are from before a truncation.
            if not has_tail(mark, start, data) or not has_head(mark, file.read(0, mark.head.size)):
                return None
            block = next_block(data[mark.position - start :], limit, mark.parts, is_end=is_end)
            if block is not None:
                return block, advanced(mark, start, data, block.used, block.parts)
            if len(data) < length:
                break
        return None, mark

    def _truncated(self, one: TrackedFile, now_s: float) -> None:
        """Read a file from its start, and the rest of its former content in a copy."""
        self._truncations += 1
        file = one.file
        one.file = self._find_copy(one.path, one.mark)
        one.is_named = False
        one.news_s = now_s
        one.read_to_end = None
        new = TrackedFile(one.path, file, Mark(), Mark(), news_s=now_s)
        self._files.insert(self._files.index(one) + 1, new)  # before its successors
        self._forget_if_done(one)

    def _track(self, one: TrackedFile) -> None:
        if one.file is not None:
            one.size = one.file.look().size
        self._files.append(one)

    def _forget_if_done(self, one: TrackedFile) -> None:
        if one.file is None and not one.unacknowledged:
            self._files.remove(one)

    def _is_tracked(self, file_id: FileId) -> bool:
        return any(one.id == file_id for one in self._files)

    def _open(self, path: str) -> OpenFile | None:
        try:
            file = self.disk.open(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self.problems[path] = error.strerror or str(error)
            return None
        self.problems.pop(path, None)
        return file

    def _is_copy(self, path: str, file: OpenFile) -> bool:
        """Whether a new file has the content of a tracked one, such as before a truncation."""
        for one in self._files:
            if one.mark.head.size < COPY_BYTES_MIN or not _are_relatives(path, one.path):
                continue
            found = _likeness(file, one.mark)
            is_same = found is Likeness.SAME
            if found is Likeness.BEGINNING and one.file is not None:
                # It may be copied just now, or it is an older copy.
                end = file.look().size
                last = Stretch(max(0, end - TAIL_BYTES), min(end, TAIL_BYTES))
                is_same = file.read(*last) == one.file.read(*last)
            if is_same:
                self._copies.add(file.id)
                return True
        return False

    def _find(self, stored: Stored, matched: Mapping[FileId, str]) -> OpenFile | None:
        """Return the file of an earlier run: the same file, or else one with its content."""
        path = matched.get(stored.id)
        if path is None:
            near = self.disk.neighbours(stored.path)
            path = next((path for path, one in near.items() if one == stored.id), None)
        if path is not None and not path.endswith(COMPRESSED) and not self._is_tracked(stored.id):
            file = self._open(path)
            if file is not None and _likeness(file, stored.mark) is Likeness.SAME:
                return file
            if file is not None:
                file.close()
        if not stored.mark.position:
            return None
        return self._find_copy(stored.path, stored.mark, is_missing=True)

    def _find_copy(self, path: str, mark: Mark, *, is_missing: bool = False) -> OpenFile | None:
        """Return a file with the content before the mark.

        With `is_missing`, it may have the same path: the numbers of devices can change.
        """
        for other, file_id in self.disk.neighbours(path).items():
            if not (_are_relatives(other, path) or (is_missing and other == path)):
                continue
            if other.endswith(COMPRESSED) or self._is_tracked(file_id):
                continue
            file = self._open(other)
            if file is None:
                continue
            match _likeness(file, mark):
                case Likeness.SAME:
                    return file
                case Likeness.BEGINNING if file.id in self._copies:
                    # Everything in it was read.
                    end = _mark_at(file, file.look().size)
                    self._track(TrackedFile(other, file, end, end))
                case _:
                    file.close()
        return None

    def _last_line(self, file: OpenFile) -> Mark:
        """Return the mark at the start of the last line, which may be incomplete."""
        size = file.look().size
        start = max(0, size - self.config.line_bytes_max)
        newline = file.read(start, size - start).rfind(b"\n")
        if newline < 0:
            return _mark_at(file, size if start else 0)
        return _mark_at(file, start + newline + 1)


def _are_relatives(path: str, of: str) -> bool:
    one, other = PurePath(path), PurePath(of)
    return one.parent == other.parent and may_be_copy(one.name, other.name)


def _likeness(file: OpenFile, mark: Mark) -> Likeness:
    before = file.read(mark.position - mark.tail.size, mark.tail.size)
    return likeness(mark, file.look().size, file.read(0, mark.head.size), before)


def _mark_at(file: OpenFile, position: int) -> Mark:
    tail = file.read(max(0, position - TAIL_BYTES), min(position, TAIL_BYTES))
    return Mark(position, fingerprint(file.read(0, min(position, HEAD_BYTES))), fingerprint(tail))
