"""`ottla broker`: runs a broker, and manages the brokers of a cluster.

Modules are imported on use, so that other commands start fast.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.broker.server import (
    FormatOption,
    LevelOption,
    broker_facts,
    served,
    show_started,
)
from ottla.cli.declaration import OutputOption, asks
from ottla.cli.failures import Misused
from ottla.cli.output import Output
from ottla.cli.partition.command import ExecuteOption, NoWaitOption, ThrottleOption
from ottla.cli.result import Result
from ottla.cli.session import Session

if TYPE_CHECKING:
    from ottla.broker.node import Node

app = typer.Typer(help="Run a broker, or manage the brokers of a cluster.")

BrokerArgument = Annotated[
    int, typer.Argument(metavar="ID", min=0, help="Id of the broker.", show_default=False)
]


@app.callback(invoke_without_command=True)
def broker(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Read settings from this properties file.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option(
            "--override",
            metavar="KEY=VALUE",
            help="Override a setting from the properties file; repeat for several.",
        ),
    ] = None,
    log_format: FormatOption = "text",
    log_level: LevelOption = "info",
    output: OutputOption = Output.TABLE,
) -> None:
    """Run a broker in the foreground until a signal stops it.

    The commands list, drain and undrain manage the brokers of a cluster instead.
    """
    if context.invoked_subcommand is not None:
        if config is not None or override:
            raise typer.BadParameter(
                f"--config and --override run a broker: omit {context.invoked_subcommand}"
            )
        return
    text = None if config is None else config.read_text(encoding="utf-8", errors="replace")
    settings = override or []

    def explain(node: "Node") -> None:
        if output is not Output.TABLE:
            show_started(broker_facts(node), output)

    raise typer.Exit(
        served(text, str(config), settings, explain, log_format, log_level, context.obj, output)
    )


@app.command("list")
@asks
async def list_(session: Session) -> Result:
    """List the brokers with their numbers of leaders and replicas and their disk use.

    The column DRAINED shows whether `ottla broker drain` has excluded the broker from new replicas.
    """
    from ottla.cli.broker.drain import brokers_result
    from ottla.cli.partition.cluster_replicas import MoveAdmin, describe_replicas

    async with await session.opened(MoveAdmin) as admin:
        return brokers_result(await describe_replicas(admin))


@app.command("drain")
@asks
async def drain(
    session: Session,
    *,
    broker: BrokerArgument,
    execute: ExecuteOption = False,
    throttle: ThrottleOption = None,
    no_wait: NoWaitOption = False,
) -> Result:
    """Move all replicas of a broker to other brokers, before you remove the broker.

    The command only shows the plan, unless you pass --execute. With --execute, the broker gets no
    new replicas until `ottla broker undrain`: the broker's setting cordoned.log.dirs becomes *. A
    broker that is down can be drained, too, if its partitions have other replicas in sync.
    """
    from ottla.cli.broker.drain import drained
    from ottla.cli.partition.cluster_replicas import MoveAdmin
    from ottla.cli.partition.moves import Order

    if throttle is not None and no_wait:
        raise Misused("--throttle needs a command that waits, to remove it: omit --no-wait")
    async with await session.opened(MoveAdmin) as admin:
        return await drained(session, admin, broker, Order(execute, throttle, not no_wait))


@app.command("undrain")
@asks
async def undrain(session: Session, *, broker: BrokerArgument) -> Result:
    """Let a drained broker get replicas again.

    The command moves no replicas. To move replicas to the broker, use `ottla cluster balance`.
    """
    from ottla.cli.broker.drain import undrained
    from ottla.cli.partition.cluster_replicas import MoveAdmin

    async with await session.opened(MoveAdmin) as admin:
        return await undrained(admin, broker)
