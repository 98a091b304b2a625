"""OffsetCommit: how far a group has come."""

from ottla.broker.state import BrokerState
from ottla.errors import ErrorCode, RequestError
from ottla.groups.answers import PartitionErrors
from ottla.groups.effects import RequestToken
from ottla.groups.events import Commit, OffsetToCommit
from ottla.ids import PartitionIndex, TopicPartition
from ottla.protocol.conversation import Answer, Request
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.transport.connection import Connection, Later

_BY_ID = 10  # the version from which topics are named by their ids


def handle(state: BrokerState, request: Request, connection: Connection) -> Answer | Later:
    """Store offsets, each partition that exists."""
    message = request.message
    assert isinstance(message, OffsetCommitRequest)
    return Later(_answer(state, message, request.version))


async def _answer(state: BrokerState, message: OffsetCommitRequest, version: int) -> Answer:
    errors: dict[tuple[int, int], ErrorCode] = {}  # by the place of topic and partition
    places: dict[TopicPartition, list[tuple[int, int]]] = {}
    offsets: list[OffsetToCommit] = []
    for number, topic in enumerate(message.topics):
        for place, one in enumerate(topic.partitions):
            try:
                found = state.topic(topic.name, topic.topic_id if version >= _BY_ID else None)
                if found.partition(one.partition_index) is None:
                    raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            except RequestError as error:
                errors[number, place] = error.code
                continue
            key = TopicPartition(found.name, PartitionIndex(one.partition_index))
            places.setdefault(key, []).append((number, place))
            offsets.append(
                OffsetToCommit(
                    key,
                    one.committed_offset,
                    one.committed_leader_epoch,
                    one.committed_metadata,
                    found.id,
                )
            )
    if offsets or not errors:
        answer = await _commit(state, message, version, tuple(offsets))
        told = dict.fromkeys(places, answer.error) if answer.error else dict(answer.partitions)
        errors |= {place: code for key, code in told.items() for place in places[key]}
    return OffsetCommitResponse(
        topics=[_topic(number, topic, errors) for number, topic in enumerate(message.topics)]
    )


async def _commit(
    state: BrokerState,
    message: OffsetCommitRequest,
    version: int,
    offsets: tuple[OffsetToCommit, ...],
) -> PartitionErrors:
    def event(token: RequestToken) -> Commit:
        return Commit(
            token,
            message.group_id,
            message.member_id,
            message.group_instance_id,
            message.generation_id_or_member_epoch,
            offsets,
            message.retention_time_ms,
            knows_group_id_not_found=version >= 9,
        )

    try:
        answer = await state.coordinator(message.group_id).ask(event)
    except RequestError as error:
        return PartitionErrors(error.code)
    assert isinstance(answer, PartitionErrors)
    return answer


def _topic(
    number: int, topic: OffsetCommitRequestTopic, errors: dict[tuple[int, int], ErrorCode]
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(
                partition_index=one.partition_index,
                error_code=int(errors[number, place]),
            )
            for place, one in enumerate(topic.partitions)
        ],
    )
