"""InvalidSettings, and the problems it reports with their origin.

Invariant: a problem prints as one line, `file:line: name: what`. It never contains the value of a
password, of an unknown setting or of an unsupported one.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

FOUND_CHARACTERS_MAX: Final = 100

# The value classes of this folder are NamedTuples, because a frozen dataclass takes 0.6 ms to
# import and a NamedTuple 0.07 ms. A broker starts in less than half a second.


class Origin(NamedTuple):
    """The file and line of a setting, or a source without lines such as --override."""

    source: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


class Problem(NamedTuple):
    """An error or a warning about one setting."""

    name: str
    what: str
    origin: Origin | None = None

    def __str__(self) -> str:
        named = f"{printable(self.name)}: {self.what}" if self.name else self.what
        return f"{self.origin}: {named}" if self.origin else named


class InvalidSettings(Exception):
    """Invalid settings, with all problems, one per line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        assert self.problems, "InvalidSettings requires a problem"
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


def invalid(
    name: str, shown: str, expected: object, origin: Origin | None = None, *, note: str = ""
) -> Problem:
    """Return the problem of an invalid value; `shown` is the value as text (see `quoted`)."""
    because = f" ({note})" if note else ""
    return Problem(name, f"invalid value {shown}{because}: expected {expected}", origin)


def quoted(text: str) -> str:
    """Return the text in double quotes, shortened and escaped for one line of a log."""
    return f'"{printable(text)}"'


def printable(text: str) -> str:
    """Return the text shortened and without control characters, for one line of a log."""
    cut = text if len(text) <= FOUND_CHARACTERS_MAX else text[: FOUND_CHARACTERS_MAX - 1] + "…"
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in cut)
