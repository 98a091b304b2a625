"""Topic descriptions from the two requests that return them.

Invariant: a topic in several pages is described once, with its partitions in order.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ottla.client.admin.operations import Operation, operations
from ottla.client.admin.topic_list import topic_id
from ottla.client.calls.results import or_none, refused
from ottla.errors import RequestError
from ottla.ids import Uuid
from ottla.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition and its replicas."""

    index: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]
    eligible_leaders: tuple[int, ...] | None = None
    """Out of sync but eligible as leader (KIP-966); None if the broker does not return it."""

    last_known_leaders: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and its partitions."""

    name: str
    id: Uuid | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    operations: frozenset[Operation] | None = None
    """The operations that the caller may perform; None if not requested or not returned."""


def page_request(topics: Iterable[str], cursor: Cursor | None) -> DescribeTopicPartitionsRequest:
    """Build DescribeTopicPartitions from a cursor on."""
    return DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in sorted(topics)], cursor=cursor
    )


def paged(
    pages: Iterable[DescribeTopicPartitionsResponse],
) -> dict[str, TopicDescription | RequestError]:
    """Return the topics of all pages."""
    firsts: dict[str, DescribeTopicPartitionsResponseTopic] = {}
    partitions: dict[str, list[PartitionDescription]] = {}
    for page in pages:
        for topic in page.topics:
            name = topic.name or ""
            firsts.setdefault(name, topic)
            partitions.setdefault(name, []).extend(map(_paged_partition, topic.partitions))
    return {
        name: refused(first.error_code, name) or _description(first, partitions[name])
        for name, first in firsts.items()
    }


def metadata_request(
    topics: Sequence[str | Uuid], version: int, *, include_operations: bool
) -> MetadataRequest:
    """Build Metadata for topics by name or id."""
    return MetadataRequest(
        topics=[
            MetadataRequestTopic(name=None, topic_id=key)
            if isinstance(key, Uuid)
            else MetadataRequestTopic(name=key)
            for key in topics
        ],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=include_operations and version >= 8,
    )


def described(
    keys: Iterable[str | Uuid], answer: MetadataResponse
) -> dict[str | Uuid, TopicDescription | RequestError]:
    """Return the requested topics, by their keys in the request."""
    told: dict[str | Uuid, TopicDescription | RequestError] = {}
    wanted = {*keys}
    for topic in answer.topics:
        by_id = topic.topic_id in wanted
        key = topic.topic_id if by_id else topic.name or ""
        told[key] = refused(topic.error_code, key) or _description(
            topic, map(_partition, topic.partitions)
        )
    return told


def _description(
    topic: MetadataResponseTopic | DescribeTopicPartitionsResponseTopic,
    partitions: Iterable[PartitionDescription],
) -> TopicDescription:
    return TopicDescription(
        topic.name or "",
        topic_id(topic.topic_id),
        topic.is_internal,
        tuple(sorted(partitions, key=lambda one: one.index)),
        operations(topic.topic_authorized_operations),
    )


def _partition(
    told: MetadataResponsePartition | DescribeTopicPartitionsResponsePartition,
) -> PartitionDescription:
    return PartitionDescription(
        told.partition_index,
        or_none(told.leader_id),
        or_none(told.leader_epoch),
        tuple(told.replica_nodes),
        tuple(told.isr_nodes),
        tuple(told.offline_replicas),
    )


def _paged_partition(told: DescribeTopicPartitionsResponsePartition) -> PartitionDescription:
    eligible, last_known = told.eligible_leader_replicas, told.last_known_elr
    return replace(
        _partition(told),
        eligible_leaders=None if eligible is None else tuple(eligible),
        last_known_leaders=None if last_known is None else tuple(last_known),
    )
