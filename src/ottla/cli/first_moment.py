"""Handles Ctrl-C in the first moment of a script, before a message could be printed.

Invariant: in a console script it ends the process silently by the signal, like programs that do not
handle it: a traceback of half an import helps nobody. An ignored SIGINT stays ignored, and a
process that only imports the module is not affected.
"""

import sys

TYPE_CHECKING = False  # typing is imported on use, because this module comes first
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal  # a part of Python's core; `signal` is slow to import


def end_silently() -> None:
    """Let an interrupt end this process, if it is a console script."""
    name = sys.argv[0].rpartition("/")[2]
    if name != "ottla" and not name.startswith("kafka-"):
        return
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
