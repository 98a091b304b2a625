"""DeleteShareGroupOffsets: delete the offsets of a share group for topics."""

from collections.abc import Sequence

from ottla.ids import Uuid
from ottla.protocol.apis import DELETE_SHARE_GROUP_OFFSETS
from ottla.protocol.message import Message
from ottla.protocol.schema import Struct, array, int16, int32, nullable_string, string, uuid


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = string("0+")


class DeleteShareGroupOffsetsRequest(Message, api=DELETE_SHARE_GROUP_OFFSETS):
    group_id: str = string("0+")
    topics: Sequence[DeleteShareGroupOffsetsRequestTopic] = array(
        DeleteShareGroupOffsetsRequestTopic, "0+"
    )


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = string("0+")
    topic_id: Uuid = uuid("0+")
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+", default=None)


class DeleteShareGroupOffsetsResponse(Message, api=DELETE_SHARE_GROUP_OFFSETS):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+", default=None)
    responses: Sequence[DeleteShareGroupOffsetsResponseTopic] = array(
        DeleteShareGroupOffsetsResponseTopic, "0+"
    )
