"""UnregisterBroker: remove the registration of a broker."""

from ottla.protocol.apis import UNREGISTER_BROKER
from ottla.protocol.message import Message
from ottla.protocol.schema import int16, int32, nullable_string


class UnregisterBrokerRequest(Message, api=UNREGISTER_BROKER):
    broker_id: int = int32("0+")


class UnregisterBrokerResponse(Message, api=UNREGISTER_BROKER):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+")
