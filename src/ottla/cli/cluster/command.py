"""`ottla cluster`: describe a cluster and its health, and run one on this machine.

Modules are imported on use, so that other commands start fast.
"""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from ottla.broker.stop_signals import StopSignals
from ottla.cli import gc_freeze
from ottla.cli.declaration import OutputOption, answers, asks
from ottla.cli.directory_option import DataDirectory
from ottla.cli.failures import Misused
from ottla.cli.output import Json, Output
from ottla.cli.partition.command import ExecuteOption, NoWaitOption, ThrottleOption
from ottla.cli.result import Result, Table, complain, facts, write_object
from ottla.cli.session import Session, carried_out

app = typer.Typer(help="Describe the cluster, or run one on this machine.", no_args_is_help=True)


@app.callback()
def cluster() -> None:
    """Show information about the cluster, or run a cluster on this machine."""


@app.command("describe")
@asks
async def describe(
    session: Session,
    *,
    fenced: Annotated[
        bool,
        typer.Option("--fenced", help="Include brokers that are registered but fenced."),
    ] = False,
) -> Result:
    """Show the cluster id, the controller and the brokers."""
    from ottla.cli.cluster.admin import ClusterAdmin

    async with await session.opened(ClusterAdmin) as admin:
        found = await admin.describe_cluster(include_fenced=fenced)
    rows = [
        (one.id, one.host, one.port, one.rack, one.id == found.controller, one.is_fenced)
        for one in found.brokers
    ]
    keys = ("id", "host", "port", "rack", "controller", "fenced")
    heads = ("BROKER", "HOST", "PORT", "RACK", "CONTROLLER", "FENCED")
    width = len(heads) if fenced else len(heads) - 1
    return Result(
        {
            "id": found.id,
            "controller": found.controller,
            "brokers": [dict(zip(keys, one, strict=True)) for one in rows],
        },
        [
            *facts({"cluster": found.id, "controller": found.controller}),
            "",
            Table(heads[:width], [one[:width] for one in rows]),
        ],
    )


@app.command("status")
@asks
async def status(session: Session) -> Result:
    """Show whether the cluster is healthy: its brokers, controller, replicas and disks.

    A partition is under-replicated if a replica is not in the ISR, and offline if it has no leader.
    SKEW is the number of leaders of a broker, divided by the mean of all brokers. The command shows
    the process ids of brokers on this machine, if this user can see their processes. A broker that
    hangs is listed until its session expires; one whose process has ended usually disappears at
    once.
    """
    from ottla.cli.cluster.health import found_health
    from ottla.cli.cluster.health_view import health_result

    return health_result(await found_health(session))


@app.command("balance")
@asks
async def balance(
    session: Session,
    *,
    goal: Annotated[
        float,
        typer.Option(
            "--goal",
            metavar="FACTOR",
            min=1.0,
            help="Move replicas and leaders until no load of a broker exceeds the mean times this "
            "factor. A lower factor moves more bytes.",
        ),
    ] = 1.2,
    execute: ExecuteOption = False,
    throttle: ThrottleOption = None,
    no_wait: NoWaitOption = False,
) -> Result:
    """Move replicas and leaders, so that no broker has a much higher load than the mean.

    A broker has four loads: the bytes on its disks, the bytes per second that it receives (IN), the
    bytes per second that it sends (OUT), and the partitions whose preferred leader it is (LEADERS).
    The brokers measure IN and OUT over the last minutes (ottla.balance.window.ms). The command
    shows IN and OUT only if one of them is above 1 MB/s on at least one broker.

    The goal for each load is the mean of the brokers times --goal; for IN and for OUT, it is at
    least 1 MB/s. If a load stays above the goal, the command prints the reason.

    The command only shows the plan and its cost, unless you pass --execute. The plan copies as few
    bytes as possible: where it can, it moves leaders instead of replicas. It keeps the replicas of
    a partition on at least as many racks as before, and moves all replicas away from drained
    brokers.
    """
    from ottla.cli.cluster.balance import balanced
    from ottla.cli.partition.cluster_replicas import MoveAdmin
    from ottla.cli.partition.moves import Order

    if throttle is not None and no_wait:
        raise Misused("--throttle needs a command that waits, to remove it: omit --no-wait")
    async with await session.opened(MoveAdmin) as admin:
        return await balanced(session, admin, Order(execute, throttle, not no_wait), goal)


@app.command("adopt")
@answers
def adopt(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="First data directory of the broker (log.dirs); for `ottla dev`: .ottla/data.",
            exists=True,
            file_okay=False,
        ),
    ],
    *,
    zookeeper: Annotated[
        str,
        typer.Option(
            "--zookeeper",
            metavar="HOST:PORT,…/PATH",
            help="Move the cluster into this ZooKeeper: the value of zookeeper.connect.",
        ),
    ],
) -> Result:
    """Move a single broker without ZooKeeper into a cluster that ZooKeeper coordinates.

    Stop the broker first. The command copies its topics, settings and ids into ZooKeeper; records
    and committed offsets stay in the data directories. The path in --zookeeper must be empty. If
    the command is interrupted, run it again with the same path.

    Afterwards, start the broker with the setting zookeeper.connect, and add brokers. The command
    prints how to start the broker, and how to raise the replication factor of the topics.
    """
    from ottla.cli.cluster.adopt import adopted

    return adopted(directory, zookeeper)


@app.command("start")
def start(
    context: typer.Context,
    brokers: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--brokers",
            metavar="COUNT",
            min=1,
            max=100,
            help="Run this many brokers; default: 3, or as many as the --data directory has.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="PORT",
            min=0,
            max=65_535,
            help="Listen on this port and the ports after it, one for each broker; 0 selects free "
            "ports. Default: 9092, or the ports that the --data directory has.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            metavar="DIR",
            help="Store data, logs and process ids in this directory. If it has the data of a "
            "cluster, start this cluster again.",
            click_type=DataDirectory(),
        ),
    ] = Path(".ottla-cluster"),
    zookeepers: Annotated[
        Literal["1", "3", "5"] | None,
        typer.Option(
            "--zookeepers",
            help="Run this many ZooKeeper servers; default: 1, or as many as the --data directory "
            "has.",
            show_default=False,
        ),
    ] = None,
    restart: Annotated[
        bool,
        typer.Option("--restart", help="Start a dead process again after one second."),
    ] = False,
    override: Annotated[
        list[str] | None,
        typer.Option(
            "--override",
            metavar="KEY=VALUE",
            help="Set a broker setting of all brokers; repeat for several.",
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run a cluster on this machine in the foreground until a signal stops it.

    Each broker and each ZooKeeper server is a process. For each process, the --data directory has a
    log, such as broker-1.log, and a file with the process id, such as broker-1.pid. The command
    prints "ready HOST:PORT,…" when all brokers are registered. New topics have three replicas, or
    one for each broker if there are fewer brokers. With three brokers or more, new topics have
    min.insync.replicas=2.

    On a terminal, the command shows the processes and the health of the cluster while it runs.

    ZooKeeper needs Java 17 or newer, and the jars of PySpark. Ottla's `spark` extra installs
    PySpark (in a clone: pip install ".[spark]").
    """
    signals: StopSignals = context.obj
    servers = None if zookeepers is None else int(zookeepers)

    def act() -> None:
        import asyncio
        import os
        from contextlib import nullcontext

        from ottla.cli.cluster.local_cluster import (
            LocalCluster,
            check_overrides,
            check_start,
            layout_of,
            lock,
            ottla_command,
        )
        from ottla.coordination.ensemble import keep_files_private

        where = data.absolute()
        check_start(where, override or [], brokers=brokers, port=port, zookeepers=servers)
        keep_files_private()
        where.mkdir(parents=True, exist_ok=True)
        held = lock(where)
        try:
            layout = layout_of(where, brokers=brokers, port=port, zookeepers=servers)
            check_overrides(layout, override or [])

            is_live = output is Output.TABLE and sys.stderr.isatty()
            local = LocalCluster(
                layout,
                ottla_command(),
                override or [],
                [held],
                complain,
                restarts=restart,
            )

            def ready() -> None:
                if output is Output.TABLE:
                    typer.echo(f"ready {layout.bootstrap_servers}")
                else:
                    value: dict[str, Json] = {
                        "bootstrap_servers": layout.bootstrap_servers,
                        "zookeeper_connect": layout.connect,
                        "data": str(where),
                        "brokers": [
                            {"id": one, "pid": child.pid} for one, child in local.brokers.items()
                        ],
                    }
                    write_object(value, output)
                sys.stdout.flush()

            async def run() -> None:
                from ottla.cli.cluster.live_view import live_view

                async with live_view(local, sys.stderr) if is_live else nullcontext():
                    await local.run(signals, ready)

            gc_freeze.release()
            asyncio.run(run())
        finally:
            os.close(held)

    raise typer.Exit(carried_out(act, output))
