"""CreateDelegationToken: a short-lived credential on behalf of a principal."""

from collections.abc import Sequence

from ottla.protocol.apis import CREATE_DELEGATION_TOKEN
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    Struct,
    array,
    int16,
    int32,
    int64,
    nullable_string,
    octets,
    string,
)


class CreatableRenewers(Struct):
    principal_type: str = string("0+")
    principal_name: str = string("0+")


class CreateDelegationTokenRequest(Message, api=CREATE_DELEGATION_TOKEN):
    owner_principal_type: str | None = nullable_string("3+", default="")
    owner_principal_name: str | None = nullable_string("3+", default="")
    renewers: Sequence[CreatableRenewers] = array(CreatableRenewers, "0+")
    max_lifetime_ms: int = int64("0+")


class CreateDelegationTokenResponse(Message, api=CREATE_DELEGATION_TOKEN):
    error_code: int = int16("0+")
    principal_type: str = string("0+")
    principal_name: str = string("0+")
    token_requester_principal_type: str = string("3+", default="")
    token_requester_principal_name: str = string("3+", default="")
    issue_timestamp_ms: int = int64("0+")
    expiry_timestamp_ms: int = int64("0+")
    max_timestamp_ms: int = int64("0+")
    token_id: str = string("0+")
    hmac: bytes = octets("0+")
    throttle_time_ms: int = int32("0+")
