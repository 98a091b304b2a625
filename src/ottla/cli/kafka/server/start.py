"""`kafka-server-start`: run a broker from a properties file, in the foreground or as a daemon.

Invariant: signals are handled from the start, so slow imports come later. With -daemon the broker
continues without the terminal and writes its output to a file.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ottla.broker.stop_signals import StopSignals
from ottla.cli.kafka.daemon import DAEMON, daemon_help, start_daemon
from ottla.cli.kafka.flags import BadFlags, Flag, Given, Usage
from ottla.cli.kafka.tool import FAILED, understood
from ottla.cli.output_errors import heeded
from ottla.settings.invalid_settings import InvalidSettings

OUTPUT: Final = "kafkaServer.out"

LINE: Final = "USAGE: kafka-server-start [-daemon] server.properties [--override property=value]*"
USAGE = Usage(
    "kafka-server-start",
    "Run a broker: kafka-server-start [-daemon] server.properties [--override name=value]…",
    [
        Flag(
            "override",
            "name=value",
            "Override a setting from the properties file; repeat for several.",
            many=True,
        )
    ],
    arguments=(
        daemon_help("the broker", OUTPUT),
        ("server.properties", "Read settings from this properties file. Required."),
    ),
    takes_one_dash=False,  # -daemon is not a flag: it is the first word
)


class Order(NamedTuple):
    """The broker to start."""

    file: str
    overrides: Sequence[str]
    is_daemon: bool


def order(given: Given) -> Order:
    """Return the broker to start; raises BadFlags if the arguments do not name one."""
    words = [*given.rest]
    is_daemon = words[:1] == [DAEMON]
    files = words[is_daemon:]
    if not files:
        raise BadFlags(LINE)
    if len(files) > 1:
        raise BadFlags(f"Found non argument parameters: {','.join(files[1:])}")
    return Order(files[0], given.all("override"), is_daemon)


def started(arguments: list[str], signals: StopSignals) -> int:
    """Run a broker until it is stopped, or start a daemon; returns the exit code."""
    if not arguments:  # Kafka's script prints this itself
        print(LINE)
        return FAILED
    given = understood(USAGE, arguments)
    if isinstance(given, int):
        return given
    from ottla.settings.config_parser import broker_config
    from ottla.settings.properties import read_properties

    try:
        wanted = order(given)
    except BadFlags as error:
        print(f"{error}\n{USAGE.text()}", file=sys.stderr)
        return FAILED
    try:
        text = Path(wanted.file).read_text(encoding="utf-8", errors="replace")
        broker_config(read_properties(text, wanted.file), wanted.overrides)
    except OSError as error:
        print(f"{wanted.file}: {error.strerror}", file=sys.stderr)
        return FAILED
    except InvalidSettings as error:
        print(error, file=sys.stderr)
        return FAILED
    if wanted.is_daemon:
        words = [word for one in wanted.overrides for word in ("--override", one)]
        script = os.path.abspath(sys.argv[0])
        return start_daemon([sys.executable, script, wanted.file, *words], OUTPUT)
    from ottla.cli.broker.server import served

    file, overrides = wanted.file, wanted.overrides
    code = served(text, file, overrides, lambda node: None, "text", "info", signals, prefix="")
    return FAILED if code else 0


def run() -> None:
    """Run the console script."""
    signals = StopSignals()
    signals.heed()
    with heeded(USAGE.tool):
        sys.exit(started(sys.argv[1:], signals))
