"""Describes and changes settings for `ottla config`.

Invariant: secret values are not shown; the cluster does not return them.
"""

from collections.abc import Mapping, Sequence

from ottla.cli.config.admin import ConfigAdmin
from ottla.cli.config.target import Target
from ottla.cli.escapes import escaped
from ottla.cli.failures import Failed
from ottla.cli.output import Json
from ottla.cli.result import Cell, Result, Table
from ottla.client.admin.configs import (
    ConfigCalls,
    ConfigEntry,
    ConfigKind,
    ConfigResource,
    ConfigSource,
)
from ottla.client.admin.quotas import Quota, QuotaEntity

_OWN = {
    ConfigKind.TOPIC: {ConfigSource.TOPIC},
    ConfigKind.GROUP: {ConfigSource.GROUP},
    ConfigKind.BROKER: {ConfigSource.BROKER, ConfigSource.ALL_BROKERS, ConfigSource.FILE},
}


async def described(
    admin: ConfigAdmin, target: Target, names: Sequence[str], *, everything: bool
) -> Result:
    """Return the settings of a resource: those that are set for it, all, or the named ones."""
    if isinstance(target, QuotaEntity):
        return quotas_answer(await admin.describe_quotas(target, strict=True))
    told = await admin.describe_configs(target, names=names or None)
    entries = sorted(told[target].values(), key=lambda one: one.name)
    if missing := {*names} - {one.name for one in entries}:
        raise Failed(f"{target} has no setting {', '.join(sorted(missing))}", "INVALID_CONFIG")
    own = _OWN.get(target.kind, set())
    return configs_answer(
        target, [one for one in entries if everything or names or one.source in own]
    )


def configs_answer(target: ConfigResource, entries: Sequence[ConfigEntry]) -> Result:
    """Return settings as a result."""
    rows: list[tuple[Cell, ...]] = [
        (one.name, "(secret)" if one.is_sensitive else one.value, _source(one), one.is_read_only)
        for one in entries
    ]
    return Result(
        {
            "resource": _resource(target),
            "configs": [
                {
                    "name": one.name,
                    "value": one.value,
                    "source": _source(one),
                    "read_only": one.is_read_only,
                    "sensitive": one.is_sensitive,
                }
                for one in entries
            ],
        },
        [Table(("NAME", "VALUE", "FROM", "READ-ONLY"), rows)]
        if rows
        else [
            (f"{escaped(str(target))} has no settings of its own; --all shows the effective ones.")
        ],
    )


def _source(one: ConfigEntry) -> str:
    return one.source.name.lower()


def _resource(target: ConfigResource) -> dict[str, Json]:
    return {"kind": target.kind.name.lower(), "name": target.name or None}


def quotas_answer(quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> Result:
    """Return quotas as a result."""
    found = sorted(quotas.items(), key=lambda pair: str(pair[0]))
    return Result(
        {
            "quotas": [
                {"entity": _entity(whose), "values": dict(sorted(values.items()))}
                for whose, values in found
            ]
        },
        [
            Table(
                ("WHOSE", "QUOTA", "VALUE"),
                [
                    (str(whose), name, value)
                    for whose, values in found
                    for name, value in sorted(values.items())
                ],
            )
        ]
        if found
        else ["No matching quotas."],
    )


def _entity(whose: QuotaEntity) -> list[dict[str, Json]]:
    """Return the parts of an entity; a null name is the default."""
    return [
        {"kind": kind, "name": None if isinstance(name, Quota) else name}
        for kind, name in whose.parts()
    ]


async def check_unset(admin: ConfigCalls, target: ConfigResource, names: Sequence[str]) -> None:
    """Raise Failed for a setting that does not exist: a cluster would accept removing it."""
    if not names or not target.name:  # of the cluster-wide defaults only set ones are returned
        return
    told = await admin.describe_configs(target, names=names)
    there = told.succeeded.get(
        target, names
    )  # for a resource that is not returned, the change itself reports the error
    if missing := [name for name in names if name not in there]:
        raise Failed(f"{target} has no setting {', '.join(missing)}", "INVALID_CONFIG")


async def changed(
    admin: ConfigAdmin,
    target: Target,
    configs: Mapping[str, str | None],
    quotas: Mapping[str, float | None],
    *,
    dry_run: bool,
) -> Result:
    """Change settings, or quotas for a quota entity; None removes one."""
    if isinstance(target, QuotaEntity):
        outcome = await admin.alter_quotas({target: quotas}, validate_only=dry_run)
        outcome.or_raise()
        about: Json = _entity(target)
        values: Mapping[str, Json] = quotas
    else:
        await check_unset(admin, target, [name for name, one in configs.items() if one is None])
        (await admin.alter_configs({target: configs}, validate_only=dry_run)).or_raise()
        about, values = _resource(target), configs
    verb = "Would change" if dry_run else "Changed"
    return Result(
        {
            "entity" if isinstance(target, QuotaEntity) else "resource": about,
            "changed": not dry_run,
            "values": dict(values),
        },
        [f"{verb} {escaped(', '.join(values))} of {escaped(str(target))}."],
    )
