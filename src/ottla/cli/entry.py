"""The console script's first step: to hear a signal before anything takes time.

Invariant: nothing is imported here that takes long. To import the commands takes a tenth of a
second, and a broker that is asked to stop meanwhile ends with 0, as it does later.
"""

import sys

from ottla.broker.stop_signals import StopSignals


def run() -> None:
    """The console script."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["version"]:
        from ottla.cli.version import answered

        if answered(arguments):
            return
    signals = StopSignals()
    if arguments[:1] in (["broker"], ["dev"]):
        signals.heed()

    from ottla.cli import main

    main.run(signals)
