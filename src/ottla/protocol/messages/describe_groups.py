"""DescribeGroups: state, members and assignments of classic groups."""

from collections.abc import Sequence

from ottla.protocol.apis import DESCRIBE_GROUPS
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    STRINGS,
    Struct,
    array,
    boolean,
    int16,
    int32,
    nullable_string,
    octets,
    string,
)


class DescribeGroupsRequest(Message, api=DESCRIBE_GROUPS):
    groups: Sequence[str] = array(STRINGS, "0+")
    include_authorized_operations: bool = boolean("3+", default=False)


class DescribedGroupMember(Struct):
    member_id: str = string("0+")
    group_instance_id: str | None = nullable_string("4+", default=None, ignorable=True)
    client_id: str = string("0+")
    client_host: str = string("0+")
    member_metadata: bytes = octets("0+")
    member_assignment: bytes = octets("0+")


class DescribedGroup(Struct):
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("6+", default=None)
    group_id: str = string("0+")
    group_state: str = string("0+")
    protocol_type: str = string("0+")
    protocol_data: str = string("0+")
    members: Sequence[DescribedGroupMember] = array(DescribedGroupMember, "0+")
    authorized_operations: int = int32("3+", default=-2147483648)


class DescribeGroupsResponse(Message, api=DESCRIBE_GROUPS):
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    groups: Sequence[DescribedGroup] = array(DescribedGroup, "0+")
