"""Completes names of topics, groups and profiles.

Invariant: completion prints nothing and never fails. It returns within the time that a user waits
for a key, asks the cluster that the command would use, and offers what starts with the word.
Modules are imported on use.
"""

import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

import typer

TIMEOUT_S: Final = 2.0


@dataclass(slots=True)
class Offer:
    """Properties of a completion."""

    is_of_names: bool = False  # names of a cluster, not files


def topic_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete topics, except those already named."""
    return _offered(_topics, context, incomplete)


def group_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete groups, except those already named."""
    return _offered(groups_of, context, incomplete)


def profile_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete profiles."""
    _offer_names(context)
    from ottla.cli import profiles

    try:
        known = profiles.read(profiles.config_path(os.environ))
    except profiles.BadProfile:
        return []
    return sorted(one for one in known.settings if one.startswith(incomplete))


def _offered(
    ask: Callable[[dict[str, str]], Awaitable[Iterable[str]]],
    context: typer.Context,
    incomplete: str,
) -> list[str]:
    import asyncio
    import logging

    _offer_names(context)
    logging.getLogger("ottla").addHandler(logging.NullHandler())
    try:
        found = asyncio.run(_asked(ask, context.params))
    except Exception:  # a completing shell is not the place for error messages
        return []
    named = _named(context.params)
    return sorted(one for one in found if one.startswith(incomplete) and one not in named)


def _offer_names(context: typer.Context) -> None:
    if isinstance(context.obj, Offer):
        context.obj.is_of_names = True


async def _asked(
    ask: Callable[[dict[str, str]], Awaitable[Iterable[str]]], said: dict[str, Any]
) -> Iterable[str]:
    import asyncio

    from ottla.cli.probe import probe
    from ottla.cli.target import target_of

    target = target_of(
        os.environ,
        bootstrap_server=said.get("bootstrap_server"),
        profile=said.get("profile"),
        settings=said.get("settings") or (),
    )
    async with asyncio.timeout(TIMEOUT_S):
        if await probe(target.settings, TIMEOUT_S, tells=False):
            return ()
        return await ask(target.settings_of("admin", "producer", "consumer"))


async def _topics(settings: dict[str, str]) -> Iterable[str]:
    from ottla.cli.topic_list_admin import ListAdmin

    async with ListAdmin(settings) as admin:
        return await admin.list_topics()


async def groups_of(settings: dict[str, str]) -> Iterable[str]:
    """Return the groups of a cluster."""
    from ottla.client.admin.administration import Administration
    from ottla.client.admin.groups import GroupCalls

    class Lister(Administration, GroupCalls):
        """Lists groups."""

    async with Lister(settings) as admin:
        return [one.id for one in (await admin.list_groups()).found]


def _named(said: dict[str, Any]) -> set[str]:
    """Return the names already given."""
    found: set[str] = set()
    for name, values in said.items():
        if name != "settings" and isinstance(values, list | tuple):
            found |= {str(one) for one in cast("list[Any]", values)}
    return found
