"""What of a log is damaged: kept as it is, and never served (rule C4).

Invariant: the damages of a segment lie in the order of their positions and do not touch each
other's bytes. One of no bytes stands for records that the file does not have any more, and lies at
the end of a segment that is never appended to. The file tells of them over restarts; one of its
lines counts only as far as the segment it names has such bytes.
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


class Damage(NamedTuple):
    """Bytes that are not what was written, and the offsets that they held."""

    first_offset: Offset
    end_offset: Offset  # behind the last one; the first one when no offset is missing
    position: int
    size: int

    @property
    def end(self) -> int:
        """Where its bytes end."""
        return self.position + self.size

    def covers(self, position: int) -> bool:
        """Whether a batch said to be at a position is not to be had."""
        return self.position <= position < self.end or position == self.position

    def is_within(self, file_size: int) -> bool:
        """Whether a file still has these bytes; where some are missing, ends with them."""
        return self.end <= file_size if self.size else self.position == file_size


def damage_at(damaged: Sequence[Damage], position: int) -> Damage | None:
    """The damage that covers a position."""
    return next((one for one in damaged if one.covers(position)), None)


def damage_from(damaged: Sequence[Damage], position: int) -> list[Damage]:
    """The damages that a walk from a position on meets, the one that covers it first."""
    return [one for one in damaged if one.position >= position or one.covers(position)]


def check_undamaged(damaged: Sequence[Damage], position: int) -> None:
    """Refuse to serve a batch that is damaged."""
    if one := damage_at(damaged, position):
        raise CorruptRecords(f"offsets {one.first_offset} to {one.end_offset - 1} are damaged")


def undamaged_end(damaged: Sequence[Damage], start: int, end: int) -> int:
    """Where the batches between two positions end that can be served: the others stay readable."""
    return next((one.position for one in damaged if start < one.position < end), end)


def records_missing(damaged: Sequence[Damage]) -> bool:
    """Whether a segment is known to have had more than its file has: nothing else tells of it."""
    return bool(damaged) and not damaged[-1].size


class Damageable(Protocol):
    """A segment, as far as it is seen here."""

    @property
    def base_offset(self) -> Offset:
        """Its name."""
        ...

    @property
    def damaged(self) -> Sequence[Damage]:
        """What of it is damaged."""
        ...


def format_damage(segments: Iterable[Damageable], until: int = _OFFSET_MAX) -> str:
    """The text of the file, a line for each damage below an offset; none without damage."""
    lines = [
        f"{segment.base_offset} {one.position} {one.size} {one.first_offset} {one.end_offset}"
        for segment in segments
        for one in segment.damaged
        if one.first_offset < until
    ]
    return write_checkpoint(lines) if lines else ""


def parse_damage(text: str) -> dict[Offset, tuple[Damage, ...]]:
    """The damages by the base offsets of their segments, or CorruptText."""
    found: dict[Offset, tuple[Damage, ...]] = {}
    for line, words in read_checkpoint(text, 5):
        names = ("base offset", "position", "size", "first offset", "end offset")
        base, position, size, first, end = (
            number(word, _OFFSET_MAX, name, line) for word, name in zip(words, names, strict=True)
        )
        before = found.get(Offset(base), ())
        behind = before[-1].end if before else 0
        if first > end or position < behind or (before and not before[-1].size):
            raise CorruptText("damages that overlap or end before they begin", line)
        found[Offset(base)] = (*before, Damage(Offset(first), Offset(end), position, size))
    return found


class DamageFile:
    """The file of a partition's folder; there is none while nothing is damaged."""

    __slots__ = ("_directory", "_disk", "_stored", "is_due")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._stored = ""
        self.is_due = False  # it does not say yet what it was told to, for want of room

    @property
    def path(self) -> str:
        """Where it is."""
        return f"{self._directory}/{DAMAGED_OFFSETS}"

    def load(self) -> dict[Offset, tuple[Damage, ...]]:
        """What the file says, or CorruptText; waits for the device."""
        try:
            self._stored = read_whole(self._disk, self.path).decode("ascii", "replace")
        except FileNotFoundError:
            return {}
        return parse_damage(self._stored)

    def store(self, text: str) -> None:
        """Let the file say what is damaged, on the device when this returns."""
        self.is_due = text != self._stored
        if self.is_due:
            self.staged(text)()
            self._disk.sync_directory(self._directory)

    def staged(self, text: str) -> Callable[[], None]:
        """Make room for what the file is to say; what is returned lets it say so, and needs none.

        The folder has to be synced after it.
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
