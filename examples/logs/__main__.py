"""Runs the logs example on this machine; `make run EXAMPLE=logs` runs this module."""

from ottla.cli.startup_sigint import StartupSigint

if __name__ == "__main__":
    # The imports take a second. Ctrl-C meanwhile ends the process without a traceback.
    StartupSigint().install()
    import sys

    from logs.description import load_example
    from shared.runner import main

    sys.exit(main("logs", load_example))
