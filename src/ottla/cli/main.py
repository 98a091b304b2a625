"""The `ottla` command: collects the commands and maps results to exit codes.

Invariant: exit code 0 is success, 1 a reported failure, 2 wrong usage, 74 output that cannot be
written (EX_IOERR), 141 a reader that closed (as if by SIGPIPE). With `-o json`, stdout carries one
JSON object, or one per line for a stream.
"""

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from ottla.broker.stop_signals import StopSignals
from ottla.cli.commands import add_commands
from ottla.cli.failures import FAILED, own_mistake
from ottla.cli.output import Output, wanted
from ottla.cli.output_errors import heeded
from ottla.cli.result import Failure, show_failure
from ottla.cli.shells import QUESTION, InstallOption, ShowOption, answer_shell, with_shell
from ottla.cli.version import print_release

INTERRUPTED: Final = 130

_TYPES: Final = {
    "int": "an integer",
    "int range": "an integer",
    "float": "a number",
    "float range": "a number",
}


def _version(context: typer.Context, is_wanted: bool) -> None:
    if is_wanted and not context.resilient_parsing:
        print_release()
        raise typer.Exit


VersionOption = Annotated[
    bool,
    typer.Option(
        "--version",
        callback=_version,
        is_eager=True,
        help="Print the version of Ottla (`ottla version` prints more).",
    ),
]


def app(arguments: Sequence[str]) -> typer.Typer:
    """Return the Typer app with the commands that the arguments need."""
    found = typer.Typer(
        name="ottla",
        help="Event streaming in Python with Kafka's wire protocol and files.",
        no_args_is_help=True,
        add_completion=False,  # Typer's own ignores the named shell
        pretty_exceptions_show_locals=False,  # locals may contain secrets
        rich_markup_mode="markdown",
    )

    @found.callback()
    def ottla(  # pyright: ignore[reportUnusedFunction]
        *,
        version: VersionOption = False,
        show_completion: ShowOption = None,
        install_completion: InstallOption = None,
    ) -> None:
        """Event streaming in Python with Kafka's wire protocol and files."""

    add_commands(found, arguments)
    return found


def run(signals: StopSignals) -> None:
    """Run the command of the arguments; the signals stop a broker."""
    with heeded("ottla"):
        if QUESTION in os.environ:
            answer_shell(app(()))
            return
        _obey(sys.argv[1:], signals)


def _obey(arguments: Sequence[str], signals: StopSignals) -> None:
    """Run a command; wrong arguments are reported as one line or one object."""
    output = wanted(arguments)
    try:
        said = with_shell(arguments, os.environ)
        sys.exit(app(said)(said, obj=signals, standalone_mode=False) or 0)
    except typer.TyperException as error:
        message = f"{_plain(error.format_message())}{_brokers_hint(error)}"
        if output is Output.TABLE and message:  # there is none after a help text
            end = "" if message.endswith("?") else "."
            message = f"{message}{end}{_see(error)}"
        if message or output is not Output.TABLE:
            show_failure(Failure(message or "missing command", "USAGE"), output)
        sys.exit(error.exit_code)
    except typer.Abort:
        show_failure(Failure("interrupted", "INTERRUPTED"), output)
        sys.exit(INTERRUPTED)
    except Exception as error:  # the outermost handler
        show_failure(Failure(own_mistake(error), "INTERNAL"), output)
        sys.exit(FAILED)


def _plain(message: str) -> str:
    """Return a message of Typer without its names of types."""
    for kind, plain in _TYPES.items():
        message = message.replace(f"is not a valid {kind}.", f"is not {plain}.")
    return message.rstrip(".")


def _brokers_hint(error: typer.TyperException) -> str:
    """Return where a pipeline names its brokers, for a command that has no option for them."""
    name: str | None = getattr(error, "option_name", None)
    context: typer.Context | None = getattr(error, "ctx", None)
    parent = None if context is None else context.parent
    if name not in ("-b", "--bootstrap-server") or parent is None or parent.info_name != "pipeline":
        return ""
    return ": a pipeline names its brokers with `brokers:` in its file, or in a profile of the file"


def _see(error: typer.TyperException) -> str:
    context: typer.Context | None = getattr(error, "ctx", None)
    return "" if context is None else f" See `{context.command_path} --help`."
