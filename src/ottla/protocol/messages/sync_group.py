"""SyncGroup: the leader of a classic group sends the assignments, members receive theirs."""

from collections.abc import Sequence

from ottla.protocol.apis import SYNC_GROUP
from ottla.protocol.message import Message
from ottla.protocol.schema import Struct, array, int16, int32, nullable_string, octets, string


class SyncGroupRequestAssignment(Struct):
    member_id: str = string("0+")
    assignment: bytes = octets("0+")


class SyncGroupRequest(Message, api=SYNC_GROUP):
    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = nullable_string("3+", default=None)
    protocol_type: str | None = nullable_string("5+", default=None, ignorable=True)
    protocol_name: str | None = nullable_string("5+", default=None, ignorable=True)
    assignments: Sequence[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment, "0+")


class SyncGroupResponse(Message, api=SYNC_GROUP):
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16("0+")
    protocol_type: str | None = nullable_string("5+", default=None, ignorable=True)
    protocol_name: str | None = nullable_string("5+", default=None, ignorable=True)
    assignment: bytes = octets("0+")
