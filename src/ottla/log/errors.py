"""What is raised when a file of the log does not hold what its format says.

Invariant: whatever the bytes or the text, nothing but these comes out of reading it. A message
says what is wrong and where in the file, and leaves the file's name to the caller, who opened it.
"""

from ottla.errors import OttlaError


class CorruptFile(OttlaError):
    """The file is not used; what takes its place depends on what it was."""


class CorruptIndex(CorruptFile):
    """An index that points wrongly would lose records: it is made anew from them."""


class CorruptSnapshot(CorruptFile):
    """The state of the producers comes from an earlier snapshot and the records after it."""


class CorruptText(CorruptFile):
    """A checkpoint or another small text; `line` counts from 1, None for the text as a whole."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem, line)
        self.problem = problem
        self.line = line

    def __str__(self) -> str:
        return self.problem if self.line is None else f"line {self.line}: {self.problem}"
