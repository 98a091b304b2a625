"""ExpireDelegationToken: let a token end sooner, or now."""

from ottla.protocol.apis import EXPIRE_DELEGATION_TOKEN
from ottla.protocol.message import Message
from ottla.protocol.schema import int16, int32, int64, octets


class ExpireDelegationTokenRequest(Message, api=EXPIRE_DELEGATION_TOKEN):
    hmac: bytes = octets("0+")
    expiry_time_period_ms: int = int64("0+")


class ExpireDelegationTokenResponse(Message, api=EXPIRE_DELEGATION_TOKEN):
    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")
