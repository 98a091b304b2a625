"""`kafka-server-stop`: stop the Ottla brokers on this machine.

Invariant: only an Ottla broker gets SIGTERM, and with --node-id only the one that is known to have
this id. The tool does not wait until they end.
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
    "Stop the Ottla brokers on this machine.",
    [
        Flag("node-id", "id", "Stop only the broker with this id."),
        Flag(
            "process-role",
            "role",
            "Stop only processes with this role: broker or controller. Ottla brokers have both "
            "roles.",
        ),
    ],
    # Kafka's script ignores --help and stops every broker.
    help_code=0,
    helps_on_stdout=True,
)


async def act(given: Given) -> int:
    """Send SIGTERM to the brokers that the flags select."""
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
        except ProcessLookupError:  # ended in the meantime
            continue
        except PermissionError:
            print(f"process {one.pid} belongs to another user", file=sys.stderr)
            code = 1
    return code


def chosen_of(found: Iterable[BrokerProcess], given: Given) -> list[BrokerProcess]:
    """Return the selected brokers, which have both roles; --node-id overrides --process-role."""
    role, number = given.one("process-role"), given.one("node-id")
    if number is not None:
        if not number.isascii() or not number.isdigit():
            raise BadFlags(f"Cannot parse argument '{number}' of option node-id")
        return [one for one in found if one.node_id == int(number)]
    if role is not None and role not in ROLES:
        return []
    return [*found]


def run() -> None:
    """Run the console script."""
    run_tool(USAGE, act)
