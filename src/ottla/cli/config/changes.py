"""Settings described and changed as commands ask for it, and what is told of that.

Invariant: a value that is secret is not shown; the cluster does not tell it.
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
    """The settings of one thing: those that somebody gave, all, or those that are named."""
    if isinstance(target, QuotaEntity):
        return quotas_answer(await admin.describe_quotas(target, strict=True))
    told = await admin.describe_configs(target, names=names or None)
    entries = sorted(told[target].values(), key=lambda one: one.name)
    if missing := {*names} - {one.name for one in entries}:
        raise Failed(f"{target} does not have {', '.join(sorted(missing))}", "INVALID_CONFIG")
    own = _OWN.get(target.kind, set())
    return configs_answer(
        target, [one for one in entries if everything or names or one.source in own]
    )


def configs_answer(target: ConfigResource, entries: Sequence[ConfigEntry]) -> Result:
    """Settings for programs and for people."""
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
    """Quotas for programs and for people."""
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
    """Its parts; a name that is null is the default of its kind."""
    return [
        {"kind": kind, "name": None if isinstance(name, Quota) else name}
        for kind, name in whose.parts()
    ]


async def check_unset(admin: ConfigCalls, target: ConfigResource, names: Sequence[str]) -> None:
    """Failed when a setting that is to be unset is none: a cluster takes that for done."""
    if not names or not target.name:  # of all brokers only those are told that are set
        return
    told = await admin.describe_configs(target, names=names)
    there = told.succeeded.get(target, names)  # of what it does not tell the change itself will
    if missing := [name for name in names if name not in there]:
        raise Failed(f"{target} does not have {', '.join(missing)}", "INVALID_CONFIG")


async def changed(
    admin: ConfigAdmin,
    target: Target,
    configs: Mapping[str, str | None],
    quotas: Mapping[str, float | None],
    *,
    dry_run: bool,
) -> Result:
    """Change settings, or quotas if that is what the thing has; None unsets."""
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
