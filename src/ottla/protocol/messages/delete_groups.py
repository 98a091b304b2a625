"""DeleteGroups: delete empty groups."""

from collections.abc import Sequence

from ottla.protocol.apis import DELETE_GROUPS
from ottla.protocol.message import Message
from ottla.protocol.schema import STRINGS, Struct, array, int16, int32, string


class DeleteGroupsRequest(Message, api=DELETE_GROUPS):
    groups_names: Sequence[str] = array(STRINGS, "0+")


class DeletableGroupResult(Struct):
    group_id: str = string("0+")
    error_code: int = int16("0+")


class DeleteGroupsResponse(Message, api=DELETE_GROUPS):
    throttle_time_ms: int = int32("0+")
    results: Sequence[DeletableGroupResult] = array(DeletableGroupResult, "0+")
