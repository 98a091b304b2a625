"""`ottla cluster`: the cluster and its brokers.

Modules are imported on use, so that other commands start fast.
"""

from typing import Annotated

import typer

from ottla.cli.declaration import asks
from ottla.cli.result import Result, Table, facts
from ottla.cli.session import Session

app = typer.Typer(help="Describe the cluster.", no_args_is_help=True)


@app.callback()
def cluster() -> None:
    """Show information about the cluster."""


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
