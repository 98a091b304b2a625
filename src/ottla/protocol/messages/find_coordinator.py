"""FindCoordinator: the coordinator of a group, a transactional id or a share partition."""

from collections.abc import Sequence

from ottla.protocol.apis import FIND_COORDINATOR
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    STRINGS,
    Struct,
    array,
    int8,
    int16,
    int32,
    nullable_string,
    string,
)


class FindCoordinatorRequest(Message, api=FIND_COORDINATOR):
    key: str = string("0-3", default="")
    key_type: int = int8("1+", default=0)
    coordinator_keys: Sequence[str] = array(STRINGS, "4+", default=())


class Coordinator(Struct):
    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = nullable_string("4+", ignorable=True)


class FindCoordinatorResponse(Message, api=FIND_COORDINATOR):
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16("0-3", default=0)
    error_message: str | None = nullable_string("1-3", default="", ignorable=True)
    node_id: int = int32("0-3", default=0)
    host: str = string("0-3", default="")
    port: int = int32("0-3", default=0)
    coordinators: Sequence[Coordinator] = array(Coordinator, "4+", default=())
