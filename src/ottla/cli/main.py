"""The `ottla` command: it gathers the commands and turns outcomes into exit codes.

Invariant: 0 is success, 1 a failure that was explained, 2 a wrong use. With `-o json` stdout
carries one JSON object and nothing else, or one a line where a command shows a stream of them.
"""

import errno
import os
import sys
from typing import Final

import typer

from ottla.cli import broker, log, version

# Why what a command says cannot be written: a full disk, a broken one, a limit, a reader that left.
_OUTPUT_ERRORS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EPIPE)

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


def run() -> None:
    """The console script."""
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.errno not in _OUTPUT_ERRORS or error.filename is not None:
            raise
        if error.errno != errno.EPIPE:
            print(f"ottla: the output cannot be written: {error.strerror}", file=sys.stderr)
        # What is left in the buffer cannot be written either, and is not tried when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
