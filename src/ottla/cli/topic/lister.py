"""`ottla topic list`: lists topics.

With plain arguments it runs before the command line is imported, which takes longer than the
request. Anything else, help and wrong usage included, is left to the command line, with the same
result.
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from ottla.cli.output import Output
from ottla.cli.result import Result, Table

if TYPE_CHECKING:
    from ottla.cli.session import Session

_NAMES: Final = {
    "-b": "bootstrap_server",
    "--bootstrap-server": "bootstrap_server",
    "--profile": "profile",
    "-X": "settings",
    "-o": "output",
    "--output": "output",
}
_INTERNAL: Final = "--internal"


async def topics(session: "Session", *, internal: bool) -> Result:
    """Request the list."""
    from ottla.cli.topic_list_admin import ListAdmin

    async with await session.opened(ListAdmin) as admin:
        found = await admin.list_topics(include_internal=internal)
    rows = [
        (one.name, one.partitions, None if one.id is None else str(one.id), one.is_internal)
        for _, one in sorted(found.items())
    ]
    keys = ("name", "partitions", "id", "internal")
    return Result(
        {"topics": [dict(zip(keys, one, strict=True)) for one in rows]},
        [Table(("TOPIC", "PARTITIONS", "ID"), [one[:3] for one in rows])]
        if rows
        else ["No topics."],
    )


def plain(arguments: Sequence[str]) -> Callable[[], NoReturn] | None:
    """Return the function for plain arguments; None for others."""
    said: dict[str, list[str]] = {}
    words = iter(arguments)
    for word in words:
        if word == _INTERNAL:
            said[word] = []
        elif (name := _NAMES.get(word)) is None:
            return None
        else:
            value = next(words, "")
            if not value or value.startswith("-") or (name in said and name != "settings"):
                return None
            said.setdefault(name, []).append(value)
    outputs = said.get("output", ["table"])
    if outputs[0] not in [*Output]:
        return None
    return lambda: _run(said, Output(outputs[0]))


def _run(said: dict[str, list[str]], output: Output) -> NoReturn:
    from ottla.cli.event_loop import run_asking
    from ottla.cli.output_errors import heeded
    from ottla.cli.session import Session, carried_out
    from ottla.cli.target import target_of

    async def asked() -> Result:
        target = target_of(
            os.environ,
            bootstrap_server=next(iter(said.get("bootstrap_server", ())), None),
            profile=next(iter(said.get("profile", ())), None),
            settings=said.get("settings", ()),
        )
        return await topics(Session(target, output), internal=_INTERNAL in said)

    with heeded("ottla"):
        sys.exit(carried_out(lambda: run_asking(asked), output))
