"""SaslAuthenticate: one step of a SASL authentication."""

from ottla.protocol.apis import SASL_AUTHENTICATE
from ottla.protocol.message import Message
from ottla.protocol.schema import int16, int64, nullable_string, octets


class SaslAuthenticateRequest(Message, api=SASL_AUTHENTICATE):
    auth_bytes: bytes = octets("0+")

    def __repr__(self) -> str:
        """Without the bytes, which can contain a password."""
        return f"{type(self).__name__}({len(self.auth_bytes)} bytes)"


class SaslAuthenticateResponse(Message, api=SASL_AUTHENTICATE):
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+")
    auth_bytes: bytes = octets("0+")
    session_lifetime_ms: int = int64("1+", default=0, ignorable=True)
