"""`ottla group`: members, lag and positions of groups.

Modules are imported on use, so that other commands start fast.
"""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.completion import group_names, topic_names
from ottla.cli.declaration import YesOption, asks
from ottla.cli.escapes import escaped
from ottla.cli.failures import Failed, Misused, failure_of
from ottla.cli.group.kinds import OTHER_TYPES, STATES, TYPES, strange
from ottla.cli.offsets.partition_lists import BadPartitions, parse_choice
from ottla.cli.offsets.positions import BadPosition, Position, parse_position
from ottla.cli.result import Failure, Result, Table
from ottla.cli.session import Session
from ottla.errors import RequestError

if TYPE_CHECKING:
    from ottla.cli.group.admin import GroupAdmin
    from ottla.cli.group.seek_plan import Aim
    from ottla.cli.offsets.partition_lists import Choice
    from ottla.client.partitions import Partition

app = typer.Typer(help="Show and change consumer groups.", no_args_is_help=True)

GroupArgument = Annotated[
    str, typer.Argument(metavar="GROUP", help="Name of the group.", autocompletion=group_names)
]
GroupsArgument = Annotated[
    list[str], typer.Argument(metavar="GROUP…", help="Names of groups.", autocompletion=group_names)
]


def _topic_option(verb: str) -> Any:
    return typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC[:0,1]",
        help=(
            f"{verb} only the committed offsets for this topic, or for some of its partitions "
            "(TOPIC:0,1); repeat for several topics."
        ),
        autocompletion=topic_names,
    )


@app.callback()
def group() -> None:
    """List, describe and delete groups, and reset their offsets."""


@app.command("list")
@asks
async def list_(
    session: Session,
    *,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help=f"List only groups in this state: {', '.join(STATES)}. Repeat for several.",
        ),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            help=(
                f"List only groups of this type: {', '.join((*TYPES, *OTHER_TYPES))}. Repeat for "
                "several."
            ),
        ),
    ] = None,
) -> Result:
    """List all groups, of any type, that you are authorized to describe."""
    from ottla.cli.group.admin import GroupAdmin
    from ottla.cli.group.results import listed_object, listed_table

    for said, known in ((state, STATES), (kind, (*TYPES, *OTHER_TYPES))):
        if wrong := strange(said or (), known):
            raise Misused(f"{', '.join(wrong)}: unknown, use {', '.join(known)}")
    async with await session.opened(GroupAdmin) as admin:
        listing = await admin.list_groups(states=state or (), types=kind or ())
    groups = sorted(listing.found, key=lambda one: one.id)
    failures = [failure_of(error, f"broker {id_}") for id_, error in listing.failed.items()]
    none = "No matching groups." if state or kind else "There are no groups."
    return Result(
        {"groups": [listed_object(one) for one in groups]},
        [listed_table(groups)] if groups else [none],
        failures,
    )


@app.command("describe")
@asks
async def describe(session: Session, groups: GroupsArgument) -> Result:
    """Show the members, committed offsets and lag of groups.

    LAG is the number of offsets from the committed offset to the end of the partition. SINCE is
    the timestamp of the first unread record.
    """
    from ottla.cli.group.admin import GroupAdmin
    from ottla.cli.group.results import described_object, described_shown
    from ottla.cli.group.view import GroupView, viewed

    async with await session.opened(GroupAdmin) as admin:
        told = await viewed(admin, groups)
    views = [one for one in told.values() if isinstance(one, GroupView)]
    shown: list[Table | str] = []
    for view in views:
        shown += ["", *described_shown(view)] if shown else described_shown(view)
    return Result(
        {"groups": [described_object(view) for view in views]},
        shown,
        [
            failure_of(error, name)
            for name, error in told.items()
            if not isinstance(error, GroupView)
        ],
    )


@app.command("delete")
@asks
async def delete(
    session: Session,
    groups: GroupsArgument,
    *,
    topic: Annotated[list[str] | None, _topic_option("Delete")] = None,
    yes: YesOption = False,
) -> Result:
    """Delete groups that have no members.

    With --topic, the command deletes only the committed offsets for that topic. A consumer that
    joins the group later starts according to auto.offset.reset.
    """
    from ottla.cli.group.admin import GroupAdmin

    choices = _choices(topic)
    names = [*dict.fromkeys(groups)]
    question = f"Delete {_list(names)} with all committed offsets?"
    if choices is not None:
        question = f"Delete the offsets that {_list(names)} committed for {_list(topic)}?"
    session.confirm(question, yes=yes)
    async with await session.opened(GroupAdmin) as admin:
        if choices is not None:
            return await _forget(admin, names, choices)
        told = await admin.delete_groups(names)
    done = [*told.succeeded]
    return Result(
        {"deleted": done},
        [f"Deleted {escaped(name)}." for name in done],
        [failure_of(error, name) for name, error in told.failed.items()],
    )


async def _forget(admin: "GroupAdmin", names: list[str], choices: "list[Choice]") -> Result:
    """Delete committed offsets of partitions."""
    from ottla.cli.offsets.admin import expanded
    from ottla.client.partitions import partition

    wanted = await expanded(admin, choices)
    done: list[tuple[str, Partition]] = []
    failures: list[Failure] = []
    for name in names:
        try:
            told = await admin.delete_group_offsets(name, wanted)
        except RequestError as error:
            failures.append(failure_of(error, name))
            continue
        done += [(name, where) for where in told.succeeded]
        failures += [failure_of(error, name) for error in told.failed.values()]
    return Result(
        {
            "deleted_offsets": [
                {"name": name, "topic": topic, "partition": number}
                for name, (topic, number) in done
            ]
        },
        [f"{escaped(name)}: deleted the offset of {partition(*where)}." for name, where in done],
        failures,
    )


@app.command("seek")
@asks
async def seek(
    session: Session,
    group: GroupArgument,
    *,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="POSITION",
            help=(
                "Reset to this position: start; end; 42 (an offset); -10 or +10 (relative to the "
                "committed offset); @2026-11-01T00:00 (a time, UTC unless it has a zone); or @-1h "
                "(one hour ago)."
            ),
        ),
    ] = None,
    from_group: Annotated[
        str | None,
        typer.Option(
            "--from-group",
            metavar="GROUP",
            help="Copy the committed offsets of this group.",
            autocompletion=group_names,
        ),
    ] = None,
    topic: Annotated[list[str] | None, _topic_option("Reset")] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Apply the plan instead of only showing it.")
    ] = False,
) -> Result:
    """Reset the committed offsets of a group that has no members.

    The command only shows the plan, unless you pass --execute. Without --topic, it resets all
    partitions for which the group (or the --from-group group) has committed offsets. It creates a
    missing group, and limits out-of-range offsets to the first or the end offset.
    """
    from ottla.cli.group.admin import GroupAdmin
    from ottla.cli.group.results import move_object, moves_sentence, moves_table
    from ottla.cli.group.seek import carried_out, check_unread, only_code, plan_moves
    from ottla.cli.group.seek_plan import NothingCommitted
    from ottla.cli.group.view import committed_offsets

    if not group:
        raise Misused("the group name must not be empty")
    if to is None and from_group is None:
        raise Misused("no target: use --to POSITION or --from-group GROUP")
    if to is not None and from_group is not None:
        raise Misused("--to and --from-group exclude each other")
    position = None if to is None else _position(to)
    choices = _choices(topic)
    async with await session.opened(GroupAdmin) as admin:
        exists = await check_unread(admin, group)
        own = {where: one.offset for where, one in (await committed_offsets(admin, group)).items()}
        if position is not None:
            aims = await _aims_to(admin, group, position, choices, own)
        else:
            aims = await _aims_from(admin, from_group or "", choices)
        try:
            moves = await plan_moves(admin, aims, own)
        except NothingCommitted as error:
            raise Failed(f"{error}: -10 and +10 are relative to it") from None
        failures: list[Failure] = []
        if execute:
            told = await carried_out(admin, group, moves)
            if (code := only_code(told)) is not None:
                raise RequestError(code, f"{group}: {code.text}")
            failures = [failure_of(error, group) for error in told.failed.values()]
            moves = [one for one in moves if one.partition in told.succeeded]
    sentence = moves_sentence(group, moves, is_done=execute)
    if not exists:
        sentence += (
            " The group was created."
            if execute
            else (" The group does not exist yet and will be created.")
        )
    return Result(
        {
            "name": group,
            "existed": exists,
            "executed": execute,
            "partitions": [move_object(one) for one in moves],
        },
        [moves_table(moves), sentence] if moves else [],
        failures,
    )


async def _aims_to(
    admin: "GroupAdmin",
    group: str,
    position: Position,
    choices: "list[Choice] | None",
    own: "dict[Partition, int]",
) -> "dict[Partition, Aim]":
    from ottla.cli.offsets.admin import expanded

    if choices is not None:
        return dict.fromkeys(await expanded(admin, choices), position)
    if not own:
        raise Failed(f"{group} has no committed offsets: name the topics with --topic")
    return dict.fromkeys(own, position)


async def _aims_from(
    admin: "GroupAdmin", other: str, choices: "list[Choice] | None"
) -> "dict[Partition, Aim]":
    """Return the positions of another group."""
    from ottla.cli.group.view import committed_offsets
    from ottla.cli.offsets.admin import expanded
    from ottla.cli.offsets.positions import PositionKind

    found = await committed_offsets(admin, other)
    wanted = [*found] if choices is None else await expanded(admin, choices)
    aims: dict[Partition, Aim] = {
        where: Position(PositionKind.OFFSET, found[where].offset)
        for where in wanted
        if where in found
    }
    if not aims:
        where = "" if choices is None else " there"
        raise Failed(f"{other} has no committed offsets{where}")
    return aims


def _position(text: str) -> Position:
    try:
        return parse_position(text, time.time_ns() // 1_000_000)
    except BadPosition as error:
        raise Misused(str(error)) from None


def _choices(texts: list[str] | None) -> "list[Choice] | None":
    try:
        return None if not texts else [parse_choice(one) for one in texts]
    except BadPartitions as error:
        raise Misused(str(error)) from None


def _list(names: list[str] | None) -> str:
    return escaped(", ".join(names or ()))
