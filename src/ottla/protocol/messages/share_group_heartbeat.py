"""ShareGroupHeartbeat: join, stay in or leave a share group."""

from collections.abc import Sequence

from ottla.ids import Uuid
from ottla.protocol.apis import SHARE_GROUP_HEARTBEAT
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    INT32S,
    STRINGS,
    Struct,
    array,
    int16,
    int32,
    nullable_array,
    nullable_string,
    nullable_struct,
    string,
    uuid,
)


class ShareGroupHeartbeatRequest(Message, api=SHARE_GROUP_HEARTBEAT):
    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    rack_id: str | None = nullable_string("0+", default=None)
    subscribed_topic_names: Sequence[str] | None = nullable_array(STRINGS, "0+", default=None)


class TopicPartitions(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: Sequence[int] = array(INT32S, "0+")


class Assignment(Struct):
    topic_partitions: Sequence[TopicPartitions] = array(TopicPartitions, "0+")


class ShareGroupHeartbeatResponse(Message, api=SHARE_GROUP_HEARTBEAT):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+", default=None)
    member_id: str | None = nullable_string("0+", default=None)
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    assignment: Assignment | None = nullable_struct(Assignment, "0+", default=None)
