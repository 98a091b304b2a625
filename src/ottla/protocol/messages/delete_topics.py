"""DeleteTopics: delete topics by name or id."""

from collections.abc import Sequence

from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol.apis import DELETE_TOPICS
from ottla.protocol.message import Message
from ottla.protocol.schema import STRINGS, Struct, array, int16, int32, nullable_string, uuid


class DeleteTopicState(Struct):
    name: str | None = nullable_string("6+", default=None)
    topic_id: Uuid = uuid("6+")


class DeleteTopicsRequest(Message, api=DELETE_TOPICS):
    topics: Sequence[DeleteTopicState] = array(DeleteTopicState, "6+", default=())
    topic_names: Sequence[str] = array(STRINGS, "0-5", default=(), ignorable=True)
    timeout_ms: int = int32("0+")


class DeletableTopicResult(Struct):
    name: str | None = nullable_string("0+", nullable="6+")
    topic_id: Uuid = uuid("6+", default=ZERO_UUID, ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("5+", default=None, ignorable=True)


class DeleteTopicsResponse(Message, api=DELETE_TOPICS):
    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: Sequence[DeletableTopicResult] = array(DeletableTopicResult, "0+")
