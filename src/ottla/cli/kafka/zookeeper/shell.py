"""`zookeeper-shell`: read the nodes of a ZooKeeper ensemble.

Invariant: output and exit codes are those of ZooKeeper's shell for one command. Nothing is changed:
the commands that write are not supported.
"""

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.cli.kafka.flags import NotDone, Usage
from ottla.cli.kafka.tool import FAILED, NOT_DONE, understood
from ottla.cli.output_errors import heeded
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from ottla.cli.zookeeper.tree import Tree

LINE: Final = "USAGE: zookeeper-shell zookeeper_host:port[/path] [args...]"
UNKNOWN_COMMAND: Final = 127
CONNECTED: Final = "\nWATCHER::\n\nWatchedEvent state:SyncConnected type:None path:null zxid: -1"

USAGE = Usage(
    "zookeeper-shell",
    "Read the nodes of a ZooKeeper ensemble: zookeeper-shell host:port[/path] command [node]",
    [],
    arguments=(
        ("host:port[/path]", "Connect to this ensemble. Required."),
        ("ls [-s] [-R] node", "List the children of a node; -s: metadata; -R: all nodes below."),
        ("get [-s] node", "Print the data of a node; -s: metadata."),
        ("stat node", "Print the metadata of a node."),
    ),
    takes_one_dash=False,  # -s and -R belong to the commands
    help_code=0,
    helps_on_stdout=True,
)


class Command(NamedTuple):
    """A command of the shell."""

    flags: str
    form: str
    act: "Callable[[Tree, str, str], Awaitable[None]]"


async def _ls(nodes: "Tree", path: str, flags: str) -> None:
    from ottla.cli.zookeeper.tree import stat_lines

    if "R" in flags:
        print("\n".join(await nodes.descendants(path)))
        return
    print(f"[{', '.join(await nodes.children(path))}]")
    if "s" in flags:
        print("\n".join(stat_lines(await nodes.stat(path))))


async def _get(nodes: "Tree", path: str, flags: str) -> None:
    from ottla.cli.zookeeper.tree import stat_lines

    print((await nodes.data(path)).decode(errors="replace"))
    if "s" in flags:
        print("\n".join(stat_lines(await nodes.stat(path))))


async def _stat(nodes: "Tree", path: str, _: str) -> None:
    from ottla.cli.zookeeper.tree import stat_lines

    print("\n".join(stat_lines(await nodes.stat(path))))


COMMANDS: Final[Mapping[str, Command]] = {
    "ls": Command("sR", "ls [-s] [-w] [-R] path", _ls),
    "get": Command("s", "get [-s] [-w] [-b] [-x] path", _get),
    "stat": Command("", "stat [-w] path", _stat),
}
_WRITING: Final = (
    "addWatch", "addauth", "close", "config", "connect", "create", "delete", "deleteall",
    "delquota", "getAcl", "getAllChildrenNumber", "getEphemerals", "history", "listquota",
    "printwatches", "quit", "reconfig", "redo", "removewatches", "set", "setAcl", "setquota",
    "sync", "version", "whoami",
)  # fmt: skip


def shown(arguments: Sequence[str]) -> int:
    """Run a command of the shell; returns the exit code."""
    if not arguments:
        print(LINE)
        return FAILED
    given = understood(USAGE, [*arguments])
    if isinstance(given, int):
        return given
    connect, *rest = given.rest
    try:
        name, command, flags, paths = _parsed(rest)
    except NotDone as error:
        print(error, file=sys.stderr)
        return NOT_DONE
    print(f"Connecting to {connect}")
    if command is None:
        forms = "".join(f"\t{one.form}\n" for one in COMMANDS.values())
        print(f"ZooKeeper -server host:port cmd args\n{forms}Command not found: Command not found "
              f"{name}", file=sys.stderr)  # fmt: skip
        return UNKNOWN_COMMAND
    if len(paths) != 1 or not {*flags} <= {*command.flags}:
        print(command.form, file=sys.stderr)
        return FAILED
    if not paths[0].startswith("/"):
        print("Path must start with / character", file=sys.stderr)
        return FAILED
    return _asked(connect, command, paths[0], flags)


def _parsed(words: Sequence[str]) -> tuple[str, Command | None, str, list[str]]:
    if not words:
        raise NotDone("zookeeper-shell: an interactive shell is not supported yet")
    name, *rest = words
    if name in _WRITING:
        raise NotDone(f"zookeeper-shell: the command {name} is not supported yet")
    flags = "".join(one[1:] for one in rest if one.startswith("-"))
    return name, COMMANDS.get(name), flags, [one for one in rest if not one.startswith("-")]


def _asked(connect: str, command: Command, path: str, flags: str) -> int:
    from ottla.cli.event_loop import run_asking
    from ottla.cli.zookeeper.tree import tree
    from ottla.coordination.errors import NoNode

    async def ask() -> int:
        async with tree(connect) as nodes:
            print(CONNECTED)
            try:
                await command.act(nodes, path, flags)
            except NoNode:
                sys.stdout.flush()
                print(f"Node does not exist: {path}", file=sys.stderr)
                return FAILED
        return 0

    try:
        return run_asking(ask)
    except OttlaError as error:
        print(error, file=sys.stderr)
        return FAILED


def run() -> None:
    """Run the console script."""
    with heeded(USAGE.tool):
        sys.exit(shown(sys.argv[1:]))
