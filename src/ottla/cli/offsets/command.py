"""`ottla offsets`: first and next offsets, and offsets at a time."""

import time
from typing import Annotated

import typer

from ottla.cli.completion import topic_names
from ottla.cli.declaration import asks
from ottla.cli.failures import Misused, failure_of
from ottla.cli.offsets.partition_lists import BadPartitions, Choice, parse_choice
from ottla.cli.offsets.positions import BadPosition, PositionKind, parse_position
from ottla.cli.result import Result, Table
from ottla.cli.session import Session


@asks
async def offsets(
    session: Session,
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC[:0,1]]…",
            help="Topics (TOPIC) or partitions (TOPIC:0,1) to show; default: all topics.",
            autocompletion=topic_names,
        ),
    ] = None,
    *,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="@TIME",
            help=(
                "Also show the offset of the first record at or after this time: "
                "@2026-11-01T00:00 (UTC unless it has a zone) or @-1h (one hour ago)."
            ),
        ),
    ] = None,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
) -> Result:
    """Show the first and next offsets of partitions and, with --at, the offset for a timestamp.

    NEXT is the offset that the next written record gets. OFFSETS is NEXT minus FIRST. The number of
    records can be smaller than OFFSETS because of compaction and transaction markers.
    """
    from ottla.cli.offsets.admin import OffsetAdmin, expanded
    from ottla.cli.times import time_text
    from ottla.client.admin.records import OffsetAt

    time_ms = None if at is None else _time_ms(at)
    choices = [_choice(one) for one in topics or ()]
    async with await session.opened(OffsetAdmin) as admin:
        if not choices:
            choices = [Choice(one) for one in await admin.list_topics(include_internal=internal)]
        wanted = await expanded(admin, choices)
        first = await admin.list_offsets(dict.fromkeys(wanted, OffsetAt.EARLIEST))
        last = await admin.list_offsets(dict.fromkeys(wanted, OffsetAt.LATEST))
        then = None
        if time_ms is not None:
            then = await admin.list_offsets(dict.fromkeys(wanted, time_ms))
    failed = {**first.failed, **last.failed, **({} if then is None else then.failed)}
    rows = [
        {
            "topic": where[0],
            "partition": where[1],
            "first": start,
            "next": end,
            "offsets": end - start,
            "at": None if then is None else then[where].offset,
            "at_time": None if then is None else time_text(then[where].timestamp_ms),
        }
        for where in wanted
        if where not in failed
        and (start := first[where].offset) is not None
        and (end := last[where].offset) is not None
    ]
    heads = ("TOPIC", "PARTITION", "FIRST", "NEXT", "OFFSETS", "AT", "TIME")
    count = 5 if then is None else 7
    return Result(
        {"partitions": rows},
        [Table(heads[:count], [[*one.values()][:count] for one in rows])]
        if wanted
        else ["No topics."],
        [failure_of(error, "{}-{}".format(*where)) for where, error in failed.items()],
    )


def _time_ms(text: str) -> int:
    try:
        found = parse_position(text, time.time_ns() // 1_000_000)
    except BadPosition as error:
        raise Misused(str(error)) from None
    if found.kind is not PositionKind.TIME:
        raise Misused(f"{text!r} is not a time: use @2026-11-01T00:00 or @-1h")
    return found.value


def _choice(text: str) -> Choice:
    try:
        return parse_choice(text)
    except BadPartitions as error:
        raise Misused(str(error)) from None
