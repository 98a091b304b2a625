"""Starts a server in the background, as Kafka's scripts do with -daemon.

Invariant: the server outlives this process and its terminal, and its output goes to a file.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ottla.cli.kafka.tool import FAILED

DAEMON: Final = "-daemon"
OUTPUT_FOLDER_VARIABLE: Final = "LOG_DIR"


def daemon_help(server: str, output: str) -> tuple[str, str]:
    """Return -daemon and its help, for the usage of a tool."""
    return (
        DAEMON,
        (
            f"Run {server} in the background and write its output to {output} in "
            f"${OUTPUT_FOLDER_VARIABLE} (default: ./logs). Must be the first argument."
        ),
    )


def start_daemon(command: Sequence[str], output: str) -> int:
    """Start a command in the background and print its process id; returns the exit code."""
    path = Path(os.environ.get(OUTPUT_FOLDER_VARIABLE) or "logs") / output
    # A child process inherits an ignored signal.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )
    except OSError as error:
        print(f"{path}: {error.strerror}", file=sys.stderr)
        return FAILED
    print(f"started process {process.pid}; output in {path}", file=sys.stderr)
    return 0
