"""CreateTopics: each topic succeeds or fails independently."""

from collections import Counter
from collections.abc import Mapping, Sequence

from ottla.broker.configs import TOPIC_RESOURCE, check_count
from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.effective_config import EffectiveConfig
from ottla.broker.topics import Topics, WantedTopic
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
    results = {
        name: _failed(name, RequestError(ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        for name, count in names.items()
        if count > 1
    }
    once = [one for one in message.topics if names[one.name] == 1]
    try:
        check_made(
            len(one.assignments) or (default if one.num_partitions == UNSET else one.num_partitions)
            for one in once
        )
    except RequestError as error:
        results |= {one.name: _failed(one.name, error) for one in once}
        return CreateTopicsResponse(throttle_time_ms=0, topics=[*results.values()])
    propagation = topics.propagation(message.timeout_ms)
    late: dict[str, Updates] = {}  # what to wait for, by created topic
    turns = scheduler.new_loop()

    async def create_all() -> None:
        wanted: list[WantedTopic] = []
        async for topic in turns.over(once):
            try:
                wanted.append(_wanted(topic))
            except RequestError as error:
                results[topic.name] = _failed(topic.name, error)
        while wanted:
            outcomes = await _created(topics, wanted, propagation, message.validate_only)
            async for one, made in turns.over(zip(wanted, outcomes, strict=False)):
                name = one.asked.name
                if isinstance(made, RequestError):
                    results[name] = _failed(name, made)
                    continue
                results[name] = _made(
                    settings, made, {**one.values, **topics.required_config(name)}
                )
                late[name] = propagation.late
            wanted = wanted[len(outcomes) :]

    await propagation.carry_out(create_all())
    for name, updates in late.items():
        error = await propagation.timed_out(f"topic {name} is created", updates)
        if error is not None:
            results[name] = _failed(name, error)
    return CreateTopicsResponse(throttle_time_ms=0, topics=[results[name] for name in names])


async def _created(
    topics: Topics, wanted: Sequence[WantedTopic], propagation: Propagation, validate_only: bool
) -> Sequence[Topic | RequestError]:
    """Create the first of these topics; a refusal as a whole is the outcome of all."""
    try:
        return await topics.create_some(
            wanted, validate_only=validate_only, propagation=propagation
        )
    except RequestError as error:
        return [error] * len(wanted)


def _wanted(topic: CreatableTopic) -> WantedTopic:
    asked = AskedTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        _assignment(topic),
    )
    check_count(TOPIC_RESOURCE, topic.configs)
    values = {one.name: one.value for one in topic.configs}
    given = {name: value for name, value in values.items() if value is not None}
    if len(given) < len(values):
        missing = sorted(set(values) - set(given))
        raise RequestError(
            ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {missing}"
        )
    return WantedTopic(asked, given)


def _assignment(topic: CreatableTopic) -> dict[int, tuple[int, ...]]:
    rows = {one.partition_index: tuple(one.broker_ids) for one in topic.assignments}
    if len(rows) < len(topic.assignments):
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Found multiple manual partition assignments."
        )
    return rows


def _made(settings: EffectiveConfig, made: Topic, given: Mapping[str, str]) -> CreatableTopicResult:
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
