"""Findings: what is wrong with a file, or worth knowing about it.

Invariant: a finding names the file and is understandable without other lines. Its level alone
decides whether the file counts as damaged.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

# One damaged byte can make everything after it look wrong.
FINDINGS_PER_FILE_MAX: Final = 20

T = TypeVar("T")


class Level(StrEnum):
    """The severity of a finding."""

    DAMAGE = "damage"  # the file differs from what was written, or contradicts other files
    INCOMPLETE = "incomplete"  # a running or killed broker has not finished writing this
    NOTE = "note"  # harmless, or not checked


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding, with the position or the line in the file if there is one."""

    level: Level
    path: str
    problem: str
    position: int | None = None
    line: int | None = None


def capped(items: Iterable[T | Finding]) -> Iterator[T | Finding]:
    """The items with a limited number of findings per file and level."""
    seen: Counter[tuple[str, Level]] = Counter()
    for item in items:
        if isinstance(item, Finding):
            seen[item.path, item.level] += 1
            count = seen[item.path, item.level]
            if count > FINDINGS_PER_FILE_MAX:
                if count == FINDINGS_PER_FILE_MAX + 1:
                    yield Finding(
                        item.level, item.path, "further findings of this level are not shown"
                    )
                continue
        yield item


def missing_or_unreadable(path: str, error: Exception) -> Finding:
    """The finding for a file that cannot be opened; a running broker may have removed it."""
    if isinstance(error, FileNotFoundError):
        return Finding(Level.NOTE, path, "the file was removed meanwhile")
    return Finding(Level.DAMAGE, path, str(error).removeprefix(f"{path}: "))
