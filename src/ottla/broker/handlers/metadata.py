"""Metadata: brokers, topics and partition leaders.

The response with all topics is encoded once per image, version and listener, and reused until the
image changes.
"""

import logging
from collections.abc import Iterable
from typing import Final

from ottla.broker.cooperative import CooperativeLoop
from ottla.broker.state import BrokerState
from ottla.cluster.image import PartitionState, Topic
from ottla.errors import ErrorCode, RequestError
from ottla.ids import NO_BROKER, ZERO_UUID, Uuid, topic_name_problem
from ottla.protocol.conversation import LargeRequest, Request, Response
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.settings.broker import AUTO_CREATE_TOPICS_ENABLE
from ottla.transport.connection import Connection, DeferredResponse

_LOG = logging.getLogger(__name__)

# All operations on topics and on the cluster as bits of AclOperation: there are no ACLs yet.
TOPIC_OPERATIONS: Final = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS: Final = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))
NOT_ASKED: Final = -(2**31)
_BY_ID_SINCE: Final = (
    12  # versions 10 and 11 have the field, but topic ids did not work in Kafka then
)


def handle(
    state: BrokerState, request: Request, connection: Connection
) -> Response | DeferredResponse:
    """Describe the requested topics or all; missing ones are created if that is enabled."""
    message = request.message
    assert isinstance(message, MetadataRequest)
    asked = message.topics
    if asked is None or (request.version == 0 and not asked):
        return _all_topics(state, request, message, connection.listener)
    if request.version < _BY_ID_SINCE and any(
        one.name is None or one.topic_id != ZERO_UUID for one in asked
    ):
        return _refused(asked)
    # A topic is described once, however often it is requested.
    if isinstance(request, LargeRequest):
        return DeferredResponse(_handle_wide(state, message, asked, connection.listener))
    asked = list({(one.name, one.topic_id): one for one in asked}.values())
    missing = [one.name for one in asked if _is_to_be_made(state, message, one)]
    if missing:
        return DeferredResponse(_made_first(state, message, asked, missing, connection.listener))
    topics = [_described(state, message, one) for one in asked]
    return _response(state, message, topics, connection.listener)


async def _handle_wide(
    state: BrokerState,
    message: MetadataRequest,
    asked: Iterable[MetadataRequestTopic],
    listener: str,
) -> Response:
    turns = CooperativeLoop(state)
    once = {(one.name, one.topic_id): one async for one in turns.over(asked)}.values()
    missing = [one.name async for one in turns.over(once) if _is_to_be_made(state, message, one)]
    return await _made_first(state, message, once, missing, listener)


def _all_topics(
    state: BrokerState, request: Request, message: MetadataRequest, listener: str
) -> Response:
    key = (
        request.version,
        listener,
        message.include_topic_authorized_operations,
        message.include_cluster_authorized_operations,
    )
    version, written = state.written_metadata
    if version != state.image.version:
        written = {}
        state.written_metadata = (state.image.version, written)
    known = written.get(key)
    if known is None:
        topics = [_topic(state, message, topic) for topic in state.image.topics.values()]
        known = _response(state, message, topics, listener).buffers(request.version)
        written[key] = known
    return known


def _is_to_be_made(
    state: BrokerState, message: MetadataRequest, asked: MetadataRequestTopic
) -> bool:
    name = asked.name
    return (
        message.allow_auto_topic_creation
        and name is not None
        and name not in state.image.topics
        and asked.topic_id == ZERO_UUID
        and state.settings.broker[AUTO_CREATE_TOPICS_ENABLE]
        and not topic_name_problem(name)
    )


async def _made_first(
    state: BrokerState,
    message: MetadataRequest,
    asked: Iterable[MetadataRequestTopic],
    missing: Iterable[str | None],
    listener: str,
) -> Response:
    failed: dict[str | None, ErrorCode] = {}
    turns = CooperativeLoop(state)
    async for name in turns.over(missing):
        try:
            await state.topics.create_missing(name or "")
        except RequestError as error:
            failed[name] = _told(error)
    described: list[MetadataResponseTopic] = []
    async for one in turns.over(asked):
        topic = _described(state, message, one)
        if topic.name in failed and topic.error_code:
            topic.error_code = int(failed[topic.name])
        described.append(topic)
    return _response(state, message, described, listener)


def _told(error: RequestError) -> ErrorCode:
    """Return an error that clients understand: a forbidden name is final, like an invalid one.

    Clients do not expect POLICY_VIOLATION here and would retry until their timeout.
    """
    if error.code is not ErrorCode.POLICY_VIOLATION:
        return error.code
    _LOG.warning("topic not created", {"reason": error.message})
    return ErrorCode.INVALID_TOPIC_EXCEPTION


def _described(
    state: BrokerState, message: MetadataRequest, asked: MetadataRequestTopic
) -> MetadataResponseTopic:
    by_id = asked.topic_id != ZERO_UUID
    topic = (
        state.image.topic_of_id(asked.topic_id)
        if by_id
        else state.image.topics.get(asked.name or "")
    )
    if topic is not None:
        return _topic(state, message, topic)
    if by_id:
        return _unknown(message, None, asked.topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
    if asked.name is None or topic_name_problem(asked.name):
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
        return _unknown(message, asked.name or "", ZERO_UUID, code)
    return _unknown(message, asked.name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _unknown(
    message: MetadataRequest, name: str | None, topic_id: Uuid, code: ErrorCode
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=int(code),
        name=name,
        topic_id=topic_id,
        partitions=[],
        topic_authorized_operations=_operations(message),
    )


def _operations(message: MetadataRequest) -> int:
    return TOPIC_OPERATIONS if message.include_topic_authorized_operations else NOT_ASKED


def _refused(asked: Iterable[MetadataRequestTopic]) -> MetadataResponse:
    code = int(ErrorCode.INVALID_REQUEST)
    topics = [
        MetadataResponseTopic(
            error_code=code, name=one.name or "", topic_id=one.topic_id, partitions=[]
        )
        for one in asked
    ]
    return MetadataResponse(brokers=[], topics=topics, error_code=code)


def _topic(state: BrokerState, message: MetadataRequest, topic: Topic) -> MetadataResponseTopic:
    alive = state.image.brokers
    return MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.internal,
        partitions=[
            _partition(index, partition, [one for one in partition.replicas if one not in alive])
            for index, partition in enumerate(topic.partitions)
        ],
        topic_authorized_operations=_operations(message),
    )


def _partition(index: int, state: PartitionState, offline: list[int]) -> MetadataResponsePartition:
    missing = state.leader == NO_BROKER or state.leader in offline
    return MetadataResponsePartition(
        error_code=int(ErrorCode.LEADER_NOT_AVAILABLE if missing else ErrorCode.NONE),
        partition_index=index,
        leader_id=NO_BROKER if missing else state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=state.replicas,
        isr_nodes=state.in_sync,
        offline_replicas=offline,
    )


def _response(
    state: BrokerState,
    message: MetadataRequest,
    topics: list[MetadataResponseTopic],
    listener: str,
) -> MetadataResponse:
    image = state.image
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=broker.id,
                host=broker.addresses[listener].host,
                port=broker.addresses[listener].port,
                rack=broker.rack,
            )
            for broker in image.brokers.values()
            if listener in broker.addresses
        ],
        cluster_id=image.cluster_id,
        controller_id=image.controller,
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if message.include_cluster_authorized_operations
        else NOT_ASKED,
    )
