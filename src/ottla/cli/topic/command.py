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

app = typer.Typer(help="Manage topics.", no_args_is_help=True)

TopicArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="TOPIC…", help="Names of topics.", show_default=False, autocompletion=topic_names
    ),
]
ConfigOption = Annotated[
    list[str] | None,
    typer.Option(
        "--config", "-c", metavar="NAME=VALUE", help="Set a topic setting; repeat for several."
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Validate the changes without applying them.")
]


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
    """List the topics that you are authorized to describe."""
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
            metavar="COUNT",
            min=1,
            max=INT_MAX,
            help="Set the number of partitions; default: the broker setting num.partitions.",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            "-r",
            metavar="COUNT",
            min=1,
            max=32_767,
            help=(
                "Set the replication factor; default: the broker setting "
                "default.replication.factor."
            ),
        ),
    ] = None,
    config: ConfigOption = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do not fail if a topic already exists.")
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
            help="Names of topics; default: all topics except internal ones.",
            show_default=False,
            autocompletion=topic_names,
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds",
            metavar="SECONDS",
            min=0,
            max=3600,
            help="Measure rates for this many seconds; 0 disables the measurement.",
        ),
    ] = 1.0,
) -> Result:
    """Describe topics: partitions, leaders, replicas, offsets, sizes and rates.

    The command computes rates from two reads of the end offsets, --seconds apart. A partition is
    marked as skewed if its bytes, or its new records between the two reads, are more than twice the
    topic's average per partition. Bytes count only if the average is at least 160 KiB, new records
    only if it is at least 10. For up to ten skewed partitions, the command reads the newest 1000
    records of each and prints the most frequent keys: at most three, each in at least a tenth of
    these records.
    """
    from functools import partial

    from ottla.cli.topic.description import DescribingAdmin
    from ottla.cli.topic.description import describe as described
    from ottla.cli.topic.hot_keys import found_hot_keys

    if seconds != seconds:
        raise Misused("--seconds nan: must be a number")
    async with await session.opened(DescribingAdmin) as admin:
        settings = session.target.settings_of("consumer", "admin")
        find = partial(found_hot_keys, settings)
        answer, warnings = await described(admin, topics or (), seconds, find)
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
            "--partitions",
            "-p",
            metavar="COUNT",
            min=1,
            max=INT_MAX,
            help="Add partitions up to this total number.",
        ),
    ] = None,
    config: ConfigOption = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(
            "--unset", "-u", metavar="NAME", help="Remove a topic setting; repeat for several."
        ),
    ] = None,
    dry_run: DryRunOption = False,
) -> Result:
    """Add partitions to topics or change their settings.

    The command first asks the cluster to validate all changes. If the cluster rejects one of them,
    the command changes nothing.
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
        bool, typer.Option("--if-exists", help="Do not fail if a topic does not exist.")
    ] = False,
    yes: YesOption = False,
) -> Result:
    """Delete topics and all their records.

    If one of the topics does not exist, the command deletes nothing, unless you pass --if-exists.
    """
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
                "Read the topics from this YAML file, or from stdin if FILE is -. The file is a "
                "list of topics, or a mapping with this list under the key topics. A topic has the "
                "keys name (required), partitions, replication_factor and configs."
            ),
        ),
    ],
    unset_others: Annotated[
        bool,
        typer.Option(
            "--unset-others",
            help="For each topic in the file, remove settings that the file does not list.",
        ),
    ] = False,
    delete_others: Annotated[
        bool,
        typer.Option(
            "--delete-others",
            help="Delete topics that the file does not list, except internal topics.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan without applying it.")
    ] = False,
    yes: YesOption = False,
) -> Result:
    """Create and change topics to match a file.

    The command shows a plan and asks for confirmation before it applies the plan. It keeps topics
    and settings that the file does not list, unless you pass --delete-others or --unset-others.

    The command changes nothing if any change is impossible. For example, it cannot remove
    partitions, change the replication factor, create a topic whose name collides with that of
    another topic (a.b collides with a_b), or make a change that the cluster rejects.
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
