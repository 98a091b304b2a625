"""The `ottla` command: it gathers the commands and turns outcomes into exit codes.

Invariant: 0 is success, 1 a failure that was explained, 2 a wrong use, 74 output that could not be
written (sysexits' EX_IOERR), 141 a reader that left, as if by SIGPIPE. With `-o json` stdout
carries one JSON object and nothing else, or one a line where a command shows a stream of them.
"""

import errno
import os
import sys
from typing import Final

import typer

from ottla.broker.stop_signals import StopSignals
from ottla.cli import broker, log, version

# Why what a command says cannot be written: a full disk, a broken one, a limit, a reader that left,
# no output at all.
_OUTPUT_ERRORS: Final = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EIO,
    errno.EFBIG,
    errno.EPIPE,
    errno.EBADF,
)
OUTPUT_FAILED: Final = 74
READER_LEFT: Final = 141

app = typer.Typer(
    name="ottla",
    help="Event streaming in Python, with the wire protocol and the files of Kafka.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,  # locals may hold secrets
    rich_markup_mode="markdown",
)
app.command("version")(version.show)
app.command("broker")(broker.broker)
app.command("dev")(broker.dev)
app.add_typer(log.app, name="log")


@app.callback()
def ottla() -> None:
    """Event streaming in Python, with the wire protocol and the files of Kafka."""


def run(signals: StopSignals) -> None:
    """Run the command that the arguments name; a broker stops when the signals say so."""
    _open_closed_outputs()
    stdout = sys.stdout
    try:
        try:
            app(obj=signals)
        except SystemExit:
            if sys.stdout is not stdout:  # typer puts another one there when the reader left
                sys.exit(READER_LEFT)
            raise
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.errno not in _OUTPUT_ERRORS or error.filename is not None:
            raise
        # What is left in the buffer cannot be written either, and is not tried when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())
        if error.errno == errno.EPIPE:
            sys.exit(READER_LEFT)
        print(f"ottla: the output cannot be written: {error.strerror}", file=sys.stderr)
        sys.exit(OUTPUT_FAILED)


def _open_closed_outputs() -> None:
    """Give a process that was started without stdout or stderr (`>&-`) something in their place.

    Or the first file that is opened would be there. To write to such a stdout fails, as it does
    for any command; what is for people alone is let go.
    """
    if sys.stdout is None:
        _occupy(1, os.O_RDONLY)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - open to the end
    if sys.stderr is None:
        _occupy(2, os.O_WRONLY)
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def _occupy(descriptor: int, flags: int) -> None:
    nothing = os.open(os.devnull, flags)
    if nothing != descriptor:
        os.dup2(nothing, descriptor)
        os.close(nothing)
