"""Topics: create, delete, list, describe and add partitions.

Invariant: a result has the key of the call, the topic's name or id.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from ottla.client.admin.topic_descriptions import (
    TopicDescription,
    described,
    metadata_request,
    page_request,
    paged,
)
from ottla.client.admin.topic_list import NOT_CREATING, TopicListCalls, topic_id
from ottla.client.arguments import many_of, mapping_of, name_of, settings_of
from ottla.client.calls.caller import ApiCall, Terms
from ottla.client.calls.results import Results, or_none, refused
from ottla.errors import RequestError
from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsResponse,
)
from ottla.protocol.messages.metadata import MetadataResponse
from ottla.transport.failures import NotSupported

_DEFAULTS_SINCE: Final = 4  # the first version of CreateTopics with broker defaults
_IDS_SINCE: Final = 6  # the first version of DeleteTopics with ids
_DESCRIBED_BY_ID: Final = 12  # the first version of Metadata with ids


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; the broker chooses what is None."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    config: Mapping[str, str] = field(default_factory=dict[str, str])
    replicas: Mapping[int, Sequence[int]] | None = None
    """The brokers of each partition instead of the two numbers; the first is preferred."""


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A created topic, as far as the broker returns it."""

    name: str
    id: Uuid | None
    partitions: int | None
    replication_factor: int | None
    config: Mapping[str, str | None] | None
    """None if the caller may not see it."""


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The new partition count of a topic, and the brokers of the new partitions."""

    total: int
    replicas: Sequence[Sequence[int]] | None = None


class TopicCalls(TopicListCalls):
    """Calls about topics."""

    async def create_topics(
        self,
        topics: Iterable[NewTopic],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> Results[str, CreatedTopic]:
        """Create topics, or only validate."""
        listed = many_of(topics, NewTopic, 'a list of topics such as [NewTopic("orders", 3)]')
        wanted = {name_of(topic.name, "a topic"): topic for topic in listed}
        for topic in wanted.values():
            settings_of(topic.config)
        defaults = any(_has_defaults(topic) for topic in wanted.values())
        question = ApiCall(
            request=lambda keys, terms: create_request(
                [wanted[key] for key in keys], terms, validate_only=validate_only
            ),
            answer=CreateTopicsResponse,
            read=lambda _, answer: created(answer),
            since=_DEFAULTS_SINCE if defaults else 0,
        )
        return await self._asking.many(self._asking.to_controller, wanted, question, timeout_s)

    async def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> CreatedTopic:
        """Create one topic."""
        topic = NewTopic(name, partitions, replication_factor, config or {})
        return (await self.create_topics([topic], timeout_s=timeout_s))[name]

    async def delete_topics(
        self, topics: str | Uuid | Iterable[str | Uuid], *, timeout_s: float | None = None
    ) -> Results[str | Uuid, None]:
        """Delete topics by name or id, with all their records."""
        keys = _keys(topics)
        has_ids = any(isinstance(key, Uuid) for key in keys)
        question = ApiCall(
            request=delete_request,
            answer=DeleteTopicsResponse,
            read=deleted,
            since=_IDS_SINCE if has_ids else 0,
        )
        return await self._asking.many(self._asking.to_controller, keys, question, timeout_s)

    async def describe_topics(
        self,
        topics: str | Uuid | Iterable[str | Uuid],
        *,
        include_operations: bool = False,
        timeout_s: float | None = None,
    ) -> Results[str | Uuid, TopicDescription]:
        """Describe topics with their partitions; include_operations adds the allowed operations."""
        asking = self._asking
        deadline_s = asking.deadline_s(timeout_s)
        keys = _keys(topics)
        told: dict[str | Uuid, TopicDescription | RequestError] = {}
        named = [key for key in keys if isinstance(key, str)]
        with suppress(NotSupported):  # older brokers return topics in Metadata
            told.update(await self._paged(named, deadline_s))
        left = [key for key in keys if key not in told]
        question = ApiCall(
            request=lambda keys, terms: metadata_request(
                keys, terms.version, include_operations=include_operations
            ),
            answer=MetadataResponse,
            read=described,
            since=_DESCRIBED_BY_ID if len(named) < len(keys) else NOT_CREATING,
        )
        rest = await asking.many(asking.to_any, left, question, asking.left_s(deadline_s))
        told |= rest.told
        return Results({key: told[key] for key in keys})

    async def _paged(
        self, named: Sequence[str], deadline_s: float
    ) -> Mapping[str, TopicDescription | RequestError]:
        """Describe topics in pages."""
        asking = self._asking
        pages: list[DescribeTopicPartitionsResponse] = []
        cursor: Cursor | None = None
        while named and (not pages or cursor is not None):
            at = cursor
            page = await asking.one(
                asking.to_any,
                lambda _, at=at: page_request(named, at),
                DescribeTopicPartitionsResponse,
                lambda answer: answer,
                asking.left_s(deadline_s),
            )
            pages.append(page)
            cursor = page.next_cursor
        return paged(pages)

    async def describe_topic(
        self, name: str, *, timeout_s: float | None = None
    ) -> TopicDescription:
        """Describe one topic with its partitions."""
        name_of(name, "a topic")
        return (await self.describe_topics(name, timeout_s=timeout_s))[name]

    async def create_partitions(
        self,
        totals: Mapping[str, int | NewPartitions],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> Results[str, None]:
        """Increase the partition counts of topics to these totals."""
        mapping_of(totals, str, 'a mapping of topics such as {"orders": 6}')
        question = ApiCall(
            request=lambda keys, terms: partitions_request(
                {key: totals[key] for key in keys}, terms, validate_only=validate_only
            ),
            answer=CreatePartitionsResponse,
            read=lambda _, answer: {
                one.name: refused(one.error_code, one.name, one.error_message)
                for one in answer.results
            },
        )
        return await self._asking.many(self._asking.to_controller, totals, question, timeout_s)


def _keys(topics: str | Uuid | Iterable[str | Uuid]) -> list[str | Uuid]:
    # A Uuid is bytes, which are iterable too.
    ones = [topics] if isinstance(topics, str | Uuid) else topics
    form = 'the name or the id of a topic, or a list of them such as ["orders"]'
    return [*dict.fromkeys(many_of(ones, (str, Uuid), form))]


def _has_defaults(topic: NewTopic) -> bool:
    return topic.replicas is None and None in (topic.partitions, topic.replication_factor)


def create_request(
    topics: Iterable[NewTopic], terms: Terms, *, validate_only: bool
) -> CreateTopicsRequest:
    """Build CreateTopics."""
    return CreateTopicsRequest(
        topics=[_creatable(topic) for topic in topics],
        timeout_ms=terms.timeout_ms,
        validate_only=validate_only,
    )


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if topic.partitions is None else topic.partitions,
        replication_factor=-1 if topic.replication_factor is None else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=[*brokers])
            for index, brokers in (topic.replicas or {}).items()
        ],
        configs=[
            CreatableTopicConfig(name=name, value=value) for name, value in topic.config.items()
        ],
    )


def created(answer: CreateTopicsResponse) -> dict[str, CreatedTopic | RequestError]:
    """Return the result of each topic."""
    return {
        one.name: refused(one.error_code, one.name, one.error_message) or _created(one)
        for one in answer.topics
    }


def _created(told: CreatableTopicResult) -> CreatedTopic:
    visible = not told.topic_config_error_code and told.configs is not None
    return CreatedTopic(
        told.name,
        topic_id(told.topic_id),
        or_none(told.num_partitions),
        or_none(told.replication_factor),
        {one.name: one.value for one in told.configs or ()} if visible else None,
    )


def delete_request(keys: Sequence[str | Uuid], terms: Terms) -> DeleteTopicsRequest:
    """Build DeleteTopics."""
    if terms.version < _IDS_SINCE:
        return DeleteTopicsRequest(
            topic_names=[str(key) for key in keys], timeout_ms=terms.timeout_ms
        )
    return DeleteTopicsRequest(
        topics=[
            DeleteTopicState(name=None, topic_id=key)
            if isinstance(key, Uuid)
            else DeleteTopicState(name=key, topic_id=ZERO_UUID)
            for key in keys
        ],
        timeout_ms=terms.timeout_ms,
    )


def deleted(
    keys: Sequence[str | Uuid], answer: DeleteTopicsResponse
) -> dict[str | Uuid, RequestError | None]:
    """Return the result of each topic."""
    wanted = {*keys}
    told: dict[str | Uuid, RequestError | None] = {}
    for one in answer.responses:
        key = one.topic_id if one.topic_id in wanted else one.name or ""
        told[key] = refused(one.error_code, key, one.error_message)
    return told


def partitions_request(
    totals: Mapping[str, int | NewPartitions], terms: Terms, *, validate_only: bool
) -> CreatePartitionsRequest:
    """Build CreatePartitions."""
    return CreatePartitionsRequest(
        topics=[_more_partitions(name, wanted) for name, wanted in totals.items()],
        timeout_ms=terms.timeout_ms,
        validate_only=validate_only,
    )


def _more_partitions(name: str, wanted: int | NewPartitions) -> CreatePartitionsTopic:
    more = NewPartitions(wanted) if isinstance(wanted, int) else wanted
    replicas = more.replicas
    return CreatePartitionsTopic(
        name=name,
        count=more.total,
        assignments=None
        if replicas is None
        else [CreatePartitionsAssignment(broker_ids=[*brokers]) for brokers in replicas],
    )
