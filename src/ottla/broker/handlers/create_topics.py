"""CreateTopics: each topic succeeds or fails independently."""

from collections import Counter

from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.effective_config import EffectiveConfig
from ottla.broker.topics import Topics
from ottla.cluster.image import Topic
from ottla.cluster.topic_creation import UNSET, AskedTopic, check_made
from ottla.controller.propagation import Propagation, Updates
from ottla.errors import ErrorCode, RequestError
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.settings import broker
from ottla.transport.connection import Connection, DeferredResponse


def handle(
    request: Request,
    connection: Connection,
    *,
    settings: EffectiveConfig,
    topics: Topics,
    scheduler: CooperativeScheduler,
) -> Response | DeferredResponse:
    """Create topics, or with validate_only return what would be created."""
    message = request.message
    assert isinstance(message, CreateTopicsRequest)
    return DeferredResponse(_answer(message, settings, topics, scheduler))


async def _answer(
    message: CreateTopicsRequest,
    settings: EffectiveConfig,
    topics: Topics,
    scheduler: CooperativeScheduler,
) -> Response:
    default = settings.broker[broker.NUM_PARTITIONS]
    names = Counter(topic.name for topic in message.topics)
    results = [
        _failed(name, RequestError(ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        for name, count in names.items()
        if count > 1
    ]
    once = [one for one in message.topics if names[one.name] == 1]
    try:
        check_made(
            len(one.assignments) or (default if one.num_partitions == UNSET else one.num_partitions)
            for one in once
        )
    except RequestError as error:
        results += [_failed(one.name, error) for one in once]
        return CreateTopicsResponse(throttle_time_ms=0, topics=results)
    propagation = topics.propagation(message.timeout_ms)
    created: list[tuple[int, Updates]] = []  # where in the results, and what to wait for

    async def create_all() -> None:
        async for topic in scheduler.new_loop().over(once):
            try:
                result = await _create(
                    settings, topics, topic, propagation, validate_only=message.validate_only
                )
            except RequestError as error:
                results.append(_failed(topic.name, error))
            else:
                created.append((len(results), propagation.late))
                results.append(result)

    await propagation.carry_out(create_all())
    for index, updates in created:
        name = results[index].name
        error = await propagation.timed_out(f"topic {name} is created", updates)
        if error is not None:
            results[index] = _failed(name, error)
    return CreateTopicsResponse(throttle_time_ms=0, topics=results)


async def _create(
    settings: EffectiveConfig,
    topics: Topics,
    topic: CreatableTopic,
    propagation: Propagation,
    *,
    validate_only: bool,
) -> CreatableTopicResult:
    asked = AskedTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        _assignment(topic),
    )
    values = {one.name: one.value for one in topic.configs}
    given = {name: value for name, value in values.items() if value is not None}
    if len(given) < len(values):
        missing = sorted(set(values) - set(given))
        raise RequestError(
            ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {missing}"
        )
    made = await topics.create(asked, given, validate_only=validate_only, propagation=propagation)
    return _made(settings, made, given | topics.required_config(topic.name))


def _assignment(topic: CreatableTopic) -> dict[int, tuple[int, ...]]:
    rows = {one.partition_index: tuple(one.broker_ids) for one in topic.assignments}
    if len(rows) < len(topic.assignments):
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Found multiple manual partition assignments."
        )
    return rows


def _made(settings: EffectiveConfig, made: Topic, given: dict[str, str]) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=made.name,
        topic_id=made.id,
        error_code=0,
        error_message=None,
        num_partitions=len(made.partitions),
        replication_factor=len(made.partitions[0].replicas),
        configs=[
            CreatableTopicConfigs(
                name=one.name,
                value=one.text,
                read_only=False,
                config_source=int(one.source),
                is_sensitive=one.sensitive,
            )
            for one in settings.dynamic_config.describe_topic(settings.checked_overrides(given))
        ],
    )


def _failed(name: str, error: RequestError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=int(error.code), error_message=error.message or error.code.text
    )
