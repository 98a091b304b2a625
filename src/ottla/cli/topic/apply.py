"""`ottla topic apply`: compares the topics of a file with the cluster and applies the difference.

Invariant: nothing is changed before the cluster has accepted every change and the user has agreed.
Topics are created first, then changed, and deleted last.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from ottla.cli.escapes import escaped
from ottla.cli.failures import failure_of
from ottla.cli.output import Output
from ottla.cli.progress import progress
from ottla.cli.result import Failure, Result, complain, is_colored
from ottla.cli.session import Session
from ottla.cli.topic.file import BadTopicFile, WantedTopic, read_topics
from ottla.cli.topic.plan import Action, PresentTopic, Step, collisions, lines, obstructed, plan
from ottla.cli.topic.settings_admin import TopicSettingsAdmin
from ottla.cli.topic.warnings import KEYS_MOVE, name_warning
from ottla.client.admin.configs import ConfigResource
from ottla.client.admin.topic_list import ListedTopic
from ottla.client.admin.topics import NewTopic
from ottla.errors import RequestError

_COLORS = {"+": "\x1b[32m", "~": "\x1b[33m", "-": "\x1b[31m", "!": "\x1b[31m"}
_PLAIN = "\x1b[0m"
_AT_ONCE: Final = 50
"""Topics per request, so that a cluster responds well before the client's timeout."""


def topics_of(path: Path) -> list[WantedTopic]:
    """Return the topics of a file; `-` is stdin."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadTopicFile(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadTopicFile(f"{path}: not UTF-8 at byte {error.start}") from None
    return read_topics(text, "stdin" if str(path) == "-" else str(path))


async def apply(
    session: Session,
    wanted: Sequence[WantedTopic],
    *,
    unset_others: bool,
    delete_others: bool,
    dry_run: bool,
    yes: bool,
) -> Result:
    """Show the plan, ask, and apply it."""
    async with await session.opened(TopicSettingsAdmin) as admin:
        listed = await admin.list_topics(include_internal=True)
        steps = plan(
            wanted,
            await _present(admin, wanted, listed, all_topics=delete_others),
            unset_others=unset_others,
            delete_others=delete_others,
        )
        steps = obstructed(steps, collisions(steps, listed))
        steps = obstructed(steps, await _tried(admin, steps))
        return await _carried_out(session, admin, steps, dry_run=dry_run, yes=yes)


async def _present(
    admin: TopicSettingsAdmin,
    wanted: Iterable[WantedTopic],
    listed: Mapping[str, ListedTopic],
    *,
    all_topics: bool,
) -> dict[str, PresentTopic]:
    named = {one.name for one in wanted}
    names = [
        one.name
        for one in listed.values()
        if one.name in named or (all_topics and not one.is_internal)
    ]
    described = (await admin.describe_topics(names)).or_raise()
    configs = await admin.own_configs(names)
    return {
        one.name: PresentTopic(
            one.name,
            len(one.partitions),
            max((len(each.replicas) for each in one.partitions), default=0),
            configs.get(one.name, {}),
        )
        for one in described.values()
    }


async def _tried(admin: TopicSettingsAdmin, steps: Iterable[Step]) -> dict[str, str]:
    """Return the cluster's objections to possible steps, by topic."""
    work = [one for one in steps if one.is_possible and one.action is not Action.KEEP]
    refused = await _done(admin, work, validate_only=True)
    return {name: _why(name, error) for name, error in refused.items()}


def _why(name: str, error: RequestError) -> str:
    """Return the cluster's message without the topic name in front."""
    message = failure_of(error).message
    return message.removeprefix("topic ").removeprefix(f"{name}: ")


async def _done(
    admin: TopicSettingsAdmin, steps: Sequence[Step], *, validate_only: bool = False
) -> dict[str, RequestError]:
    """Apply steps, or only validate them; returns the failures by topic."""
    failed: dict[str, RequestError] = {}
    if not steps:
        return failed
    with progress(len(steps)) as advance:
        for action, act in _ACTS.items():
            alike = [one for one in steps if one.action is action]
            for at in range(0, len(alike), _AT_ONCE):
                some = alike[at : at + _AT_ONCE]
                failed |= await act(admin, some, validate_only)
                advance(len(some))
    return failed


async def _made(
    admin: TopicSettingsAdmin, steps: Sequence[Step], validate_only: bool
) -> Mapping[str, RequestError]:
    topics = [_new_topic(one) for one in steps]
    return (await admin.create_topics(topics, validate_only=validate_only)).failed


async def _changed(
    admin: TopicSettingsAdmin, steps: Sequence[Step], validate_only: bool
) -> Mapping[str, RequestError]:
    grown = await admin.create_partitions(
        {one.topic: one.partitions for one in steps if one.partitions is not None},
        validate_only=validate_only,
    )
    set_ = await admin.alter_configs(
        {ConfigResource.topic(one.topic): one.configs() for one in steps if one.configs()},
        validate_only=validate_only,
    )
    return {**grown.failed, **{one.name: error for one, error in set_.failed.items()}}


async def _deleted(
    admin: TopicSettingsAdmin, steps: Sequence[Step], validate_only: bool
) -> Mapping[str, RequestError]:
    if validate_only:  # deletion cannot be validated
        return {}
    told = await admin.delete_topics([one.topic for one in steps])
    return {str(name): error for name, error in told.failed.items()}


_ACTS: Final = {Action.CREATE: _made, Action.CHANGE: _changed, Action.DELETE: _deleted}


def _new_topic(step: Step) -> NewTopic:
    configs = {name: value for name, value in step.configs().items() if value is not None}
    return NewTopic(step.topic, step.partitions, step.replication_factor, configs)


async def _carried_out(
    session: Session, admin: TopicSettingsAdmin, steps: Sequence[Step], *, dry_run: bool, yes: bool
) -> Result:
    warnings = [*_warnings(steps)]
    work = [one for one in steps if one.action is not Action.KEEP]
    hindered = [one for one in steps if not one.is_possible]
    if session.output is Output.TABLE:
        _show(steps, warnings)
    failures = [
        Failure(f"{one.topic}: {why}", "IMPOSSIBLE", one.topic)
        for one in hindered
        for why in one.obstacles()
    ]
    done: Sequence[Step] = ()
    if not dry_run and work and not hindered:
        session.confirm(_question(work), yes=yes)
        refused = await _done(admin, work)
        failures = [failure_of(error, name) for name, error in refused.items()]
        done = [one for one in work if one.topic not in refused]
    value = {
        "plan": [one.object() for one in steps],
        "applied": [one.topic for one in done],
        "warnings": warnings,
    }
    return Result(value, [_outcome(work, hindered, done, dry_run=dry_run)], failures)


def _show(steps: Iterable[Step], warnings: Iterable[str]) -> None:
    colored = is_colored()
    for line in map(escaped, lines(steps)):
        color = _COLORS.get(line[0]) if colored else None
        sys.stdout.write(f"{color}{line}{_PLAIN}\n" if color else f"{line}\n")
    sys.stdout.flush()
    for warning in warnings:
        complain(f"warning: {warning}")


def _warnings(steps: Iterable[Step]) -> Iterable[str]:
    for one in steps:
        if one.action is Action.CREATE and (warning := name_warning(one.topic)):
            yield warning
        if one.action is Action.CHANGE and one.is_possible and one.partitions is not None:
            yield f"{one.topic}: {KEYS_MOVE}"


def _question(work: Sequence[Step]) -> str:
    counts = {action: sum(one.action is action for one in work) for action in Action}
    parts = [
        f"{verb} {counts[action]}"
        for action, verb in (
            (Action.CREATE, "create"),
            (Action.CHANGE, "change"),
            (Action.DELETE, "delete"),
        )
        if counts[action]
    ]
    text = ", ".join(parts)
    return f"{text[0].upper()}{text[1:]} {'topic' if len(work) == 1 else 'topics'}?"


def _outcome(
    work: Sequence[Step], hindered: Sequence[Step], done: Sequence[Step], *, dry_run: bool
) -> str:
    if hindered:
        return "Nothing was changed: some changes are not possible."
    if not work:
        return "Nothing to do."
    if dry_run:
        return "Nothing was changed: dry run."
    return f"Changed {len(done)} of {len(work)} {'topic' if len(work) == 1 else 'topics'}."
