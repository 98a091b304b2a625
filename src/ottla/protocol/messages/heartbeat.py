"""Heartbeat: keep the membership in a classic group alive."""

from ottla.protocol.apis import HEARTBEAT
from ottla.protocol.message import Message
from ottla.protocol.schema import int16, int32, nullable_string, string


class HeartbeatRequest(Message, api=HEARTBEAT):
    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = nullable_string("3+", default=None)


class HeartbeatResponse(Message, api=HEARTBEAT):
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16("0+")
