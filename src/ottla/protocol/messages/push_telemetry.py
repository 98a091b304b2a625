"""PushTelemetry: the metrics of a client."""

from ottla.ids import Uuid
from ottla.protocol.apis import PUSH_TELEMETRY
from ottla.protocol.message import Message
from ottla.protocol.schema import boolean, int8, int16, int32, octets, uuid


class PushTelemetryRequest(Message, api=PUSH_TELEMETRY):
    client_instance_id: Uuid = uuid("0+")
    subscription_id: int = int32("0+")
    terminating: bool = boolean("0+")
    compression_type: int = int8("0+")
    metrics: bytes = octets("0+")


class PushTelemetryResponse(Message, api=PUSH_TELEMETRY):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
