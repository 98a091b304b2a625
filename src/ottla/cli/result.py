"""Results of commands: an object for programs, and lines for people.

Invariant: with JSON or YAML, stdout carries only the object. A table has no characters that a
terminal acts on, and truncates nothing. Failures are on stderr and in the object.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from ottla.cli.escapes import escaped, printable
from ottla.cli.output import Json, Output

Cell: TypeAlias = "str | int | float | bool | None"

NOTHING: Final = "-"
_ENDS: Final = ".,:;!?"  # of a line that needs no `;` before the next one
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


class Table(NamedTuple):
    """Rows under headings; numbers are right-aligned."""

    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def lines(self, *, colored: bool = False) -> Iterator[str]:
        """Return the lines, headings first."""
        texts = [[_text(cell) for cell in row] for row in self.rows]
        widths = [
            max(len(head), *(len(row[at]) for row in texts)) if texts else len(head)
            for at, head in enumerate(self.heads)
        ]
        right = [
            any(_is_number(row[at]) for row in self.rows)
            and all(row[at] is None or _is_number(row[at]) for row in self.rows)
            for at in range(len(self.heads))
        ]
        head = _line(self.heads, widths, right)
        yield f"{_BOLD}{head}{_PLAIN}" if colored else head
        for row in texts:
            yield _line(row, widths, right)


def _is_number(cell: Cell) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _text(cell: Cell) -> str:
    match cell:
        case None:
            return NOTHING
        case bool():
            return "yes" if cell else "no"
        case str():
            return escaped(cell)
        case _:
            return str(cell)


def _line(texts: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    return "  ".join(
        text.rjust(width) if is_right else text.ljust(width)
        for text, width, is_right in zip(texts, widths, right, strict=True)
    ).rstrip()


def facts(values: Mapping[str, Cell]) -> Sequence[str]:
    """Return names and values, one per line."""
    width = max(map(len, values), default=0)
    return [f"{name.replace('_', ' '):{width}}  {_text(cell)}" for name, cell in values.items()]


class Failure(NamedTuple):
    """Something that was requested and failed."""

    message: str
    code: str = "FAILED"
    about: str | None = None

    def object(self) -> dict[str, Json]:
        """Return it as an object."""
        found: dict[str, Json] = {"code": self.code, "message": self.message}
        return found if self.about is None else {"about": self.about, **found}


class Result(NamedTuple):
    """What a command found or did; with failures the exit code is 1."""

    value: Mapping[str, Json]
    shown: Sequence[Table | str]
    failures: Sequence[Failure] = ()

    def object(self) -> dict[str, Json]:
        """Return it as an object, with `errors` if something failed."""
        if not self.failures:
            return dict(self.value)
        return {**self.value, "errors": [one.object() for one in self.failures]}


def show(answer: Result, output: Output) -> int:
    """Print a result and return the exit code."""
    if output is Output.TABLE:
        for line in _lines(answer.shown):
            sys.stdout.write(line + "\n")
        for failure in answer.failures:
            complain(failure.message)
    else:
        write_object(answer.object(), output)
    return 1 if answer.failures else 0


def show_failure(failure: Failure, output: Output) -> None:
    """Print a failure: on stderr, or as the object on stdout."""
    if output is Output.TABLE:
        complain(failure.message)
    else:
        write_object({"error": failure.object()}, output)


def complain(message: str) -> None:
    """Print one line on stderr; problems that a broker lists one a line are separated by `;`."""
    *lines, last = [" ".join(line.split()) for line in message.splitlines() if line.strip()] or [""]
    ended = [line if line[-1] in _ENDS else f"{line};" for line in lines]
    sys.stdout.flush()
    sys.stderr.write(f"ottla: {printable(' '.join((*ended, last)))}\n")


def write_object(value: Mapping[str, Json], output: Output) -> None:
    """Write one object to stdout; in a stream, one after the other."""
    if output is Output.JSON:
        from json import dumps

        sys.stdout.write(dumps(value, ensure_ascii=False) + "\n")
    else:
        import yaml

        text = yaml.safe_dump(_plain(value), sort_keys=False, allow_unicode=True)
        sys.stdout.write(f"---\n{text}")


def _plain(value: Json) -> Json:
    """Convert to lists and dictionaries only: YAML would tag other types."""
    match value:
        case str():
            return str(value)
        case Mapping():
            return {str(name): _plain(one) for name, one in value.items()}
        case Sequence():
            return [_plain(one) for one in value]
        case _:
            return value


def _lines(shown: Iterable[Table | str]) -> Iterator[str]:
    colored = is_colored()
    for one in shown:
        if isinstance(one, Table):
            yield from one.lines(colored=colored)
        else:
            yield one


def is_colored() -> bool:
    """Whether stdout supports colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
