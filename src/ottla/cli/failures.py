"""What a command could not do, and how that is told.

Invariant: every failure is one line on stderr, or one object on stdout, and an exit code: 1 for
what was not done, 2 for a wrong use.
"""

from ottla.cli.answer import Failure, show_failure
from ottla.cli.output import Output
from ottla.errors import OttlaError, RequestError
from ottla.settings.problems import InvalidSettings

FAILED, WRONG_USE = 1, 2


class Failed(OttlaError):
    """A command cannot do what it was asked for; the text says why."""

    def __init__(self, message: str, code: str = "FAILED") -> None:
        super().__init__(message)
        self.code = code


class Misused(Failed):
    """What was said on the command line does not fit together."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "USAGE")


class BadSetting(Misused):
    """What was said on the command line is no setting."""


class BadProfile(Misused):
    """The file of profiles cannot be read, or has not the profile that was asked for."""


def tell(error: OttlaError | InvalidSettings, output: Output) -> int:
    """Say why nothing came of it; the exit code."""
    if isinstance(error, InvalidSettings):
        show_failure(Failure("; ".join(map(str, error.problems)), "USAGE"), output)
        return WRONG_USE
    show_failure(failure_of(error), output)
    return WRONG_USE if isinstance(error, Misused) else FAILED


def failure_of(error: OttlaError, about: str | None = None) -> Failure:
    """What a client's error says."""
    if isinstance(error, RequestError):
        return Failure(error.message or error.code.text, error.code.name, about)
    code = error.code if isinstance(error, Failed) else "FAILED"
    return Failure(str(error), code, about)
