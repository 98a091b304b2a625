"""DescribeClientQuotas: the quotas of users, clients and IP addresses."""

from collections.abc import Sequence

from ottla.protocol.apis import DESCRIBE_CLIENT_QUOTAS
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    Struct,
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    nullable_array,
    nullable_string,
    string,
)


class ComponentData(Struct):
    entity_type: str = string("0+")
    match_type: int = int8("0+")
    match: str | None = nullable_string("0+")


class DescribeClientQuotasRequest(Message, api=DESCRIBE_CLIENT_QUOTAS):
    components: Sequence[ComponentData] = array(ComponentData, "0+")
    strict: bool = boolean("0+")


class EntityData(Struct):
    entity_type: str = string("0+")
    entity_name: str | None = nullable_string("0+")


class ValueData(Struct):
    key: str = string("0+")
    value: float = float64("0+")


class EntryData(Struct):
    entity: Sequence[EntityData] = array(EntityData, "0+")
    values: Sequence[ValueData] = array(ValueData, "0+")


class DescribeClientQuotasResponse(Message, api=DESCRIBE_CLIENT_QUOTAS):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+")
    entries: Sequence[EntryData] | None = nullable_array(EntryData, "0+")
