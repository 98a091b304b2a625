"""`zookeeper-server-start`: run ZooKeeper from a properties file.

Invariant: the server is Apache ZooKeeper, from the jars that PySpark ships. In the foreground it
replaces this process, so that signals reach it.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ottla.cli.kafka.daemon import DAEMON, daemon_help, start_daemon
from ottla.cli.kafka.flags import Usage
from ottla.cli.kafka.tool import FAILED, understood
from ottla.cli.output_errors import heeded
from ottla.errors import OttlaError

OUTPUT: Final = "zookeeper.out"
LINE: Final = "USAGE: zookeeper-server-start [-daemon] zookeeper.properties"

USAGE = Usage(
    "zookeeper-server-start",
    "Run ZooKeeper: zookeeper-server-start [-daemon] zookeeper.properties",
    [],
    arguments=(
        daemon_help("ZooKeeper", OUTPUT),
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
    from ottla.coordination.ensemble import keep_files_private

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
    keep_files_private()
    if not is_daemon:
        sys.stdout.flush()
        os.execv(words[0], [*words])
    return start_daemon(words, OUTPUT)


def run() -> None:
    """Run the console script."""
    with heeded(USAGE.tool):
        sys.exit(started(sys.argv[1:]))
