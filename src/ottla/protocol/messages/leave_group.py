"""LeaveGroup: members leave a classic group."""

from collections.abc import Sequence

from ottla.protocol.apis import LEAVE_GROUP
from ottla.protocol.message import Message
from ottla.protocol.schema import Struct, array, int16, int32, nullable_string, string


class MemberIdentity(Struct):
    member_id: str = string("3+")
    group_instance_id: str | None = nullable_string("3+", default=None)
    reason: str | None = nullable_string("5+", default=None, ignorable=True)


class LeaveGroupRequest(Message, api=LEAVE_GROUP):
    group_id: str = string("0+")
    member_id: str = string("0-2", default="")
    members: Sequence[MemberIdentity] = array(MemberIdentity, "3+", default=())


class MemberResponse(Struct):
    member_id: str = string("3+")
    group_instance_id: str | None = nullable_string("3+")
    error_code: int = int16("3+")


class LeaveGroupResponse(Message, api=LEAVE_GROUP):
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16("0+")
    members: Sequence[MemberResponse] = array(MemberResponse, "3+", default=())
