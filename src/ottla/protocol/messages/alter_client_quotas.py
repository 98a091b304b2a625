"""AlterClientQuotas: set or remove quotas of users, clients and IP addresses."""

from collections.abc import Sequence

from ottla.protocol.apis import ALTER_CLIENT_QUOTAS
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    Struct,
    array,
    boolean,
    float64,
    int16,
    int32,
    nullable_string,
    string,
)


class EntityData(Struct):
    entity_type: str = string("0+")
    entity_name: str | None = nullable_string("0+")


class OpData(Struct):
    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = boolean("0+")


class EntryData(Struct):
    entity: Sequence[EntityData] = array(EntityData, "0+")
    ops: Sequence[OpData] = array(OpData, "0+")


class AlterClientQuotasRequest(Message, api=ALTER_CLIENT_QUOTAS):
    entries: Sequence[EntryData] = array(EntryData, "0+")
    validate_only: bool = boolean("0+")


class AlterClientQuotasResponseEntryData(Struct):
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+")
    entity: Sequence[EntityData] = array(EntityData, "0+")


class AlterClientQuotasResponse(Message, api=ALTER_CLIENT_QUOTAS):
    throttle_time_ms: int = int32("0+")
    entries: Sequence[AlterClientQuotasResponseEntryData] = array(
        AlterClientQuotasResponseEntryData, "0+"
    )
