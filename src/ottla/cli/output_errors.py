"""What becomes of a command whose output cannot be written.

Invariant: nothing is left half said without a sign: 74 says that the output could not be written
(sysexits' EX_IOERR), 141 that its reader left, as if by SIGPIPE. Ctrl-C ends a command whose
output nobody reads.
"""

import errno
import os
import select
import sys
from collections.abc import Generator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Final

# Why what a command says cannot be written: a full disk, a broken one, a limit, a reader that left,
# no output at all.
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
    """End the process as its output demands."""
    _open_what_is_closed()
    stdout = sys.stdout
    if isinstance(stdout, TextIOWrapper) and stdout.errors == "strict":
        # A name that the output's encoding does not have is shown, and ends nothing.
        stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            yield
        except SystemExit as ended:
            # When the reader left typer puts another one there; rich, which draws help, ends.
            if sys.stdout is not stdout or isinstance(ended.__context__, BrokenPipeError):
                sys.exit(READER_LEFT)
            raise
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.errno not in OUTPUT_ERRORS or error.filename is not None:
            raise
        # What is left in the buffer cannot be written either, and is not tried when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())
        if error.errno == errno.EPIPE:
            sys.exit(READER_LEFT)
        print(f"{command}: cannot write the output: {error.strerror}", file=sys.stderr)
        sys.exit(OUTPUT_FAILED)


def is_heard() -> bool:
    """Whether stdout takes a last word at once; if it does not, what is left of it is let go.

    Who was interrupted waits for no reader.
    """
    _, writable, _ = select.select([], [sys.stdout], [], 0)
    if not writable:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return bool(writable)


def _open_what_is_closed() -> None:
    """Give a process that was started without stdin, stdout or stderr something in their place.

    Or the first file that is opened would be there (`<&-`, `>&-`), and an event loop ends the
    process when it finds a socket there. Nothing comes from such a stdin. To write to such a stdout
    fails, as it does for any command; what is for people alone is let go.
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
