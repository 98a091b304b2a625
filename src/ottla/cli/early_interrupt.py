"""Handles Ctrl-C while a command is still being imported.

Invariant: until the command starts, an interrupt ends the process at once with exit code 130 and
the same message or object as later: nothing has been done that would need a clean-up. An ignored
SIGINT stays ignored.
"""

import os
import signal

TYPE_CHECKING = False  # typing is imported on use, because this module comes first
if TYPE_CHECKING:
    from types import FrameType
    from typing import Final

    from ottla.cli.output import Output

INTERRUPTED: "Final" = 130


class EarlyInterrupt:
    """Ends the process with a message on stderr or an object on stdout."""

    def __init__(self, said: str = "", written: str = "") -> None:
        self._said = said.encode()
        self._written = written.encode()

    def heed(self) -> None:
        """Install the handler, until the command starts."""
        # Python's own handler, or the one of the first moment.
        if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_DFL):
            signal.signal(signal.SIGINT, self)

    def __call__(self, number: int, frame: "FrameType | None") -> None:
        """End without Python's buffers and exit handlers: an import may be half done."""
        for descriptor, text in ((2, self._said), (1, self._written)):
            try:  # noqa: SIM105 - contextlib would have to be imported
                os.write(descriptor, text)
            except OSError:  # nobody reads it
                pass
        os._exit(INTERRUPTED)


def early_interrupt(output: "Output") -> EarlyInterrupt:
    """Return the handler for an output format."""
    if output == "json":
        text = '{"error": {"code": "INTERRUPTED", "message": "interrupted"}}\n'
        return EarlyInterrupt(written=text)
    if output == "yaml":
        return EarlyInterrupt(written="---\nerror:\n  code: INTERRUPTED\n  message: interrupted\n")
    return EarlyInterrupt("ottla: interrupted\n")


def begin() -> None:
    """Restore KeyboardInterrupt: the command has started."""
    if isinstance(signal.getsignal(signal.SIGINT), EarlyInterrupt):
        signal.signal(signal.SIGINT, signal.default_int_handler)
