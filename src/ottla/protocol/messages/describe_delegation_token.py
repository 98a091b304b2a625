"""DescribeDelegationToken: the tokens of owners."""

from collections.abc import Sequence

from ottla.protocol.apis import DESCRIBE_DELEGATION_TOKEN
from ottla.protocol.message import Message
from ottla.protocol.schema import Struct, array, int16, int32, int64, nullable_array, octets, string


class DescribeDelegationTokenOwner(Struct):
    principal_type: str = string("0+")
    principal_name: str = string("0+")


class DescribeDelegationTokenRequest(Message, api=DESCRIBE_DELEGATION_TOKEN):
    owners: Sequence[DescribeDelegationTokenOwner] | None = nullable_array(
        DescribeDelegationTokenOwner, "0+"
    )


class DescribedDelegationTokenRenewer(Struct):
    principal_type: str = string("0+")
    principal_name: str = string("0+")


class DescribedDelegationToken(Struct):
    principal_type: str = string("0+")
    principal_name: str = string("0+")
    token_requester_principal_type: str = string("3+", default="")
    token_requester_principal_name: str = string("3+", default="")
    issue_timestamp: int = int64("0+")
    expiry_timestamp: int = int64("0+")
    max_timestamp: int = int64("0+")
    token_id: str = string("0+")
    hmac: bytes = octets("0+")
    renewers: Sequence[DescribedDelegationTokenRenewer] = array(
        DescribedDelegationTokenRenewer, "0+"
    )


class DescribeDelegationTokenResponse(Message, api=DESCRIBE_DELEGATION_TOKEN):
    error_code: int = int16("0+")
    tokens: Sequence[DescribedDelegationToken] = array(DescribedDelegationToken, "0+")
    throttle_time_ms: int = int32("0+")
