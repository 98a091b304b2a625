"""`ottla topic`: manages topics.

Modules are imported on use, so that other commands start fast.
"""

from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.completion import topic_names
from ottla.cli.declaration import YesOption, asks
from ottla.cli.failures import Misused
from ottla.cli.result import Result, complain
from ottla.cli.session import Session

INT_MAX = (1 << 31) - 1

app = typer.Typer(help="Topics.", no_args_is_help=True)

TopicArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="TOPIC…", help="Names of topics.", show_default=False, autocompletion=topic_names
    ),
]
ConfigOption = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="NAME=VALUE", help="Set a topic setting."),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Validate only; change nothing.")]


@app.callback()
def topic() -> None:
    """Create, list, describe, change and delete topics."""


@app.command("list")
@asks
async def list_(
    session: Session,
    *,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
) -> Result:
    """List the topics that you may see."""
    from ottla.cli.topic.lister import topics

    return await topics(session, internal=internal)


@app.command("create")
@asks
async def create(
    session: Session,
    *,
    topics: Annotated[
        list[str], typer.Argument(metavar="TOPIC…", help="Names of topics.", show_default=False)
    ],
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            min=1,
            max=INT_MAX,
            help="Number of partitions; default: the cluster's.",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            "-r",
            min=1,
            max=32_767,
            help="Replication factor; default: the cluster's.",
        ),
    ] = None,
    config: ConfigOption = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do not fail if the topic exists.")
    ] = False,
    dry_run: DryRunOption = False,
) -> Result:
    """Create topics."""
    from ottla.cli.target import parsed
    from ottla.cli.topic.admin import TopicAdmin
    from ottla.cli.topic.changes import created
    from ottla.client.admin.topics import NewTopic

    configs = parsed(config or ())
    wanted = [NewTopic(name, partitions, replication_factor, configs) for name in topics]
    async with await session.opened(TopicAdmin) as admin:
        return await created(admin, wanted, if_not_exists=if_not_exists, dry_run=dry_run)


@app.command("describe")
@asks
async def describe(
    session: Session,
    *,
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC…]",
            help="Names of topics; default: all.",
            show_default=False,
            autocompletion=topic_names,
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds",
            min=0,
            max=3600,
            help="Measure rates for this many seconds; 0 measures none.",
        ),
    ] = 1.0,
) -> Result:
    """Describe topics: partitions, leaders, replicas, offsets, sizes and rates.

    A rate is measured between two reads of the end offsets. A partition with more than twice the
    mean bytes or new records of its topic is marked: its keys are skewed.
    """
    from ottla.cli.topic.description import DescribingAdmin
    from ottla.cli.topic.description import describe as described

    if seconds != seconds:
        raise Misused("--seconds nan: must be a number")
    async with await session.opened(DescribingAdmin) as admin:
        answer, warnings = await described(admin, topics or (), seconds)
    for warning in warnings:
        complain(f"warning: {warning}")
    return answer


@app.command("alter")
@asks
async def alter(
    session: Session,
    *,
    topics: TopicArgument,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", min=1, max=INT_MAX, help="New total number of partitions."
        ),
    ] = None,
    config: ConfigOption = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", "-u", metavar="NAME", help="Remove a topic setting."),
    ] = None,
    dry_run: DryRunOption = False,
) -> Result:
    """Add partitions to topics or change their settings.

    Nothing is changed unless the cluster accepts all changes.
    """
    from ottla.cli.target import parsed
    from ottla.cli.topic.changes import altered
    from ottla.cli.topic.settings_admin import TopicSettingsAdmin

    configs: dict[str, str | None] = {**parsed(config or ())}
    if both := configs.keys() & {*(unset or ())}:
        raise Misused(f"{', '.join(sorted(both))}: given to both --config and --unset")
    configs |= dict.fromkeys(unset or ())
    if partitions is None and not configs:
        raise Misused("nothing to change: use --partitions, --config or --unset")
    async with await session.opened(TopicSettingsAdmin) as admin:
        return await altered(admin, topics, partitions, configs, dry_run=dry_run)


@app.command("delete")
@asks
async def delete(
    session: Session,
    *,
    topics: TopicArgument,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Do not fail if the topic does not exist.")
    ] = False,
    yes: YesOption = False,
) -> Result:
    """Delete topics with all their records."""
    from ottla.cli.topic.admin import TopicAdmin
    from ottla.cli.topic.changes import deleted

    async with await session.opened(TopicAdmin) as admin:
        return await deleted(session, admin, topics, if_exists=if_exists, yes=yes)


@app.command("apply")
@asks
async def apply(
    session: Session,
    *,
    file: Annotated[
        Path,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            show_default=False,
            help=(
                "YAML file with topics: a list of name, partitions, replication_factor and "
                "configs; - reads stdin."
            ),
        ),
    ],
    unset_others: Annotated[
        bool,
        typer.Option(
            "--unset-others", help="Remove settings of these topics that the file does not contain."
        ),
    ] = False,
    delete_others: Annotated[
        bool,
        typer.Option("--delete-others", help="Delete topics that the file does not contain."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done; change nothing.")
    ] = False,
    yes: YesOption = False,
) -> Result:
    """Create and change topics as a file describes: show the plan, ask, and apply it.

    Settings and topics that the file does not contain stay, unless an option says otherwise.
    Nothing is changed if a part is not possible: fewer partitions, another replication factor,
    names that differ only in . and _, or a change that the cluster refuses.
    """
    from ottla.cli.topic.apply import apply as applied
    from ottla.cli.topic.apply import topics_of

    return await applied(
        session,
        topics_of(file),
        unset_others=unset_others,
        delete_others=delete_others,
        dry_run=dry_run,
        yes=yes,
    )
