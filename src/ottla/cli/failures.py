"""What a command could not do, and how that is told.

Invariant: every failure is one line on stderr, or one object on stdout, and an exit code: 1 for
what was not done, 2 for a wrong use. So is one that nobody foresaw.
"""

import os
from typing import Final

from ottla.cli.output import Output
from ottla.cli.output_errors import OUTPUT_ERRORS
from ottla.cli.result import Failure, show_failure
from ottla.errors import OttlaError, RequestError
from ottla.settings.invalid_settings import InvalidSettings

FAILED, WRONG_USE = 1, 2
TRACEBACK: Final = "OTTLA_TRACEBACK"
_OF_TYPER: Final = ("typer", "click")


class Failed(OttlaError):
    """A command cannot do what it was asked for; the text says why."""

    def __init__(self, message: str, code: str = "FAILED") -> None:
        super().__init__(message)
        self.code = code


class Misused(Failed):
    """What was said on the command line does not fit together."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "USAGE")


class Stopped(Failed):
    """A signal ended it, which had its way; the text says how far it came."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message, "INTERRUPTED")
        self.number = number


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


def own_mistake(error: Exception) -> str:
    """What to say of an error that nobody foresaw; raises one that somebody else tells of."""
    if isinstance(error, OSError):
        if error.filename is not None:
            return f"{error.filename}: {error.strerror}"
        if error.errno in OUTPUT_ERRORS:
            raise error
    # Typer's errors, which end a command in its own way, are not imported for this.
    if os.environ.get(TRACEBACK) or type(error).__module__.partition(".")[0] in _OF_TYPER:
        raise error
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return f"internal error, please report it: {what}. Set {TRACEBACK}=1 to see the traceback"


def failure_of(error: OttlaError, about: str | None = None) -> Failure:
    """What a client's error says."""
    if isinstance(error, RequestError):
        message = error.message or error.code.text
        if about == "" and message.startswith(": "):
            message = f"''{message}"  # nobody sees an empty name
        return Failure(message, error.code.name, about)
    code = error.code if isinstance(error, Failed) else "FAILED"
    return Failure(str(error), code, about)
