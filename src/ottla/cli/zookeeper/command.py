"""`ottla zookeeper`: a ZooKeeper server for a cluster.

The server is Apache ZooKeeper, from the jars that PySpark ships. Modules are imported on use, so
that other commands start fast.
"""

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ottla.broker.stop_signals import StopSignals
from ottla.cli import gc_freeze
from ottla.cli.declaration import OutputOption, answers
from ottla.cli.directory_option import DataDirectory
from ottla.cli.output import Json, Output
from ottla.cli.result import Result, write_object
from ottla.cli.session import carried_out

if TYPE_CHECKING:
    from ottla.cli.child_process import ChildProcess
    from ottla.coordination.ensemble import ServerConfig

STOP_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.05
START_SECONDS: Final = 60.0

app = typer.Typer(help="Run a ZooKeeper server, or read its nodes.", no_args_is_help=True)

ConnectOption = Annotated[
    str,
    typer.Option(
        "--zookeeper",
        metavar="HOST:PORT,…/PATH",
        help="Connect to this ensemble, in the format of the setting zookeeper.connect.",
    ),
]


@app.callback()
def zookeeper() -> None:
    """Run a ZooKeeper server, which coordinates the brokers of a cluster, or read its nodes."""


@app.command("ls")
@answers
def list_(
    path: Annotated[str, typer.Argument(metavar="[NODE]", help="Path of a node.")] = "/",
    *,
    zookeeper: ConnectOption = "127.0.0.1:2181",
    recursive: Annotated[
        bool,
        typer.Option("--recursive", "-R", help="List all nodes below NODE, not only its children."),
    ] = False,
) -> Result:
    """List the children of a node."""
    from ottla.cli.zookeeper.nodes import listed

    return listed(zookeeper, path, recursive=recursive)


@app.command("get")
@answers
def get(
    path: Annotated[str, typer.Argument(metavar="NODE", help="Path of a node.")],
    *,
    zookeeper: ConnectOption = "127.0.0.1:2181",
) -> Result:
    """Print the data of a node; with -o json, its metadata, too.

    The command does not print the password with which the brokers log in to each other.
    """
    from ottla.cli.zookeeper.nodes import got

    return got(zookeeper, path)


@app.command("start")
def start(
    context: typer.Context,
    port: Annotated[
        int,
        typer.Option(
            "--port", metavar="PORT", min=1, max=65_535, help="Listen on this port for clients."
        ),
    ] = 2181,
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="ADDRESS",
            help="Listen on this address for clients. If brokers run on other machines, choose an "
            "address of this machine that those machines can reach; 0.0.0.0 means all addresses.",
        ),
    ] = "127.0.0.1",
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            metavar="DIR",
            help="Store the data and the log in this directory.",
            click_type=DataDirectory(),
        ),
    ] = Path(".ottla-zookeeper"),
    member: Annotated[
        int | None,
        typer.Option(
            "--id",
            metavar="N",
            min=1,
            help="Run the Nth server of --ensemble, counted from 1.",
            show_default=False,
        ),
    ] = None,
    ensemble: Annotated[
        str | None,
        typer.Option(
            "--ensemble",
            metavar="HOST,…",
            help="Servers of the ensemble, as HOST or HOST:PEER_PORT:ELECTION_PORT (default ports: "
            "2888 and 3888). Every server needs the same list in the same order. For connections "
            "of the other servers, the server listens on the HOST in its own entry of the list.",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run a ZooKeeper server in the foreground until a signal stops it.

    The server needs Java 17 or newer, and the jars of PySpark. Ottla's `spark` extra installs
    PySpark (in a clone: pip install ".[spark]"). Without --ensemble, the server is the only one. An
    ensemble of three servers tolerates the loss of one server, an ensemble of five the loss of two.

    The server does not authenticate clients. Every program that can connect to its ports can change
    the cluster. Let only brokers connect to these ports.
    """
    signals: StopSignals = context.obj

    def act() -> None:
        from ottla.cli.zookeeper.members import parse_members
        from ottla.coordination.ensemble import ServerConfig

        members = parse_members(member, ensemble)
        config = ServerConfig(data.absolute(), port, listen, id=member or 1, ensemble=members)
        _run(config, signals, output)

    raise typer.Exit(carried_out(act, output))


def _run(config: "ServerConfig", signals: StopSignals, output: Output) -> None:
    import asyncio

    from ottla.cli.failures import Failed

    async def serve() -> None:
        from ottla.cli.child_process import ChildProcess, ServerProcess, end
        from ottla.coordination.ensemble import keep_files_private, pyspark_class_path

        stopping = asyncio.Event()
        signals.tell(asyncio.get_running_loop(), lambda number: stopping.set())
        command = config.command(pyspark_class_path())
        keep_files_private()
        config.write()
        log = config.folder / "zookeeper.log"
        child = await ChildProcess.start(ServerProcess("ZooKeeper", command, log))
        try:
            begun = asyncio.ensure_future(_started(config, child, output))
            ended = asyncio.ensure_future(child.ended())
            stopped = asyncio.ensure_future(stopping.wait())
            await asyncio.wait((ended, stopped), return_when=asyncio.FIRST_COMPLETED)
            begun.cancel()
            stopped.cancel()
            if not stopping.is_set():
                raise Failed(f"ZooKeeper exited with code {ended.result()}: see {log}")
        finally:
            await end([child], [signal.SIGTERM], STOP_SECONDS)

    gc_freeze.release()
    asyncio.run(serve())


async def _started(config: "ServerConfig", child: "ChildProcess", output: Output) -> None:
    """Print where the server listens, once it serves clients."""
    import asyncio

    if config.ensemble and output is Output.TABLE:
        typer.echo(
            f"Server {config.id} of {len(config.ensemble)} waits for the majority of the ensemble.",
            err=True,
        )
    while not await asyncio.to_thread(config.answers, 1.0):
        await asyncio.sleep(POLL_SECONDS)
    if output is Output.TABLE:
        typer.echo(
            f"ZooKeeper listens on {config.connect}. Data directory: {config.folder}. Press Ctrl-C "
            "to stop."
        )
    else:
        value: dict[str, Json] = {
            "address": config.connect,
            "pid": child.pid,
            "data": str(config.folder),
        }
        write_object(value, output)
    sys.stdout.flush()
