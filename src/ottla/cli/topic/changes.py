"""Creates, changes and deletes topics, and reports it.

Invariant: a change of several topics is validated for all of them before any is changed, where the
cluster supports it. Each failed topic is named.
"""

from collections.abc import Mapping, Sequence

from ottla.cli.config.changes import check_unset
from ottla.cli.escapes import escaped
from ottla.cli.failures import failure_of
from ottla.cli.output import Json
from ottla.cli.result import Result, complain
from ottla.cli.session import Session
from ottla.cli.topic.admin import TopicAdmin
from ottla.cli.topic.settings_admin import TopicSettingsAdmin
from ottla.cli.topic.warnings import KEYS_MOVE, name_warning
from ottla.client.admin.configs import ConfigResource
from ottla.client.admin.topics import CreatedTopic, NewTopic
from ottla.errors import ErrorCode, RequestError

_OFFSETS_TOPIC = "__consumer_offsets"
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


async def created(
    admin: TopicAdmin, wanted: Sequence[NewTopic], *, if_not_exists: bool, dry_run: bool
) -> Result:
    """Create topics."""
    told = await admin.create_topics(wanted, validate_only=dry_run)
    failed = told.failed
    refused = {
        name for name, error in failed.items() if error.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    }
    warnings = [
        warning for one in wanted if one.name not in refused and (warning := name_warning(one.name))
    ]
    _warn(warnings)
    there = [
        name
        for name, error in failed.items()
        if if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS
    ]
    made = [*told.succeeded.values()]
    verb = "Would create" if dry_run else "Created"
    return Result(
        {
            "created": [] if dry_run else [_object(one) for one in made],
            "possible": [one.name for one in made],
            "existing": there,
            "warnings": warnings,
        },
        [
            *(f"{verb} {escaped(one.name)}{_size(one)}." for one in made),
            *(f"{escaped(name)} exists already." for name in there),
        ],
        [failure_of(error, name) for name, error in failed.items() if name not in there],
    )


def _object(one: CreatedTopic) -> dict[str, Json]:
    return {
        "name": one.name,
        "id": None if one.id is None else str(one.id),
        "partitions": one.partitions,
        "replication_factor": one.replication_factor,
    }


def _size(one: CreatedTopic) -> str:
    if one.partitions is None:  # an older broker does not return it
        return ""
    word = "partition" if one.partitions == 1 else "partitions"
    return f" with {one.partitions} {word}, replication factor {one.replication_factor}"


async def altered(
    admin: TopicSettingsAdmin,
    topics: Sequence[str],
    partitions: int | None,
    configs: Mapping[str, str | None],
    *,
    dry_run: bool,
) -> Result:
    """Add partitions to topics and change settings; all of them or none."""
    names = [*dict.fromkeys(topics)]
    unset = [name for name, value in configs.items() if value is None]
    for name in names:
        await check_unset(admin, ConfigResource.topic(name), unset)
    failed = await _alter(admin, names, partitions, configs, validate_only=True)
    warnings = [KEYS_MOVE] if partitions is not None and not failed else []
    _warn(warnings)
    done: Sequence[str] = ()
    if not failed and not dry_run:
        failed = await _alter(admin, names, partitions, configs, validate_only=False)
        done = [name for name in names if name not in failed]
    value: dict[str, Json] = {
        "altered": [*done],
        "possible": [] if failed else names,
        "partitions": partitions,
        "configs": dict(configs),
        "warnings": warnings,
    }
    told = [f"Changed {escaped(name)}." for name in done]
    if dry_run and not failed:
        told = [f"Would change {escaped(name)}." for name in names]
    return Result(value, told, [failure_of(error, name) for name, error in failed.items()])


async def _alter(
    admin: TopicSettingsAdmin,
    names: Sequence[str],
    partitions: int | None,
    configs: Mapping[str, str | None],
    *,
    validate_only: bool,
) -> dict[str, RequestError]:
    """Return the failures by topic."""
    failed: dict[str, RequestError] = {}
    if partitions is not None:
        grown = await admin.create_partitions(
            dict.fromkeys(names, partitions), validate_only=validate_only
        )
        failed |= grown.failed
    if configs:
        told = await admin.alter_configs(
            {ConfigResource.topic(name): configs for name in names if name not in failed},
            validate_only=validate_only,
        )
        failed |= {resource.name: error for resource, error in told.failed.items()}
    return failed


async def deleted(
    session: Session, admin: TopicAdmin, topics: Sequence[str], *, if_exists: bool, yes: bool
) -> Result:
    """Delete topics after confirmation; none if one does not exist."""
    told = await admin.describe_topics(topics)
    absent = [str(name) for name, error in told.failed.items() if error.code in _UNKNOWN]
    failures = [
        failure_of(error, str(name))
        for name, error in told.failed.items()
        if not (if_exists and str(name) in absent)
    ]
    there = [str(name) for name in told.succeeded]
    gone: list[str] = []
    if there and not failures:
        session.confirm(_question(there), yes=yes)
        outcome = await admin.delete_topics(there)
        gone = [str(name) for name in outcome.succeeded]
        failures = [failure_of(error, str(name)) for name, error in outcome.failed.items()]
    missing = absent if if_exists else []
    return Result(
        {"deleted": [*gone], "missing": [*missing]},
        [
            *(f"Deleted {escaped(name)}." for name in gone),
            *(f"{escaped(name)} does not exist." for name in missing),
        ],
        failures,
    )


def _question(names: Sequence[str]) -> str:
    if len(names) == 1:
        asked = f"Delete topic {escaped(names[0])} with all its records?"
    else:
        asked = f"Delete {len(names)} topics with all their records: {escaped(', '.join(names))}?"
    if _OFFSETS_TOPIC in names:
        asked = f"{_OFFSETS_TOPIC} holds the committed offsets of all groups. {asked}"
    return asked


def _warn(warnings: Sequence[str]) -> None:
    for warning in warnings:
        complain(f"warning: {warning}")
