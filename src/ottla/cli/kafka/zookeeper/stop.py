"""`zookeeper-server-stop`: stop the ZooKeeper servers on this machine.

Invariant: only a process with the command line of a ZooKeeper server gets SIGTERM. The tool does
not wait until they end.
"""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from ottla.cli.kafka.flags import BadFlags, Given, Usage
from ottla.cli.kafka.tool import run_tool

MAIN_CLASSES: Final = (
    "org.apache.zookeeper.server.quorum.QuorumPeerMain",
    "org.apache.zookeeper.server.ZooKeeperServerMain",
)

USAGE = Usage(
    "zookeeper-server-stop",
    "Stop the ZooKeeper servers on this machine.",
    [],
    # Kafka's script ignores --help and stops every server.
    help_code=0,
    helps_on_stdout=True,
)


def is_server(words: Sequence[str]) -> bool:
    """Whether a command line runs a ZooKeeper server."""
    return os.path.basename(words[0] if words else "") == "java" and any(
        one in MAIN_CLASSES for one in words
    )


def servers() -> Iterator[int]:
    """Return the process ids of servers; none on a system without /proc."""
    names: list[str] = []
    with suppress(OSError):
        names = os.listdir("/proc")
    for name in sorted(filter(str.isdigit, names), key=int):
        with suppress(OSError):  # ended, or of another user
            line = Path(f"/proc/{name}/cmdline").read_bytes().decode(errors="replace")
            if is_server(line.rstrip("\0").split("\0")):
                yield int(name)


async def act(given: Given) -> int:
    """Send SIGTERM to the servers."""
    if given.rest:
        raise BadFlags(f"{given.rest[0]} is not a recognized option")
    found = [*servers()]
    if not found:
        print("No zookeeper server to stop")
        return 1
    code = 0
    for pid in found:
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:  # ended in the meantime
            continue
        except PermissionError:
            print(f"process {pid} belongs to another user", file=sys.stderr)
            code = 1
    return code


def run() -> None:
    """Run the console script."""
    run_tool(USAGE, act)
