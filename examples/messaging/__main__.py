"""Runs the messaging example on this machine; `make run EXAMPLE=messaging` runs this module."""

from ottla.cli.startup_sigint import StartupSigint

if __name__ == "__main__":
    # The imports take a second. Ctrl-C meanwhile ends the process without a traceback.
    StartupSigint().install()
    import sys

    from messaging.description import load_example
    from shared.runner import main

    sys.exit(main("messaging", load_example, uses_spark=False))
