"""ConsumerGroupHeartbeat: answered by a broker that has no groups of the new protocol (KIP-848).

It is served so that clients are told: where it is not advertised, librdkafka looks for another
coordinator for ever and says nothing. Kafka answers so where that protocol is switched off.
"""

from typing import Final

from ottla.broker.state import BrokerState
from ottla.errors import ErrorCode
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from ottla.transport.connection import Connection

CLASSIC_ALONE: Final = "this broker has classic groups alone: set group.protocol=classic"


def handle(state: BrokerState, request: Request, connection: Connection) -> Response:
    """Refuse it, with what to do instead."""
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=int(ErrorCode.UNSUPPORTED_VERSION),
        error_message=CLASSIC_ALONE,
        member_epoch=0,
        heartbeat_interval_ms=0,
    )
