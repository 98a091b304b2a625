"""Suggests existing topics and groups for a name that does not exist.

Invariant: a suggestion only adds a sentence to a failure. Without a response of the cluster within
the time limit, the failure stays as it is.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from ottla.cli.completion import group_names, groups_of, topic_names
from ottla.cli.escapes import escaped
from ottla.cli.result import Failure
from ottla.cli.target import Target

TIMEOUT_S: Final = 2.0
SHOWN_MAX: Final = 3

Lister = Callable[[dict[str, str]], Awaitable[Iterable[str]]]


async def _every_topic(settings: dict[str, str]) -> Iterable[str]:
    """Return the topics of a cluster, with internal ones."""
    from ottla.cli.topic_list_admin import ListAdmin

    async with ListAdmin(settings) as admin:
        return await admin.list_topics(include_internal=True)


_LISTERS: Final[Mapping[object, Lister]] = {topic_names: _every_topic, group_names: groups_of}
"""How to list the names that a parameter completes."""

_ABSENT: Final = frozenset(
    {
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_ID",
        "GROUP_ID_NOT_FOUND",
        "REQUEST_TIMED_OUT",  # of a producer that waits for the topic
        "FAILED",
    }
)
"""The failures for which a missing name may be the reason."""


def names_given(
    parameters: Iterable[inspect.Parameter], given: Mapping[str, object]
) -> list[tuple[Lister, str]]:
    """Return the names of topics and groups among the arguments of a command."""
    found: list[tuple[Lister, str]] = []
    for parameter in parameters:
        declared: Sequence[Any] = getattr(parameter.annotation, "__metadata__", ())
        completed = {getattr(one, "autocompletion", None) for one in declared}
        for lister in (_LISTERS[one] for one in completed if one in _LISTERS):
            value = given.get(parameter.name)
            values = cast("list[str]", value) if isinstance(value, list) else [value]
            # TOPIC:0,1 names partitions, and a topic name cannot contain a colon.
            names = (one for one in values if isinstance(one, str))
            is_topic = lister is _every_topic
            found += [(lister, one.partition(":")[0] if is_topic else one) for one in names]
    return found


async def with_suggestions(
    failures: Sequence[Failure], names: Iterable[tuple[Lister, str]], target: Target
) -> list[Failure]:
    """Return failures with the nearest existing names, for those about a missing name."""
    import asyncio

    from ottla.errors import OttlaError
    from ottla.settings.invalid_settings import InvalidSettings

    found = list(failures)
    known: dict[Lister, Sequence[str]] = {}
    for lister, name in names:
        for at, failure in enumerate(found):
            if not name or failure.code not in _ABSENT or name not in failure.message:
                continue
            if lister not in known:
                try:
                    settings = target.settings_of("admin", "producer", "consumer")
                    async with asyncio.timeout(TIMEOUT_S):
                        known[lister] = [*await lister(settings)]
                except (TimeoutError, OttlaError, InvalidSettings, OSError):
                    return found
            if name not in known[lister] and (near := nearest(name, known[lister])):
                message = f"{failure.message.rstrip('.')}. Did you mean {_either(near)}?"
                found[at] = failure._replace(message=message)
    return found


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return the most similar names, best first; letter case does not count."""
    from difflib import get_close_matches

    folded: dict[str, str] = {}
    for one in sorted(known):
        folded.setdefault(one.casefold(), one)
    return [folded[one] for one in get_close_matches(name.casefold(), folded, SHOWN_MAX)]


def _either(names: Sequence[str]) -> str:
    *first, last = map(escaped, names)
    return f"{', '.join(first)} or {last}" if first else last
