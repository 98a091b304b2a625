"""Where a setting came from, and what is wrong with it.

Invariant: a problem prints as one line, `file:line: name: what`, and never holds the value of a
password, of a setting nobody knows, or of one that is refused.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

FOUND_CHARACTERS_MAX: Final = 100

# Small values in this folder are NamedTuples: a broker has to be up in half a second, and a
# frozen dataclass costs 0.6 ms at import where one of these costs 0.07.


class Origin(NamedTuple):
    """A file and its line, or a source that has no lines, such as --override."""

    source: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


class Problem(NamedTuple):
    """One thing to tell the user about one setting, as an error or as a warning."""

    name: str
    what: str
    origin: Origin | None = None

    def __str__(self) -> str:
        named = f"{printable(self.name)}: {self.what}" if self.name else self.what
        return f"{self.origin}: {named}" if self.origin else named


class InvalidSettings(Exception):
    """Settings that cannot be used, with every problem that was found, one per line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        assert self.problems, "no problem, no exception"
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


def invalid(
    name: str, shown: str, valid: object, origin: Origin | None = None, *, note: str = ""
) -> Problem:
    """The problem of a value: what was found (see `quoted`), and what is valid instead."""
    because = f" ({note})" if note else ""
    return Problem(name, f"found {shown}{because}, valid: {valid}", origin)


def quoted(text: str) -> str:
    """The text in double quotes, fit for one line of a log."""
    return f'"{printable(text)}"'


def printable(text: str) -> str:
    """The text fit for one line of a log: short, without control characters."""
    cut = text if len(text) <= FOUND_CHARACTERS_MAX else text[: FOUND_CHARACTERS_MAX - 1] + "…"
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in cut)
