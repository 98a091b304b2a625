"""Problems of a pipeline: the path of a value, and what is wrong with it.

Invariant: a problem never contains the value of a variable. `shown` quotes a value as it is written
in the declaration.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from ottla.errors import OttlaError

Path: TypeAlias = tuple[str | int, ...]
"""Where a value is: ("sources", "readings", "json")."""

SHOWN_CHARACTERS_MAX: Final = 60
_NEAR: Final = 0.6
_KEY: Final = re.compile(r"[\w-]+")


class Severity(StrEnum):
    """Whether a problem stops the pipeline."""

    ERROR = "error"
    WARNING = "warning"


class Position(NamedTuple):
    """A place in a file, counted from 1."""

    line: int
    column: int


class PipelineProblem(NamedTuple):
    """One mistake in a declaration."""

    path: Path
    what: str
    severity: Severity = Severity.ERROR
    at_key: bool = False
    """Whether the mistake is the key, and not its value."""
    offset: int = 0
    """The character of a text at which the mistake is."""
    position: Position | None = None
    """The place in the file, if the declaration is from a file."""

    def __str__(self) -> str:
        """Return the problem on one line, without the name of the file."""
        warning = "warning: " if self.severity is Severity.WARNING else ""
        named = f"{path_text(self.path)}: " if self.path else ""
        return f"{warning}{named}{self.what}"

    def in_file(self, file: str) -> str:
        """Return the problem on one line, as editors and compilers print it."""
        if self.position is None:
            return f"{file}: {self}"
        return f"{file}:{self.position.line}:{self.position.column}: {self}"


class InvalidPipeline(OttlaError):
    """A declaration with mistakes; the message has all of them, one per line."""

    def __init__(self, problems: Iterable[PipelineProblem], file: str = "") -> None:
        self.problems = tuple(problems)
        assert self.problems, "InvalidPipeline requires a problem"
        lines = (one.in_file(file) if file else str(one) for one in self.problems)
        super().__init__("\n".join(lines))


class Substituted(str):
    """A text in which variables were replaced by their values; errors show `written`."""

    __slots__ = ("written",)
    written: str

    def __new__(cls, value: str, written: str) -> "Substituted":
        """Create the text from its value and what the declaration says."""
        self = super().__new__(cls, value)
        self.written = written
        return self

    def __repr__(self) -> str:
        return repr(self.written)

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


def path_text(path: Path) -> str:
    """Return a path as text: sinks[0].from, client["ssl.key.password"]."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif not _KEY.fullmatch(part):
            text += f'["{_printable(part)}"]'
        else:
            text += f".{part}" if text else part
    return text


def shown(value: str) -> str:
    """Quote a value for an error: as it is written, short and on one line."""
    text = value.written if isinstance(value, Substituted) else value
    text = " ".join(text.split())
    if len(text) > SHOWN_CHARACTERS_MAX:
        text = text[: SHOWN_CHARACTERS_MAX - 1] + "…"
    return f'"{_printable(text)}"'


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the most similar name, if one is similar; letter case does not count."""
    folded = {one.casefold(): one for one in known}
    near = get_close_matches(name.casefold(), folded, n=1, cutoff=_NEAR)
    return folded[near[0]] if near else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the hint with the most similar name, or nothing."""
    near = nearest(name, known)
    return "" if near is None else f"; did you mean {near}?"


def listed(names: Iterable[str], last: str = "and") -> str:
    """Return names as a sentence has them: a, b and c."""
    *first, end = names
    return f"{', '.join(first)} {last} {end}" if first else end


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
