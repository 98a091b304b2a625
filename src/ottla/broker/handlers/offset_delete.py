"""OffsetDelete: offsets of a group are to go."""

from ottla.broker.state import BrokerState
from ottla.errors import ErrorCode, RequestError
from ottla.groups.answers import PartitionErrors
from ottla.groups.events import DeleteOffsets
from ottla.ids import PartitionIndex, TopicPartition
from ottla.protocol.conversation import Answer, Request
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.transport.connection import Connection, Later


def handle(state: BrokerState, request: Request, connection: Connection) -> Answer | Later:
    """Delete what a group has committed for partitions that it does not read."""
    message = request.message
    assert isinstance(message, OffsetDeleteRequest)
    return Later(_answer(state, message))


async def _answer(state: BrokerState, message: OffsetDeleteRequest) -> Answer:
    asked = [
        TopicPartition(topic.name, PartitionIndex(one.partition_index))
        for topic in message.topics
        for one in topic.partitions
    ]
    known = [one for one in asked if state.image.state(*one) is not None]
    try:
        answer = await state.coordinator(message.group_id).ask(
            lambda token: DeleteOffsets(token, message.group_id, tuple(known))
        )
    except RequestError as error:
        answer = PartitionErrors(error.code)
    assert isinstance(answer, PartitionErrors)
    if answer.error:
        return OffsetDeleteResponse(error_code=int(answer.error), throttle_time_ms=0, topics=[])
    codes = dict.fromkeys(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) | dict(answer.partitions)
    return OffsetDeleteResponse(
        error_code=0,
        throttle_time_ms=0,
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=one.partition_index,
                        error_code=int(
                            codes[TopicPartition(topic.name, PartitionIndex(one.partition_index))]
                        ),
                    )
                    for one in topic.partitions
                ],
            )
            for topic in message.topics
        ],
    )
