"""Ctrl-C in the first moment of a script, before anything of Ottla's could tell of it.

Invariant: in a console script it ends the process silently by the signal, as it ends programs that
do not hear of it: a traceback of half an import helps nobody. Where interrupts are ignored they
stay so, and a process that only imports a script's module hears of them as before.
"""

import sys

TYPE_CHECKING = False  # typing is imported where it is needed: this comes before all
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal  # a part of Python's core; `signal` over it is slow to import


def end_silently() -> None:
    """Let an interrupt end this process, if it is a console script."""
    name = sys.argv[0].rpartition("/")[2]
    if name != "ottla" and not name.startswith("kafka-"):
        return
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
