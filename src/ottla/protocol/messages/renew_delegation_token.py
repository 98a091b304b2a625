"""RenewDelegationToken: let a token live longer."""

from ottla.protocol.apis import RENEW_DELEGATION_TOKEN
from ottla.protocol.message import Message
from ottla.protocol.schema import int16, int32, int64, octets


class RenewDelegationTokenRequest(Message, api=RENEW_DELEGATION_TOKEN):
    hmac: bytes = octets("0+")
    renew_period_ms: int = int64("0+")


class RenewDelegationTokenResponse(Message, api=RENEW_DELEGATION_TOKEN):
    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")
