"""Failures of commands and how they are reported.

Invariant: every failure is one line on stderr or one object on stdout, and an exit code: 1 for a
failure, 2 for wrong usage. So is an unexpected one.
"""

import os
from typing import Final

from ottla.cli.output import Output
from ottla.cli.output_errors import OUTPUT_ERRORS
from ottla.cli.result import Failure, complain, show_failure
from ottla.errors import CREATE_TOPIC, ErrorCode, OttlaError, RequestError
from ottla.settings.invalid_settings import InvalidSettings

FAILED, WRONG_USE = 1, 2
TRACEBACK: Final = "OTTLA_TRACEBACK"
_OF_TYPER: Final = ("typer", "click")
_MISSING_TEXTS: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.text,
    "This server does not host this topic-partition.",  # from a Kafka broker
)
_JAVA_REQUEST: Final = "Request Request("  # a Kafka broker prints the request as a Java object


class Failed(OttlaError):
    """A command failed; the text says why."""

    def __init__(self, message: str, code: str = "FAILED") -> None:
        super().__init__(message)
        self.code = code


class Misused(Failed):
    """The arguments do not fit together."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "USAGE")


class Stopped(Failed):
    """A signal stopped it in order; the text says how far it came."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message, "INTERRUPTED")
        self.number = number


class BadSetting(Misused):
    """An argument is not a setting."""


class BadProfile(Misused):
    """The profile file cannot be read, or does not have the profile."""


def tell(error: OttlaError | InvalidSettings, output: Output) -> int:
    """Print the error and return the exit code."""
    if isinstance(error, InvalidSettings):
        show_failure(Failure("; ".join(map(str, error.problems)), "USAGE"), output)
        return WRONG_USE
    show_failure(failure_of(error), output)
    return WRONG_USE if isinstance(error, Misused) else FAILED


def warn(message: str) -> None:
    """Print a warning of the client on stderr."""
    complain(with_command(message))


def own_mistake(error: Exception) -> str:
    """Return the message for an unexpected error; re-raises errors that others report."""
    if isinstance(error, OSError):
        if error.filename is not None:
            return f"{error.filename}: {error.strerror}"
        if error.errno in OUTPUT_ERRORS:
            raise error
    # Typer's own errors end a command their way; Typer is not imported for this check.
    if os.environ.get(TRACEBACK) or type(error).__module__.partition(".")[0] in _OF_TYPER:
        raise error
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return f"internal error, please report it: {what}. Set {TRACEBACK}=1 to see the traceback"


def failure_of(error: OttlaError, about: str | None = None) -> Failure:
    """Return the failure of a client's error."""
    if isinstance(error, RequestError):
        message = error.message or error.code.text
        if about == "" and message.startswith(": "):
            message = f"''{message}"  # an empty name would be invisible
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            message = _missing(message)
        elif error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            message = _without_request(message)
        return Failure(with_command(message), error.code.name, about)
    code = error.code if isinstance(error, Failed) else "FAILED"
    return Failure(with_command(str(error)), code, about)


def with_command(message: str) -> str:
    """Return the message with a command instead of the method of a client program."""
    return message.replace(CREATE_TOPIC, "create the topic with `ottla topic create`")


def _missing(message: str) -> str:
    """Return the message for a missing topic or partition, without advice for client programs."""
    name, separator, text = message.rpartition(": ")
    if not separator or text not in _MISSING_TEXTS:
        return message
    may_be_partition = name.rpartition("-")[2].isdigit()
    noun = "" if may_be_partition or name.startswith("topic ") else "topic "
    return f"{noun}{name} does not exist"


def _without_request(message: str) -> str:
    """Return the message for missing rights, without the request that a Kafka broker prints."""
    name, found, text = message.partition(_JAVA_REQUEST)
    if not found:
        return message
    needs = text.rpartition(" needs ")[2] if text.endswith(" permission.") else ""
    told = f"{name}{ErrorCode.CLUSTER_AUTHORIZATION_FAILED.text}"
    return f"{told} The request needs {needs}" if needs else told


def port_remedy(port: int) -> str:
    """Return who listens on a port, and how to choose another one."""
    from ottla.transport.port_owner import port_owner

    who = port_owner(port) or "another process"
    return (
        f"{who} listens on it. Stop it, or choose another port: `ottla dev --port N`, `ottla "
        "cluster start --port N`, `ottla broker --override listeners=PLAINTEXT://127.0.0.1:N`"
    )
