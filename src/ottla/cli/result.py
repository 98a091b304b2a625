"""What a command answers: an object for programs, and the same as lines for people.

Invariant: with JSON or YAML stdout carries the object and nothing else. A table holds nothing that
a terminal acts on, and cuts nothing off. What failed is told on stderr, and in the object.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from ottla.cli.escapes import escaped, printable
from ottla.cli.output import Json, Output

Cell: TypeAlias = "str | int | float | bool | None"

NOTHING: Final = "-"
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


class Table(NamedTuple):
    """Rows under headings; numbers stand at the right."""

    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def lines(self, *, colored: bool = False) -> Iterator[str]:
        """The lines, headings first."""
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
    """Names with their values, one a line."""
    width = max(map(len, values), default=0)
    return [f"{name.replace('_', ' '):{width}}  {_text(cell)}" for name, cell in values.items()]


class Failure(NamedTuple):
    """Something that was asked for and not done."""

    message: str
    code: str = "FAILED"
    about: str | None = None

    def object(self) -> dict[str, Json]:
        """As programs get it."""
        found: dict[str, Json] = {"code": self.code, "message": self.message}
        return found if self.about is None else {"about": self.about, **found}


class Result(NamedTuple):
    """What a command found or did; with failures it ends with 1."""

    value: Mapping[str, Json]
    shown: Sequence[Table | str]
    failures: Sequence[Failure] = ()

    def object(self) -> dict[str, Json]:
        """As programs get it: `errors` is there when something failed."""
        if not self.failures:
            return dict(self.value)
        return {**self.value, "errors": [one.object() for one in self.failures]}


def show(answer: Result, output: Output) -> int:
    """Print an answer; the exit code."""
    if output is Output.TABLE:
        for line in _lines(answer.shown):
            sys.stdout.write(line + "\n")
        for failure in answer.failures:
            complain(failure.message)
    else:
        write_object(answer.object(), output)
    return 1 if answer.failures else 0


def show_failure(failure: Failure, output: Output) -> None:
    """Print why nothing came of it: on stderr, or as the object on stdout."""
    if output is Output.TABLE:
        complain(failure.message)
    else:
        write_object({"error": failure.object()}, output)


def complain(message: str) -> None:
    """Say on stderr what is wrong, in one line."""
    sys.stdout.flush()
    sys.stderr.write(f"ottla: {printable(' '.join(message.split()))}\n")


def write_object(value: Mapping[str, Json], output: Output) -> None:
    """Write one object to stdout; of a stream one after the other."""
    if output is Output.JSON:
        from json import dumps

        sys.stdout.write(dumps(value, ensure_ascii=False) + "\n")
    else:
        import yaml

        text = yaml.safe_dump(_plain(value), sort_keys=False, allow_unicode=True)
        sys.stdout.write(f"---\n{text}")


def _plain(value: Json) -> Json:
    """With lists and dictionaries alone: YAML has a notation of its own for other kinds."""
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
    """Whether stdout takes colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
