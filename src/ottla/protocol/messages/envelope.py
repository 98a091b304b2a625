"""Envelope: a broker forwards a client's request to the controller."""

from ottla.protocol.apis import ENVELOPE
from ottla.protocol.message import Message
from ottla.protocol.schema import int16, nullable_octets, octets


class EnvelopeRequest(Message, api=ENVELOPE):
    request_data: bytes = octets("0+")
    request_principal: bytes | None = nullable_octets("0+")
    client_host_address: bytes = octets("0+")


class EnvelopeResponse(Message, api=ENVELOPE):
    response_data: bytes | None = nullable_octets("0+", default=None)
    error_code: int = int16("0+")
