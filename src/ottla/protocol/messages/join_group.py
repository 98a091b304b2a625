"""JoinGroup: join the next generation of a classic group."""

from collections.abc import Sequence

from ottla.protocol.apis import JOIN_GROUP
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    Struct,
    array,
    boolean,
    int16,
    int32,
    nullable_string,
    octets,
    string,
)


class JoinGroupRequestProtocol(Struct):
    name: str = string("0+")
    metadata: bytes = octets("0+")


class JoinGroupRequest(Message, api=JOIN_GROUP):
    group_id: str = string("0+")
    session_timeout_ms: int = int32("0+")
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("0+")
    group_instance_id: str | None = nullable_string("5+", default=None)
    protocol_type: str = string("0+")
    protocols: Sequence[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol, "0+")
    reason: str | None = nullable_string("8+", default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str = string("0+")
    group_instance_id: str | None = nullable_string("5+", default=None, ignorable=True)
    metadata: bytes = octets("0+")


class JoinGroupResponse(Message, api=JOIN_GROUP):
    throttle_time_ms: int = int32("2+", default=0, ignorable=True)
    error_code: int = int16("0+")
    generation_id: int = int32("0+", default=-1)
    protocol_type: str | None = nullable_string("7+", default=None, ignorable=True)
    protocol_name: str | None = nullable_string("0+", nullable="7+")
    leader: str = string("0+")
    skip_assignment: bool = boolean("9+", default=False)
    member_id: str = string("0+")
    members: Sequence[JoinGroupResponseMember] = array(JoinGroupResponseMember, "0+")
