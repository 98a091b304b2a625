"""What is wrong with a file, or worth knowing about it.

Invariant: a finding names the file and says what is wrong in words that need no other line; its
level alone decides whether a file counts as damaged.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

# One damaged place can make everything behind it look wrong; nobody reads the thousandth line.
FINDINGS_PER_FILE_MAX: Final = 20

T = TypeVar("T")


class Level(StrEnum):
    """How much a finding weighs."""

    DAMAGE = "damage"  # the file is not what was once written, or does not fit the others
    INCOMPLETE = "incomplete"  # a broker that runs or died has not finished writing this
    NOTE = "note"  # harmless, or not looked at


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found, at a byte or a line of a file where it has a place."""

    level: Level
    path: str
    problem: str
    position: int | None = None
    line: int | None = None


def capped(items: Iterable[T | Finding]) -> Iterator[T | Finding]:
    """The same without the crowd: of each level only the first findings of a file."""
    seen: Counter[tuple[str, Level]] = Counter()
    for item in items:
        if isinstance(item, Finding):
            seen[item.path, item.level] += 1
            count = seen[item.path, item.level]
            if count > FINDINGS_PER_FILE_MAX:
                if count == FINDINGS_PER_FILE_MAX + 1:
                    yield Finding(item.level, item.path, "more of this kind, which is not shown")
                continue
        yield item


def gone_or_unreadable(path: str, error: Exception) -> Finding:
    """A broker that runs removes files; one that cannot be read is another matter."""
    if isinstance(error, FileNotFoundError):
        return Finding(Level.NOTE, path, "it is not there any more")
    return Finding(Level.DAMAGE, path, str(error).removeprefix(f"{path}: "))
