"""Python source under construction: lines at an indentation, and the names they refer to.

Invariant: what is compiled comes from the tables alone. No byte that a peer sent and no text of
a configuration ever becomes part of a line.
"""

from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from struct import Struct as Layout
from struct import calcsize
from typing import Any


class FunctionSource:
    """The body of one function, written line by line."""

    def __init__(self, signature: str) -> None:
        self._lines = [f"def {signature}:"]
        self._depth = 1
        self._numbers = count(1)
        self.names: dict[str, object] = {}

    def line(self, text: str) -> None:
        """Add a line."""
        self._lines.append(" " * self._depth + text)

    @contextmanager
    def block(self, opening: str) -> Generator[None]:
        """Add a compound statement whose body is written inside the `with`."""
        self.line(opening)
        self._depth += 1
        before = len(self._lines)
        yield
        if len(self._lines) == before:
            self.line("pass")
        self._depth -= 1

    def fresh(self, stem: str) -> str:
        """A name that nothing else has."""
        return f"{stem}{next(self._numbers)}"

    def constant(self, stem: str, value: object) -> str:
        """A name for a value that the lines refer to."""
        name = self.fresh(f"{stem}_")
        self.names[name] = value
        return name

    def layout(self, formats: str, *, pack: bool) -> str:
        """A name for packing or unpacking a run of values of fixed size."""
        name = f"{'pack' if pack else 'unpack'}_{formats.replace('?', 'T')}"
        if name not in self.names:
            layout = Layout(">" + formats)
            self.names[name] = layout.pack if pack else layout.unpack_from
        return name

    def compile(self) -> Any:  # Any: the caller knows the function's signature
        """The function that the lines define."""
        text = "\n".join([*self._lines, " return"])
        name = text[4 : text.index("(")]
        exec(compile(text, f"<{name}>", "exec"), self.names)
        return self.names[name]


def size_of(formats: str) -> int:
    """The bytes that a run of values takes."""
    return calcsize(">" + formats)
