"""Users, clients and IP addresses in `kafka-configs`: quotas and SCRAM credentials.

Invariant: one run does not change both quotas and credentials.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Final

from ottla.cli.config.admin import ConfigAdmin
from ottla.cli.kafka.configs.entities import CLIENTS, IPS, USERS, Entities
from ottla.cli.kafka.configs.values import (
    ADDRESS_QUOTAS,
    MECHANISMS,
    QUOTAS,
    credential,
    number,
)
from ottla.cli.kafka.hash_order import in_hash_order
from ottla.cli.kafka.words import words
from ottla.cli.kafka.wrong_use import Illegal
from ottla.client.admin.quotas import Quota, QuotaEntity
from ottla.client.admin.scram_users import (
    ScramMechanism,
    ScramPassword,
    ScramRemoval,
    ScramUserCalls,
)
from ottla.errors import ErrorCode, OttlaError

_MECHANISMS: Final[Mapping[str, ScramMechanism]] = dict(
    zip(MECHANISMS, (ScramMechanism.SHA_256, ScramMechanism.SHA_512), strict=True)
)
_SHOWN: Final = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}


class QuotaAdmin(ConfigAdmin, ScramUserCalls):
    """Admin client for quotas and SCRAM credentials."""


class QuotaTool:
    """`kafka-configs` for entities that have quotas."""

    def __init__(self, admin: QuotaAdmin) -> None:
        self._admin = admin

    @classmethod
    @asynccontextmanager
    async def opened(cls, settings: Mapping[str, str]) -> AsyncGenerator["QuotaTool"]:
        """Open a tool with its own admin client."""
        async with QuotaAdmin(settings) as admin:
            yield cls(admin)

    async def describe(self, found: Entities, *, everything: bool) -> None:
        """Print quotas and, for users, their SCRAM credentials."""
        for whose, values in (await self._quotas(found)).items():
            print(line(whose, values))
        if USERS not in found.kinds or CLIENTS in found.kinds or "" in found.names:
            return
        users = await self._admin.describe_scram_users(found.names or None)
        for user, told in users.succeeded.items():
            shown = ", ".join(f"{_name(one.mechanism)}=iterations={one.iterations}" for one in told)
            print(f"SCRAM credential configs for user-principal '{user}' are {shown}")
        for user, error in users.failed.items():
            if error.code is ErrorCode.RESOURCE_NOT_FOUND:
                continue
            print(
                f"Error retrieving SCRAM credential configs for user-principal '{user}': "
                f"{words(error, user)}"
            )

    async def alter(self, found: Entities, configs: Mapping[str, str], gone: Sequence[str]) -> None:
        """Set and delete quotas or SCRAM credentials."""
        check_names(found, configs, gone)
        if any(one in MECHANISMS for one in (*configs, *gone)):
            await self._alter_passwords(found.names[0], configs, gone)
            return
        present = [*(await self._quotas(found)).values()][:1]
        if unknown := [one for one in gone if not any(one in quotas for quotas in present)]:
            raise Illegal(f"Invalid config(s): {','.join(unknown)}")
        values: dict[str, float | None] = {
            name: number(name, text) for name, text in configs.items()
        }
        whose = _entity(found, Quota.ANY)
        told = await self._admin.alter_quotas({whose: values | dict.fromkeys(gone)})
        for error in told.failed.values():
            raise OttlaError(words(error, whose))

    async def _quotas(self, found: Entities) -> Mapping[QuotaEntity, Mapping[str, float]]:
        if len(found.names) > len(found.kinds):
            raise Illegal("More entity names specified than entity types")
        return await self._admin.describe_quotas(_entity(found, Quota.ANY), strict=True)

    async def _alter_passwords(
        self, user: str, configs: Mapping[str, str], gone: Sequence[str]
    ) -> None:
        changes: list[ScramPassword | ScramRemoval] = [
            ScramRemoval(user, _MECHANISMS[one]) for one in gone
        ]
        for name, text in configs.items():
            iterations, password = credential(name, text)
            changes.append(ScramPassword(user, password, _MECHANISMS[name], iterations))
        for error in (await self._admin.alter_scram_users(changes)).failed.values():
            raise OttlaError(words(error, user))


def _entity(found: Entities, unnamed: Quota) -> QuotaEntity:
    """Return the entity that the flags name; `unnamed` is used for types without a name."""
    names = {
        kind: (found.names[at] or Quota.DEFAULT) if at < len(found.names) else unnamed
        for at, kind in enumerate(found.kinds)
    }
    return QuotaEntity(names.get(USERS), names.get(CLIENTS), names.get(IPS))


def check_names(found: Entities, configs: Mapping[str, str], gone: Sequence[str]) -> None:
    """Check that the entity supports these configs; raises Illegal if it does not."""
    if found.kind == IPS:
        if unknown := [one for one in (*configs, *gone) if one not in ADDRESS_QUOTAS]:
            raise Illegal(
                f"Only connection quota configs can be added for '{IPS}' using "
                f"--bootstrap-server. Unexpected config names: {','.join(unknown)}"
            )
        return
    with_client = CLIENTS in found.kinds
    allowed = QUOTAS if with_client else (*QUOTAS, *MECHANISMS)
    kind = CLIENTS if with_client else USERS
    what = "quota configs" if with_client else "quota and SCRAM credential configs"
    for verb, names, shown in (("added", configs, "Set"), ("deleted", gone, "ArrayBuffer")):
        if unknown := [one for one in names if one not in allowed]:
            raise Illegal(
                f"Only {what} can be {verb} for '{kind}' using --bootstrap-server. "
                f"Unexpected config names: {shown}({', '.join(unknown)})"
            )
    if any(one in MECHANISMS for one in (*configs, *gone)):
        if "" in found.names:
            raise Illegal(
                "The use of --entity-default or --user-defaults is not allowed with User SCRAM "
                "Credentials using --bootstrap-server."
            )
        if any(one in QUOTAS for one in (*configs, *gone)):
            raise Illegal(
                "Cannot alter both quota and SCRAM credential configs simultaneously for "
                f"'{USERS}' using --bootstrap-server."
            )


def line(whose: QuotaEntity, values: Mapping[str, float]) -> str:
    """Return the line of one entity's quotas."""
    parts = (
        f"the default {_SHOWN[kind]}" if isinstance(name, Quota) else f"{_SHOWN[kind]} '{name}'"
        for kind, name in whose.parts()
    )
    names = in_hash_order(values, len(values))
    shown = ", ".join(f"{name}={java_double(values[name])}" for name in names)
    return f"Quota configs for {', '.join(parts)} are {shown}"


def java_double(value: float) -> str:
    """Format a number like Java's Double.toString: with an exponent from ten million on."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    found = Decimal(repr(value)).normalize()
    digits = "".join(map(str, found.as_tuple().digits))
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{found.adjusted()}"


def _name(mechanism: ScramMechanism) -> str:
    return next(name for name, one in _MECHANISMS.items() if one is mechanism)
