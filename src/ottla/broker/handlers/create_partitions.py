"""CreatePartitions: increase the partition count of topics."""

from collections import Counter

from ottla.broker.cooperative import CooperativeLoop
from ottla.broker.state import BrokerState
from ottla.cluster.topic_creation import check_added
from ottla.errors import ErrorCode, RequestError
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.transport.connection import Connection, DeferredResponse


def handle(
    state: BrokerState, request: Request, connection: Connection
) -> Response | DeferredResponse:
    """Add partitions to each topic independently."""
    message = request.message
    assert isinstance(message, CreatePartitionsRequest)
    return DeferredResponse(_answer(state, message))


async def _answer(state: BrokerState, message: CreatePartitionsRequest) -> Response:
    topics = state.image.topics
    try:
        check_added(
            (len(topics[one.name].partitions), one.count)
            for one in message.topics
            if one.name in topics
        )
    except RequestError as error:
        refused = [_result(one.name, error.code, error.message) for one in message.topics]
        return CreatePartitionsResponse(throttle_time_ms=0, results=refused)
    names = Counter(topic.name for topic in message.topics)
    results = [
        _result(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        for name, count in names.items()
        if count > 1
    ]
    async for topic in CooperativeLoop(state).over(message.topics):
        if names[topic.name] > 1:
            continue
        try:
            await _grow(state, topic, validate_only=message.validate_only)
        except RequestError as error:
            text = error.message or error.code.text
            results.append(_result(topic.name, error.code, text))
        else:
            results.append(_result(topic.name, ErrorCode.NONE, None))
    return CreatePartitionsResponse(throttle_time_ms=0, results=results)


async def _grow(state: BrokerState, topic: CreatePartitionsTopic, *, validate_only: bool) -> None:
    rows = topic.assignments
    await state.topics.grow(
        topic.name,
        topic.count,
        None if rows is None else [tuple(row.broker_ids) for row in rows],
        validate_only=validate_only,
    )


def _result(name: str, code: ErrorCode, text: str | None) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=int(code), error_message=text)
