"""Ctrl-C while a command is still being imported.

Invariant: from a command's first step until it begins, an interrupt ends the process at once with
130, and with the word or the object that it has later: nothing has been done yet that would have to
be ended well. Where interrupts are ignored they stay so.
"""

import os
import signal

TYPE_CHECKING = False  # typing is imported where it is needed: this comes before all
if TYPE_CHECKING:
    from types import FrameType
    from typing import Final

    from ottla.cli.output import Output

INTERRUPTED: "Final" = 130


class EarlyInterrupt:
    """Ends the process; says so on stderr, or with an object on stdout."""

    def __init__(self, said: str = "", written: str = "") -> None:
        self._said = said.encode()
        self._written = written.encode()

    def heed(self) -> None:
        """Hear of it from now on, until the command begins."""
        # Python's own, or that of the first moment.
        if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_DFL):
            signal.signal(signal.SIGINT, self)

    def __call__(self, number: int, frame: "FrameType | None") -> None:
        """Neither Python's buffers nor its end are waited for: an import may be half done."""
        for descriptor, text in ((2, self._said), (1, self._written)):
            try:  # noqa: SIM105 - contextlib would have to be imported
                os.write(descriptor, text)
            except OSError:  # nobody is there to read it
                pass
        os._exit(INTERRUPTED)


def early_interrupt(output: "Output") -> EarlyInterrupt:
    """As `ottla` says it, in the form that was asked for."""
    if output == "json":
        text = '{"error": {"code": "INTERRUPTED", "message": "interrupted"}}\n'
        return EarlyInterrupt(written=text)
    if output == "yaml":
        return EarlyInterrupt(written="---\nerror:\n  code: INTERRUPTED\n  message: interrupted\n")
    return EarlyInterrupt("ottla: interrupted\n")


def begin() -> None:
    """The command has begun, and hears of Ctrl-C itself: as KeyboardInterrupt."""
    if isinstance(signal.getsignal(signal.SIGINT), EarlyInterrupt):
        signal.signal(signal.SIGINT, signal.default_int_handler)
