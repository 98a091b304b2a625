"""`ottla partition`: moves replicas and leaders of partitions.

Modules are imported on use, so that other commands start fast.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.completion import topic_names
from ottla.cli.declaration import YesOption, asks
from ottla.cli.failures import Failed, Misused
from ottla.cli.result import Result, Table
from ottla.cli.session import Session

if TYPE_CHECKING:
    from ottla.cli.offsets.partition_lists import Choice

app = typer.Typer(help="Move replicas and leaders of partitions.", no_args_is_help=True)

PartitionsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="TOPIC[:0,1]…",
        help="Topics (TOPIC) or partitions (TOPIC:0,1).",
        show_default=False,
        autocompletion=topic_names,
    ),
]
OptionalPartitionsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TOPIC[:0,1]]…",
        help="Topics (TOPIC) or partitions (TOPIC:0,1).",
        show_default=False,
        autocompletion=topic_names,
    ),
]
ExecuteOption = Annotated[
    bool, typer.Option("--execute", help="Execute the plan instead of only showing it.")
]
ThrottleOption = Annotated[
    int | None,
    typer.Option(
        "--throttle",
        metavar="BYTES",
        min=1024,
        help="Copy at most this many bytes per second to and from each broker. The command removes "
        "the limit when all replicas are copied; after Ctrl-C, `ottla partition status --wait` "
        "removes it. Cannot be combined with --no-wait.",
        show_default=False,
    ),
]
NoWaitOption = Annotated[
    bool,
    typer.Option("--no-wait", help="Exit as soon as the moves have started."),
]


@app.callback()
def partition() -> None:
    """Move replicas of partitions to other brokers, and elect leaders."""


@app.command("move")
@asks
async def move(
    session: Session,
    *,
    topics: PartitionsArgument,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="ID,…",
            help="Place one replica of each partition on each of these brokers, and remove all "
            "other replicas. The first broker becomes the preferred leader of the first partition, "
            "the second broker of the second partition, and so on, starting again after the last "
            "broker.",
            show_default=False,
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
            help="Add or remove replicas until each partition has this many. A new replica goes to "
            "the broker with the fewest bytes. Brokers in racks without a replica of the partition "
            "are preferred.",
            show_default=False,
        ),
    ] = None,
    execute: ExecuteOption = False,
    throttle: ThrottleOption = None,
    no_wait: NoWaitOption = False,
) -> Result:
    """Move replicas of partitions to other brokers, or change the replication factor.

    The command only shows the plan, unless you pass --execute. With --execute, it starts the moves,
    and waits until the new replicas are in sync and the old ones are removed. Ctrl-C ends the
    command, but not the reassignment.
    """
    from ottla.cli.partition.choice import brokers_of, chosen_partitions, moved_to
    from ottla.cli.partition.cluster_replicas import MoveAdmin, describe_replicas
    from ottla.cli.partition.moves import Order, carried_out
    from ottla.cluster.balance import plan_factor

    if (to is None) == (replication_factor is None):
        raise Misused("use either --to or --replication-factor")
    if throttle is not None and no_wait:
        raise Misused("--throttle needs a command that waits, to remove it: omit --no-wait")
    targets = None if to is None else brokers_of(to)
    choices = _choices(topics)
    async with await session.opened(MoveAdmin) as admin:
        hosted = await describe_replicas(admin)
        chosen = chosen_partitions(hosted, choices)
        if targets is not None:
            plan = moved_to(hosted, chosen, targets)
        else:
            plan = plan_factor(hosted.places(), hosted.sizes(), chosen, replication_factor or 1)
        order = Order(execute, throttle, not no_wait)
        return await carried_out(session, admin, hosted, plan, order)


@app.command("elect")
@asks
async def elect(
    session: Session,
    *,
    topics: OptionalPartitionsArgument = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="Elect a live replica for partitions without a leader, even if it is not in sync: "
            "acknowledged records can be lost.",
        ),
    ] = False,
    yes: YesOption = False,
) -> Result:
    """Make the preferred leader the leader, for all partitions or for some.

    The preferred leader is the first replica of a partition. It must be in sync. With --unclean,
    the command instead elects leaders for partitions that have none.
    """
    from ottla.cli.partition.choice import chosen_partitions
    from ottla.cli.partition.cluster_replicas import MoveAdmin, describe_replicas
    from ottla.cli.partition.election import elected

    choices = _choices(topics)
    if unclean:
        which = "all partitions" if choices is None else "these partitions"
        session.confirm(
            f"Elect leaders that are not in sync for {which} without a leader, and lose records?",
            yes=yes,
        )
    async with await session.opened(MoveAdmin) as admin:
        chosen = None
        if choices is not None:
            hosted = await describe_replicas(admin, {one.topic for one in choices})
            chosen = chosen_partitions(hosted, choices)
        return await elected(admin, chosen, unclean=unclean)


@app.command("status")
@asks
async def status(
    session: Session,
    *,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait",
            help="Wait until all reassignments are complete, then remove their throttles.",
        ),
    ] = False,
) -> Result:
    """Show the reassignments in progress, and how many bytes are copied already."""
    from ottla.cli.partition.cluster_replicas import MoveAdmin, describe_replicas
    from ottla.cli.partition.progress_view import progress_result, waited

    async with await session.opened(MoveAdmin) as admin:
        if wait:
            await waited(admin)
        return progress_result(await describe_replicas(admin))


@app.command("cancel")
@asks
async def cancel(
    session: Session,
    *,
    topics: OptionalPartitionsArgument = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Cancel all reassignments in progress.")
    ] = False,
) -> Result:
    """Cancel reassignments: the partitions return to the replicas that they had before."""
    from ottla.cli.failures import failure_of
    from ottla.cli.partition.choice import chosen_partitions
    from ottla.cli.partition.cluster_replicas import MoveAdmin, describe_replicas
    from ottla.cli.partition.moves import throttled_topics, unthrottled

    choices = _choices(topics)
    if (choices is None) != everything:
        raise Misused("name the partitions, or use --all")
    async with await session.opened(MoveAdmin) as admin:
        moving = await admin.list_reassignments()
        wanted = [*moving]
        if choices is not None:
            hosted = await describe_replicas(admin, {one.topic for one in choices})
            wanted = chosen_partitions(hosted, choices)
            if not any(one in moving for one in wanted):
                raise Failed("none of these partitions is being reassigned")
            wanted = [one for one in wanted if one in moving]
        told = await admin.alter_reassignments(dict.fromkeys(wanted))
        if throttled := await throttled_topics(admin):
            await unthrottled(admin, throttled)
    done = [str(one) for one in told.succeeded]
    shown: list[Table | str] = [f"Cancelled the reassignment of {one}." for one in done]
    return Result(
        {"cancelled": done},
        shown or ["No reassignment is in progress."],
        [failure_of(error, str(one)) for one, error in told.failed.items()],
    )


def _choices(texts: list[str] | None) -> "list[Choice] | None":
    from ottla.cli.offsets.partition_lists import BadPartitions, parse_choice

    try:
        return [parse_choice(one) for one in texts] if texts else None
    except BadPartitions as error:
        raise Misused(str(error)) from None
