"""Handles output that cannot be written.

Invariant: truncated output has an exit code: 74 if it could not be written (EX_IOERR), 141 if its
reader closed (as if by SIGPIPE). Ctrl-C ends a command whose output nobody reads.
"""

import errno
import os
import select
import sys
from collections.abc import Generator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Final

# Errors of writing output: a full or broken disk, a limit, a closed reader, no stdout.
OUTPUT_ERRORS: Final = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EIO,
    errno.EFBIG,
    errno.EPIPE,
    errno.EBADF,
)
OUTPUT_FAILED: Final = 74
READER_LEFT: Final = 141


@contextmanager
def heeded(command: str) -> Generator[None]:
    """End the process as its output requires."""
    _open_what_is_closed()
    stdout = sys.stdout
    if isinstance(stdout, TextIOWrapper) and stdout.errors == "strict":
        # Characters that the encoding lacks are escaped and end nothing.
        stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            yield
        except SystemExit as ended:
            # When the reader closed, Typer replaces stdout; rich, which prints help, exits.
            if sys.stdout is not stdout or isinstance(ended.__context__, BrokenPipeError):
                sys.exit(READER_LEFT)
            raise
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.errno not in OUTPUT_ERRORS or error.filename is not None:
            raise
        # The rest of the buffer cannot be written either, so Python must not try at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())
        if error.errno == errno.EPIPE:
            sys.exit(READER_LEFT)
        print(f"{command}: cannot write the output: {error.strerror}", file=sys.stderr)
        sys.exit(OUTPUT_FAILED)


def is_heard() -> bool:
    """Whether stdout accepts a last message at once; otherwise its buffer is dropped.

    An interrupted command waits for no reader.
    """
    _, writable, _ = select.select([], [sys.stdout], [], 0)
    if not writable:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return bool(writable)


def _open_what_is_closed() -> None:
    """Replace closed stdin, stdout or stderr.

    Otherwise the first opened file would get their descriptor (`<&-`, `>&-`), and an event loop
    aborts if it finds a socket there. Such a stdin is empty. Writing to such a stdout fails, as for
    any command; messages are dropped.
    """
    if sys.stdin is None:
        _occupy(0, os.O_RDONLY)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - open to the end
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
