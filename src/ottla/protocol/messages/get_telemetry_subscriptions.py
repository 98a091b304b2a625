"""GetTelemetrySubscriptions: the metrics that a broker requests from a client."""

from collections.abc import Sequence

from ottla.ids import Uuid
from ottla.protocol.apis import GET_TELEMETRY_SUBSCRIPTIONS
from ottla.protocol.message import Message
from ottla.protocol.schema import INT8S, STRINGS, array, boolean, int16, int32, uuid


class GetTelemetrySubscriptionsRequest(Message, api=GET_TELEMETRY_SUBSCRIPTIONS):
    client_instance_id: Uuid = uuid("0+")


class GetTelemetrySubscriptionsResponse(Message, api=GET_TELEMETRY_SUBSCRIPTIONS):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    client_instance_id: Uuid = uuid("0+")
    subscription_id: int = int32("0+")
    accepted_compression_types: Sequence[int] = array(INT8S, "0+")
    push_interval_ms: int = int32("0+")
    telemetry_max_bytes: int = int32("0+")
    delta_temporality: bool = boolean("0+")
    requested_metrics: Sequence[str] = array(STRINGS, "0+")
