"""The errors for files of the log whose content does not match their format.

Invariant: parsing any bytes raises only these errors. A message says what is wrong and where in the
file; the caller adds the path.
"""

from ottla.errors import OttlaError


class CorruptFile(OttlaError):
    """The file is ignored; what replaces it depends on the file."""


class CorruptIndex(CorruptFile):
    """A wrong index would lose records: it is rebuilt from them."""


class CorruptSnapshot(CorruptFile):
    """Producer state is rebuilt from an earlier snapshot and the records after it."""


class CorruptText(CorruptFile):
    """A checkpoint or another small text file; `line` starts at 1, None: the whole file."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem, line)
        self.problem = problem
        self.line = line

    def __str__(self) -> str:
        return self.problem if self.line is None else f"line {self.line}: {self.problem}"
