"""The console script's first step: installs signal handlers before anything slow.

Invariant: nothing slow is imported here. Importing the commands takes a tenth of a second; a broker
stopped meanwhile exits with 0, and an interrupted command with 130, as they do later.
"""

from ottla.cli.startup_sigint import end_silently, startup_sigint

end_silently()

import sys  # noqa: E402 - an interrupt may come while any of these is imported

from ottla.cli import gc_freeze  # noqa: E402
from ottla.cli.broker import VERBS  # noqa: E402
from ottla.cli.output import wanted  # noqa: E402


def run() -> None:
    """Run the console script."""
    arguments = sys.argv[1:]
    startup_sigint(wanted(arguments)).install()
    gc_freeze.hold()
    if arguments[:1] in (["version"], ["--version"]):
        from ottla.cli.version import answered

        if answered(arguments):
            return
    if arguments[:2] == ["topic", "list"]:
        from ottla.cli.topic.lister import plain

        if (ask := plain(arguments[2:])) is not None:
            ask()

    from ottla.broker.stop_signals import StopSignals

    signals = StopSignals()
    runs_broker = arguments[:1] == ["broker"] and arguments[1:2] not in [[one] for one in VERBS]
    if (
        runs_broker
        or arguments[:1] == ["dev"]
        or arguments[:2] in (["zookeeper", "start"], ["cluster", "start"])
    ):
        signals.heed()

    from ottla.cli import main

    main.run(signals)
