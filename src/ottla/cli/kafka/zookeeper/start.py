"""`zookeeper-server-start`: run ZooKeeper from a properties file.

Invariant: the server is Apache ZooKeeper, from the jars that PySpark ships. In the foreground it
replaces this process, so that signals reach it.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ottla.cli.kafka.flags import Usage
from ottla.cli.kafka.tool import FAILED, understood
from ottla.cli.output_errors import heeded
from ottla.errors import OttlaError

DAEMON: Final = "-daemon"
OUTPUT_FOLDER_VARIABLE: Final = "LOG_DIR"
OUTPUT: Final = "zookeeper.out"
LINE: Final = "USAGE: zookeeper-server-start [-daemon] zookeeper.properties"

USAGE = Usage(
    "zookeeper-server-start",
    "Run ZooKeeper: zookeeper-server-start [-daemon] zookeeper.properties",
    [],
    arguments=(
        (
            DAEMON,
            (
                f"Run ZooKeeper in the background and write its output to {OUTPUT} in "
                f"${OUTPUT_FOLDER_VARIABLE} (default: ./logs). Must be the first argument."
            ),
        ),
        ("zookeeper.properties", "Read settings from this properties file. Required."),
    ),
    takes_one_dash=False,  # -daemon is not a flag: it is the first word
    help_code=0,
    helps_on_stdout=True,
)


def command(file: str) -> Sequence[str]:
    """Return the command that runs a server; raises OttlaError without Java or its jars."""
    from ottla.coordination.ensemble import pyspark_class_path, server_command

    if not Path(file).is_file():
        raise OttlaError(f"{file}: there is no such file")
    return server_command(pyspark_class_path(), file)


def started(arguments: Sequence[str]) -> int:
    """Run a server, or start it in the background; returns the exit code."""
    if not arguments:
        print(LINE)
        return FAILED
    given = understood(USAGE, [*arguments])
    if isinstance(given, int):
        return given
    is_daemon = given.rest[:1] == [DAEMON]
    files = given.rest[is_daemon:]
    if len(files) != 1:
        print(LINE)
        return FAILED
    try:
        words = command(files[0])
    except OttlaError as error:
        print(error, file=sys.stderr)
        return FAILED
    if not is_daemon:
        sys.stdout.flush()
        os.execv(words[0], [*words])
    folder = Path(os.environ.get(OUTPUT_FOLDER_VARIABLE) or "logs")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / OUTPUT).open("ab") as output:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
    except OSError as error:
        print(f"{folder / OUTPUT}: {error.strerror}", file=sys.stderr)
        return FAILED
    print(f"started process {process.pid}; output in {folder / OUTPUT}", file=sys.stderr)
    return 0


def run() -> None:
    """Run the console script."""
    with heeded(USAGE.tool):
        sys.exit(started(sys.argv[1:]))
