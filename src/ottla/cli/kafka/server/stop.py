"""`kafka-server-stop`: asks the brokers that Ottla runs on this machine to stop.

Invariant: a process gets SIGTERM only if it is a broker of Ottla, and with --node-id only if it
is known to be that one. Nobody is waited for.
"""

import os
import signal
import sys
from collections.abc import Iterable

from ottla.cli.kafka.flags import BadFlags, Flag, Given, Usage
from ottla.cli.kafka.server.processes import BrokerProcess, running
from ottla.cli.kafka.tool import run_tool

ROLES = ("broker", "controller")

USAGE = Usage(
    "kafka-server-stop",
    "Stop the Ottla brokers of this machine.",
    [
        Flag("node-id", "id", "Only the broker with this id."),
        Flag("process-role", "role", "Only processes with this role: broker or controller."),
    ],
    # Kafka's script stops every broker when it is asked for help.
    help_code=0,
    helps_on_stdout=True,
)


async def act(given: Given) -> int:
    """Find them and ask them."""
    if given.rest:
        raise BadFlags(f"{given.rest[0]} is not a recognized option")
    if "node-id" in given and "process-role" in given:
        print(
            "When both node-id and process-role are provided, "
            "the value for node-id will take precedence"
        )
    chosen = chosen_of(running(), given)
    if not chosen:
        print("No kafka server to stop")
        return 1
    code = 0
    for one in chosen:
        try:
            os.kill(one.pid, signal.SIGTERM)
        except ProcessLookupError:  # it has just ended by itself
            continue
        except PermissionError:
            print(f"process {one.pid} belongs to somebody else", file=sys.stderr)
            code = 1
    return code


def chosen_of(found: Iterable[BrokerProcess], given: Given) -> list[BrokerProcess]:
    """Those that are meant. Each is a broker and its own controller; the id counts alone."""
    role, number = given.one("process-role"), given.one("node-id")
    if number is not None:
        if not number.isascii() or not number.isdigit():
            raise BadFlags(f"Cannot parse argument '{number}' of option node-id")
        return [one for one in found if one.node_id == int(number)]
    if role is not None and role not in ROLES:
        return []
    return [*found]


def run() -> None:
    """The console script."""
    run_tool(USAGE, act)
