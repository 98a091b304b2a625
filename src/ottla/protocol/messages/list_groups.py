"""ListGroups: the groups that a broker coordinates."""

from collections.abc import Sequence

from ottla.protocol.apis import LIST_GROUPS
from ottla.protocol.message import Message
from ottla.protocol.schema import STRINGS, Struct, array, int16, int32, string


class ListGroupsRequest(Message, api=LIST_GROUPS):
    states_filter: Sequence[str] = array(STRINGS, "4+", default=())
    types_filter: Sequence[str] = array(STRINGS, "5+", default=())


class ListedGroup(Struct):
    group_id: str = string("0+")
    protocol_type: str = string("0+")
    group_state: str = string("4+", default="", ignorable=True)
    group_type: str = string("5+", default="", ignorable=True)


class ListGroupsResponse(Message, api=LIST_GROUPS):
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16("0+")
    groups: Sequence[ListedGroup] = array(ListedGroup, "0+")
