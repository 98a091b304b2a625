"""The console script's first step: to hear a signal before anything takes time.

Invariant: nothing is imported here that takes long. To import the commands takes a tenth of a
second; a broker that is asked to stop meanwhile ends with 0, and a command that is interrupted with
130, as they do later.
"""

from ottla.cli.first_moment import end_silently

end_silently()

import sys  # noqa: E402 - an interrupt may come while any of these is imported

from ottla.cli import gc_freeze  # noqa: E402
from ottla.cli.early_interrupt import early_interrupt  # noqa: E402
from ottla.cli.output import wanted  # noqa: E402


def run() -> None:
    """The console script."""
    arguments = sys.argv[1:]
    early_interrupt(wanted(arguments)).heed()
    gc_freeze.hold()
    if arguments[:1] == ["version"]:
        from ottla.cli.version import answered

        if answered(arguments):
            return
    if arguments[:2] == ["topic", "list"]:
        from ottla.cli.topic.lister import plain

        if (ask := plain(arguments[2:])) is not None:
            ask()

    from ottla.broker.stop_signals import StopSignals

    signals = StopSignals()
    if arguments[:1] in (["broker"], ["dev"]):
        signals.heed()

    from ottla.cli import main

    main.run(signals)
