"""`ottla topic`: what topics there are, and what becomes of them.

What does the work is imported when it is used: other commands start without it.
"""

from typing import Annotated

import typer

from ottla.cli.answer import Answer, Table
from ottla.cli.session import Session, asks

app = typer.Typer(help="Topics.", no_args_is_help=True)


@app.callback()
def topic() -> None:
    """Create, list, describe, change and delete topics."""


@app.command("list")
@asks
async def list_(
    session: Session,
    *,
    internal: Annotated[
        bool, typer.Option("--internal", help="Also those that the cluster keeps for itself.")
    ] = False,
) -> Answer:
    """List the topics that you may see."""
    from ottla.cli.topic_admin import TopicAdmin

    async with await session.opened(TopicAdmin) as admin:
        found = await admin.list_topics(include_internal=internal)
    topics = [
        (one.name, one.partitions, None if one.id is None else str(one.id), one.is_internal)
        for _, one in sorted(found.items())
    ]
    keys = ("name", "partitions", "id", "internal")
    return Answer(
        {"topics": [dict(zip(keys, one, strict=True)) for one in topics]},
        [Table(("TOPIC", "PARTITIONS", "ID"), [one[:3] for one in topics])]
        if topics
        else ["There are no topics."],
    )
