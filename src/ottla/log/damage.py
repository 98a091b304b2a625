"""The damaged ranges of a log: kept as they are, and never served (rule C4).

Invariant: the ranges of a segment are in position order and do not overlap. A range of size 0
stands for records that are missing at the end of a segment, which is never appended to. The damage
file keeps the ranges over restarts; an entry counts only if its segment still has the bytes.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from ottla.ids import Offset
from ottla.log.checkpoints import number, read_checkpoint, write_checkpoint
from ottla.log.disk import Disk, read_whole, staged
from ottla.log.errors import CorruptText
from ottla.log.names import DAMAGED_OFFSETS
from ottla.records.errors import CorruptRecords

_OFFSET_MAX: Final = 2**63 - 1
_SHOWN_MAX: Final = 10  # ranges in a log line


class Damage(NamedTuple):
    """A range of damaged bytes, and the offsets that it held."""

    first_offset: Offset
    end_offset: Offset  # exclusive; equal to first_offset if no offset is missing
    position: int
    size: int

    @property
    def end(self) -> int:
        """The position after its last byte."""
        return self.position + self.size

    def covers(self, position: int) -> bool:
        """Whether the batch at a position is damaged."""
        return self.position <= position < self.end or position == self.position

    def after(self, offset: Offset, size: int, *, is_last: bool) -> "Damage | None":
        """What is left when valid batches up to an offset replace its first bytes; None if nothing.

        Batches that compaction removed may be missing at the end of the range. The last range of a
        file may need more bytes than the file has.
        """
        if offset > self.end_offset or (size > self.size and not is_last):
            raise CorruptRecords(
                f"{size} bytes up to offset {offset} do not fit into the damaged range {self}"
            )
        left = max(0, self.size - size)
        if not left and (offset == self.end_offset or not is_last):
            return None
        return Damage(offset, self.end_offset, self.position + size, left)

    def is_within(self, file_size: int) -> bool:
        """Whether a file still has these bytes; for missing records, whether it ends there."""
        return self.end <= file_size if self.size else self.position == file_size


def damage_at(damaged: Sequence[Damage], position: int) -> Damage | None:
    """The damage that covers a position."""
    return next((one for one in damaged if one.covers(position)), None)


def damage_from(damaged: Sequence[Damage], position: int) -> list[Damage]:
    """The ranges that a walk from a position on meets, the covering one first."""
    return [one for one in damaged if one.position >= position or one.covers(position)]


def check_undamaged(damaged: Sequence[Damage], position: int) -> None:
    """Raise CorruptRecords for a damaged batch."""
    if one := damage_at(damaged, position):
        raise CorruptRecords(f"offsets {one.first_offset} to {one.end_offset - 1} are damaged")


def undamaged_end(damaged: Sequence[Damage], start: int, end: int) -> int:
    """The end of the batches between two positions that can be served."""
    return next((one.position for one in damaged if start < one.position < end), end)


def offset_ranges(damaged: Sequence[Damage]) -> str:
    """The offsets of damaged ranges as a log line shows them."""
    some = [
        f"{one.first_offset} to {one.end_offset - 1}"
        for one in damaged
        if one.end_offset > one.first_offset
    ]
    more = len(some) - _SHOWN_MAX
    return ", ".join(some[:_SHOWN_MAX]) + (f" and {more} more ranges" if more > 0 else "")


def records_missing(damaged: Sequence[Damage]) -> bool:
    """Whether a segment is known to have had more records than its file has."""
    return bool(damaged) and not damaged[-1].size


class Damageable(Protocol):
    """What this module needs of a segment."""

    @property
    def base_offset(self) -> Offset:
        """The base offset of the segment."""
        ...

    @property
    def damaged(self) -> Sequence[Damage]:
        """The damaged ranges of the segment."""
        ...


def format_damage(segments: Iterable[Damageable], until: int = _OFFSET_MAX) -> str:
    """The text of the damage file with one line per range below an offset; empty if none."""
    lines = [
        f"{segment.base_offset} {one.position} {one.size} {one.first_offset} {one.end_offset}"
        for segment in segments
        for one in segment.damaged
        if one.first_offset < until
    ]
    return write_checkpoint(lines) if lines else ""


def parse_damage(text: str) -> dict[Offset, tuple[Damage, ...]]:
    """The ranges by the base offsets of their segments, or CorruptText."""
    found: dict[Offset, tuple[Damage, ...]] = {}
    for line, words in read_checkpoint(text, 5):
        names = ("base offset", "position", "size", "first offset", "end offset")
        base, position, size, first, end = (
            number(word, _OFFSET_MAX, name, line) for word, name in zip(words, names, strict=True)
        )
        before = found.get(Offset(base), ())
        behind = before[-1].end if before else 0
        if first > end or position < behind or (before and not before[-1].size):
            raise CorruptText("overlapping or negative range", line)
        found[Offset(base)] = (*before, Damage(Offset(first), Offset(end), position, size))
    return found


class DamageFile:
    """The damage file in a partition's directory; it exists only if there is damage."""

    __slots__ = ("_directory", "_disk", "_stored", "is_due")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._stored = ""
        self.is_due = False  # a full disk had no space for the last change

    @property
    def path(self) -> str:
        """The path of the file."""
        return f"{self._directory}/{DAMAGED_OFFSETS}"

    def load(self) -> dict[Offset, tuple[Damage, ...]]:
        """Read the file, or raise CorruptText; waits for the device."""
        try:
            self._stored = read_whole(self._disk, self.path).decode("ascii", "replace")
        except FileNotFoundError:
            return {}
        return parse_damage(self._stored)

    def store(self, text: str) -> None:
        """Replace the file; on the device when this returns."""
        self.is_due = text != self._stored
        if self.is_due:
            self.staged(text)()
            self._disk.sync_directory(self._directory)

    @property
    def is_empty(self) -> bool:
        """Whether the log has no known damage."""
        return not self._stored and not self.is_due

    def staged(self, text: str) -> Callable[[], None]:
        """Write the next content to a temporary file; the returned function renames it.

        The rename needs no disk space. The caller syncs the directory afterwards.
        """
        disk, path = self._disk, self.path
        changes = text != self._stored
        temporary = staged(disk, path, text.encode()) if changes and text else None

        def take() -> None:
            if temporary is not None:
                disk.rename(temporary, path)
            elif changes:
                disk.remove(path)
            self._stored, self.is_due = text, False

        return take
