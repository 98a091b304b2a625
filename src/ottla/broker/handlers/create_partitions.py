"""CreatePartitions: increase the partition count of topics."""

from collections import Counter

from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.topics import Topics
from ottla.cluster.topic_creation import check_added
from ottla.controller.propagation import Propagation, Updates
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
    request: Request,
    connection: Connection,
    *,
    metadata_cache: MetadataCache,
    topics: Topics,
    scheduler: CooperativeScheduler,
) -> Response | DeferredResponse:
    """Add partitions to each topic independently."""
    message = request.message
    assert isinstance(message, CreatePartitionsRequest)
    return DeferredResponse(_answer(message, metadata_cache, topics, scheduler))


async def _answer(
    message: CreatePartitionsRequest,
    metadata_cache: MetadataCache,
    topics: Topics,
    scheduler: CooperativeScheduler,
) -> Response:
    existing = metadata_cache.image.topics
    try:
        check_added(
            (len(existing[one.name].partitions), one.count)
            for one in message.topics
            if one.name in existing
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
    propagation = topics.propagation(message.timeout_ms)
    grown: list[tuple[CreatePartitionsTopicResult, Updates]] = []

    async def grow_all() -> None:
        async for topic in scheduler.new_loop().over(message.topics):
            if names[topic.name] > 1:
                continue
            try:
                await _grow(topics, topic, propagation, validate_only=message.validate_only)
            except RequestError as error:
                text = error.message or error.code.text
                results.append(_result(topic.name, error.code, text))
            else:
                grown.append((_result(topic.name, ErrorCode.NONE, None), propagation.late))
                results.append(grown[-1][0])

    await propagation.carry_out(grow_all())
    for result, updates in grown:
        what = f"topic {result.name} has its new partitions"
        if (timed_out := await propagation.timed_out(what, updates)) is not None:
            result.error_code, result.error_message = int(timed_out.code), timed_out.message
    return CreatePartitionsResponse(throttle_time_ms=0, results=results)


async def _grow(
    topics: Topics, topic: CreatePartitionsTopic, propagation: Propagation, *, validate_only: bool
) -> None:
    rows = topic.assignments
    await topics.grow(
        topic.name,
        topic.count,
        None if rows is None else [tuple(row.broker_ids) for row in rows],
        validate_only=validate_only,
        propagation=propagation,
    )


def _result(name: str, code: ErrorCode, text: str | None) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=int(code), error_message=text)
