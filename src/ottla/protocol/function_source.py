"""Builds the Python source of a generated function, with the names it refers to.

Invariant: the source depends on the schema only. It never contains data of a peer or of a
configuration.
"""

from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from struct import Struct as Layout
from struct import calcsize
from typing import Any


class FunctionSource:
    """The source of one function, built line by line."""

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
        """Add a compound statement; the `with` block adds its body."""
        self.line(opening)
        self._depth += 1
        before = len(self._lines)
        yield
        if len(self._lines) == before:
            self.line("pass")
        self._depth -= 1

    def fresh(self, stem: str) -> str:
        """Return an unused name."""
        return f"{stem}{next(self._numbers)}"

    def constant(self, stem: str, value: object) -> str:
        """Return a name for a constant."""
        name = self.fresh(f"{stem}_")
        self.names[name] = value
        return name

    def layout(self, formats: str, *, pack: bool) -> str:
        """Return the name of a function that packs or unpacks values of fixed size."""
        name = f"{'pack' if pack else 'unpack'}_{formats.replace('?', 'T')}"
        if name not in self.names:
            layout = Layout(">" + formats)
            self.names[name] = layout.pack if pack else layout.unpack_from
        return name

    def compile(self) -> Any:  # Any: the caller knows the function's signature
        """Compile the source and return the function."""
        text = "\n".join([*self._lines, " return"])
        name = text[4 : text.index("(")]
        exec(compile(text, f"<{name}>", "exec"), self.names)
        return self.names[name]


def size_of(formats: str) -> int:
    """Return the size of a format in bytes."""
    return calcsize(">" + formats)
