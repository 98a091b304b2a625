"""Handles Ctrl-C while a command starts, in two steps.

Before anything else is imported, SIGINT ends a console script silently by the signal, like programs
that do not handle it: a traceback of half an import helps nobody. From then on until the command
runs, it ends the process with exit code 130 and the same message or object as later.

Invariant: nothing slow is imported here. An ignored SIGINT stays ignored, and a process that only
imports this module is not affected.
"""

import os
import sys

TYPE_CHECKING = False  # typing is imported on use, because this module comes first
if TYPE_CHECKING:
    import signal as _signal
    from types import FrameType
    from typing import Final

    from ottla.cli.output import Output
else:
    import _signal  # a part of Python's core; `signal` is slow to import

INTERRUPTED: "Final" = 130


def end_silently() -> None:
    """Let an interrupt end this process, if it is a console script."""
    name = sys.argv[0].rpartition("/")[2]
    if name != "ottla" and not name.startswith("kafka-"):
        return
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


class StartupSigint:
    """Ends the process with a message on stderr or an object on stdout.

    Nothing has been done yet that would need a clean-up.
    """

    def __init__(self, message: str = "", result: str = "") -> None:
        self._message = message.encode()
        self._result = result.encode()

    def install(self) -> None:
        """Handle SIGINT until the command starts."""
        # Python's own handler, or the one of `end_silently`.
        if _signal.getsignal(_signal.SIGINT) in (_signal.default_int_handler, _signal.SIG_DFL):
            _signal.signal(_signal.SIGINT, self)

    def __call__(self, number: int, frame: "FrameType | None") -> None:
        """End without Python's buffers and exit handlers: an import may be half done."""
        for descriptor, text in ((2, self._message), (1, self._result)):
            try:  # noqa: SIM105 - contextlib would have to be imported
                os.write(descriptor, text)
            except OSError:  # nobody reads it
                pass
        os._exit(INTERRUPTED)


def startup_sigint(output: "Output") -> StartupSigint:
    """Return the handler for an output format."""
    if output == "json":
        text = '{"error": {"code": "INTERRUPTED", "message": "interrupted"}}\n'
        return StartupSigint(result=text)
    if output == "yaml":
        return StartupSigint(result="---\nerror:\n  code: INTERRUPTED\n  message: interrupted\n")
    return StartupSigint("ottla: interrupted\n")


def begin() -> None:
    """Restore KeyboardInterrupt: the command has started."""
    if isinstance(_signal.getsignal(_signal.SIGINT), StartupSigint):
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
