"""ConsumerGroupHeartbeat: refused, because consumer groups of KIP-848 are not supported yet.

The API is served so that clients get an error: where it is not advertised, librdkafka looks for
another coordinator forever without a message. Kafka answers the same way where the protocol is
disabled.
"""

from typing import Final

from ottla.errors import ErrorCode
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from ottla.transport.connection import Connection

ONLY_CLASSIC: Final = "this broker supports only classic groups: set group.protocol=classic"


def handle(request: Request, connection: Connection) -> Response:
    """Refuse the request and name the alternative."""
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=int(ErrorCode.UNSUPPORTED_VERSION),
        error_message=ONLY_CLASSIC,
        member_epoch=0,
        heartbeat_interval_ms=0,
    )
