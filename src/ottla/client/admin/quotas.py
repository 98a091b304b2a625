"""Quotas of users, client ids and IP addresses.

Invariant: an entity has at least one of user, client id and IP; the default entity is not an entity
of that name.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ottla.client.admin.calls import Calls
from ottla.client.arguments import mapping_of
from ottla.client.calls.caller import ApiCall
from ottla.client.calls.results import Results, check, refused
from ottla.errors import RequestError
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from ottla.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from ottla.protocol.messages.describe_client_quotas import EntityData as ToldEntity

_USER, _CLIENT_ID, _IP = "user", "client-id", "ip"
_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2


class Quota(Enum):
    """In place of a name."""

    DEFAULT = "the default for entities without a quota of their own"
    ANY = "every entity, including the default; only to describe quotas"


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """The entity of a quota: a user, a client id, both, or an IP address."""

    user: str | Quota | None = None
    client_id: str | Quota | None = None
    ip: str | Quota | None = None

    def __str__(self) -> str:
        parts = (
            f"{kind} {name if isinstance(name, str) else name.name}" for kind, name in self.parts()
        )
        return ", ".join(parts) or "every entity"

    def parts(self) -> Iterator[tuple[str, str | Quota]]:
        """Its parts, with wire names."""
        for kind, name in ((_USER, self.user), (_CLIENT_ID, self.client_id), (_IP, self.ip)):
            if name is not None:
                yield kind, name


class QuotaCalls(Calls):
    """Calls about quotas."""

    async def describe_quotas(
        self,
        matching: QuotaEntity | None = None,
        *,
        strict: bool = False,
        timeout_s: float | None = None,
    ) -> dict[QuotaEntity, Mapping[str, float]]:
        """Return the quotas of all or matching entities, by quota name.

        A filter on a user also matches quotas of the user with a client id, unless it is strict.
        """
        return await self._asking.one(
            self._asking.to_any,
            lambda _: describe_request(matching or QuotaEntity(), strict=strict),
            DescribeClientQuotasResponse,
            described,
            timeout_s,
        )

    async def alter_quotas(
        self,
        quotas: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> Results[QuotaEntity, None]:
        """Set quotas, as {"producer_byte_rate": 1e6}; None removes one."""
        form = (
            'a mapping of entities such as {QuotaEntity(user="ann"): {"producer_byte_rate": 1e6}}'
        )
        mapping_of(quotas, QuotaEntity, form)
        question = ApiCall[QuotaEntity, AlterClientQuotasResponse, None](
            request=lambda keys, _: alter_request(
                {key: quotas[key] for key in keys}, validate_only=validate_only
            ),
            answer=AlterClientQuotasResponse,
            read=lambda _, answer: altered(answer),
        )
        return await self._asking.many(self._asking.to_controller, quotas, question, timeout_s)


def describe_request(matching: QuotaEntity, *, strict: bool) -> DescribeClientQuotasRequest:
    """Build DescribeClientQuotas."""
    components = [
        ComponentData(
            entity_type=kind,
            match_type=_EXACT if isinstance(name, str) else _MATCH[name],
            match=name if isinstance(name, str) else None,
        )
        for kind, name in matching.parts()
    ]
    return DescribeClientQuotasRequest(components=components, strict=strict)


_MATCH: Final = {Quota.DEFAULT: _DEFAULT, Quota.ANY: _ANY}


def described(answer: DescribeClientQuotasResponse) -> dict[QuotaEntity, Mapping[str, float]]:
    """Return the quotas of each entity."""
    check(answer.error_code, "quotas", answer.error_message)
    return {
        entity(entry.entity): {one.key: one.value for one in entry.values}
        for entry in answer.entries or ()
    }


def entity(told: Sequence[ToldEntity | EntityData]) -> QuotaEntity:
    """Return an entity from the wire."""
    names = {
        one.entity_type: Quota.DEFAULT if one.entity_name is None else one.entity_name
        for one in told
    }
    return QuotaEntity(names.get(_USER), names.get(_CLIENT_ID), names.get(_IP))


def alter_request(
    quotas: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool
) -> AlterClientQuotasRequest:
    """Build AlterClientQuotas."""
    return AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[
                    EntityData(
                        entity_type=kind, entity_name=name if isinstance(name, str) else None
                    )
                    for kind, name in whose.parts()
                ],
                ops=[
                    OpData(key=name, value=value or 0.0, remove=value is None)
                    for name, value in values.items()
                ],
            )
            for whose, values in quotas.items()
        ],
        validate_only=validate_only,
    )


def altered(answer: AlterClientQuotasResponse) -> dict[QuotaEntity, RequestError | None]:
    """Return the result of each entity."""
    return {
        (key := entity(one.entity)): refused(one.error_code, key, one.error_message)
        for one in answer.entries
    }
