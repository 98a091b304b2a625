"""SaslHandshake: select the SASL mechanism."""

from collections.abc import Sequence

from ottla.protocol.apis import SASL_HANDSHAKE
from ottla.protocol.message import Message
from ottla.protocol.schema import STRINGS, array, int16, string


class SaslHandshakeRequest(Message, api=SASL_HANDSHAKE):
    mechanism: str = string("0+")


class SaslHandshakeResponse(Message, api=SASL_HANDSHAKE):
    error_code: int = int16("0+")
    mechanisms: Sequence[str] = array(STRINGS, "0+")
