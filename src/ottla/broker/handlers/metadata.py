"""Metadata: brokers, topics and partition leaders.

The response with all topics is encoded once per image, version and listener, and reused until the
image changes.

A client asks for the leaders as soon as its connection to a killed leader ends, before a new one is
elected. Some clients, such as librdkafka, ask again only a second later. So a response that would
name the old leader waits for the election, at most FAILOVER_SECONDS.

For some seconds, responses list the killed broker although it is not alive. If a response does not
list a broker, librdkafka 2.10 and later forget the leaders that this response gives to the broker's
partitions, and ask again a second later.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Final

from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.effective_config import EffectiveConfig
from ottla.broker.metadata_cache import MetadataCache, MetadataResponseKey
from ottla.broker.topics import TIMEOUT_SECONDS_MAX, Topics
from ottla.clock import Clock
from ottla.cluster.image import Broker, PartitionState, Topic
from ottla.controller.failure_detector import LostBroker
from ottla.errors import ErrorCode, RequestError
from ottla.ids import NO_BROKER, ZERO_UUID, BrokerId, Uuid, topic_name_problem
from ottla.protocol.conversation import LargeRequest, Request, Response
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.primitives import Buffer
from ottla.settings.broker import AUTO_CREATE_TOPICS_ENABLE
from ottla.transport.connection import Connection, DeferredResponse
from ottla.transport.log_rate_limit import LogRateLimit

_LOG = logging.getLogger(__name__)

# All operations on topics and on the cluster as bits of AclOperation: there are no ACLs yet.
TOPIC_OPERATIONS: Final = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS: Final = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))
NOT_ASKED: Final = -(2**31)
FAILOVER_SECONDS: Final = 1.0
"""How long a response waits for new leaders after the connection to the old one has ended."""

LISTED_SECONDS: Final = 3.0
"""How long a response lists a broker whose connection has ended."""

_POLL_SECONDS: Final = 0.01
_BY_ID_SINCE: Final = (
    12  # versions 10 and 11 have the field, but topic ids did not work in Kafka then
)


class MetadataHandler:
    """Describes the cluster, and creates missing topics."""

    def __init__(
        self,
        *,
        settings: EffectiveConfig,
        metadata_cache: MetadataCache,
        topics: Topics,
        scheduler: CooperativeScheduler,
        clock: Clock,
        lost_brokers: Callable[[Iterable[BrokerId]], Mapping[BrokerId, LostBroker]],
    ) -> None:
        """A handler; `lost_brokers` returns which brokers are lost, given those of interest."""
        self._settings = settings
        self._metadata_cache = metadata_cache
        self._topics = topics
        self._scheduler = scheduler
        self._clock = clock
        self._lost_brokers = lost_brokers
        self._log_rate_limit = LogRateLimit()

    def handle(self, request: Request, connection: Connection) -> Response | DeferredResponse:
        """Describe the requested topics or all; missing ones are created if that is enabled."""
        message = request.message
        assert isinstance(message, MetadataRequest)
        if not isinstance(request, LargeRequest):
            lost = self._lost_leaders(message.topics)
            if lost:
                return DeferredResponse(self._after_election(request, connection, lost))
        return self._handle(request, connection)

    def _handle(self, request: Request, connection: Connection) -> Response | DeferredResponse:
        message = request.message
        assert isinstance(message, MetadataRequest)
        asked = message.topics
        if asked is None or (request.version == 0 and not asked):
            return self._all_topics(request, message, connection.listener)
        if request.version < _BY_ID_SINCE and any(
            one.name is None or one.topic_id != ZERO_UUID for one in asked
        ):
            return _refused(asked)
        # A topic is described once, however often it is requested.
        if isinstance(request, LargeRequest):
            return DeferredResponse(self._handle_wide(message, asked, connection.listener))
        asked = list({(one.name, one.topic_id): one for one in asked}.values())
        missing = [one.name for one in asked if self._is_to_be_made(message, one)]
        if missing:
            return DeferredResponse(self._made_first(message, asked, missing, connection.listener))
        topics = [self._described(message, one) for one in asked]
        return self._response(message, topics, connection.listener)

    async def _after_election(
        self, request: Request, connection: Connection, lost: Set[BrokerId]
    ) -> Response | None:
        """Respond when new leaders are elected for the partitions of the lost ones."""
        asked = request.message
        assert isinstance(asked, MetadataRequest)
        clock, cache = self._clock, self._metadata_cache
        deadline_s = clock.elapsed_s() + FAILOVER_SECONDS
        version = cache.image.version
        while clock.elapsed_s() < deadline_s:
            await clock.sleep(_POLL_SECONDS)
            if lost <= self._returned(lost):
                break
            if cache.image.version != version:
                version = cache.image.version
                if not self._leaders(asked.topics) & lost:
                    break
        response = self._handle(request, connection)
        return await response.response if isinstance(response, DeferredResponse) else response

    def _lost_leaders(self, asked: Sequence[MetadataRequestTopic] | None) -> Set[BrokerId]:
        """Return the leaders that were lost a short time ago."""
        brokers = self._metadata_cache.image.brokers
        if len(brokers) <= 1:
            return frozenset()
        # The leaders of all topics are looked up only if a broker is lost.
        leaders = brokers.keys() if asked is None else self._leaders(asked)
        earliest_s = self._clock.elapsed_s() - FAILOVER_SECONDS
        lost = {
            number
            for number, one in self._lost_brokers(leaders).items()
            if one.since_s > earliest_s
        }
        return lost & self._leaders(asked) if lost else lost

    def _returned(self, lost: Set[BrokerId]) -> Set[BrokerId]:
        """Return those of the lost leaders that are registered and accept connections again."""
        registered = self._metadata_cache.image.brokers
        still_lost = self._lost_brokers(())
        return {one for one in lost if one in registered and one not in still_lost}

    def _listed_lost(self) -> tuple[Broker, ...]:
        """Return the brokers to list although they are not alive."""
        alive, earliest_s = (
            self._metadata_cache.image.brokers,
            self._clock.elapsed_s() - LISTED_SECONDS,
        )
        return tuple(
            one.broker
            for number, one in self._lost_brokers(()).items()
            if number not in alive and one.since_s > earliest_s
        )

    def _leaders(self, asked: Sequence[MetadataRequestTopic] | None) -> Set[BrokerId]:
        """Return the leaders of all partitions of the requested topics."""
        image = self._metadata_cache.image
        topics = (
            image.topics.values()
            if asked is None
            else [
                image.topic_of_id(one.topic_id)
                if one.topic_id != ZERO_UUID
                else image.topics.get(one.name or "")
                for one in asked
            ]
        )
        return {one.leader for topic in topics if topic is not None for one in topic.partitions}

    async def _handle_wide(
        self,
        message: MetadataRequest,
        asked: Iterable[MetadataRequestTopic],
        listener: str,
    ) -> Response:
        turns = self._scheduler.new_loop()
        once = {(one.name, one.topic_id): one async for one in turns.over(asked)}.values()
        missing = [one.name async for one in turns.over(once) if self._is_to_be_made(message, one)]
        return await self._made_first(message, once, missing, listener)

    def _all_topics(self, request: Request, message: MetadataRequest, listener: str) -> Response:
        key = MetadataResponseKey(
            request.version,
            listener,
            message.include_topic_authorized_operations,
            message.include_cluster_authorized_operations,
            tuple((one.id, one.epoch) for one in self._listed_lost()),
        )

        def encode() -> Sequence[Buffer]:
            topics = [
                self._topic(message, topic) for topic in self._metadata_cache.image.topics.values()
            ]
            return self._response(message, topics, listener).buffers(request.version)

        return self._metadata_cache.encoded_response(key, encode)

    def _is_to_be_made(self, message: MetadataRequest, asked: MetadataRequestTopic) -> bool:
        name = asked.name
        return (
            message.allow_auto_topic_creation
            and name is not None
            and name not in self._metadata_cache.image.topics
            and asked.topic_id == ZERO_UUID
            and self._settings.broker[AUTO_CREATE_TOPICS_ENABLE]
            and not topic_name_problem(name)
        )

    async def _made_first(
        self,
        message: MetadataRequest,
        asked: Iterable[MetadataRequestTopic],
        missing: Iterable[str | None],
        listener: str,
    ) -> Response:
        failed: dict[str | None, ErrorCode] = {}
        turns = self._scheduler.new_loop()
        until_s = self._clock.elapsed_s() + TIMEOUT_SECONDS_MAX
        async for name in turns.over(missing):
            if self._clock.elapsed_s() > until_s:
                break  # a client asks for the others again
            try:
                await self._topics.create_missing(name or "")
            except RequestError as error:
                self._log_refused(name or "", error)
                failed[name] = _code_for_clients(error)
        described: list[MetadataResponseTopic] = []
        async for one in turns.over(asked):
            topic = self._described(message, one)
            if topic.name in failed and topic.error_code:
                topic.error_code = int(failed[topic.name])
            described.append(topic)
        return self._response(message, described, listener)

    def _log_refused(self, name: str, error: RequestError) -> None:
        """Log a topic that is not created: the response has only the code of the reason."""
        suppressed = self._log_rate_limit.suppressed(name, error.code.name, self._clock.elapsed_s())
        if suppressed is not None:
            about = {"topic": name, "reason": error.message or error.code.text}
            more = {"suppressed": suppressed} if suppressed else {}
            _LOG.warning("topic not created", about | more)

    def _described(
        self, message: MetadataRequest, asked: MetadataRequestTopic
    ) -> MetadataResponseTopic:
        image, by_id = self._metadata_cache.image, asked.topic_id != ZERO_UUID
        topic = image.topic_of_id(asked.topic_id) if by_id else image.topics.get(asked.name or "")
        if topic is not None:
            return self._topic(message, topic)
        if by_id:
            return _unknown(message, None, asked.topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
        if asked.name is None or topic_name_problem(asked.name):
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
            return _unknown(message, asked.name or "", ZERO_UUID, code)
        return _unknown(message, asked.name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _topic(self, message: MetadataRequest, topic: Topic) -> MetadataResponseTopic:
        image = self._metadata_cache.image
        return MetadataResponseTopic(
            error_code=0,
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.internal,
            partitions=[
                _partition(index, partition, image.offline_replicas(topic.name, index, partition))
                for index, partition in enumerate(topic.partitions)
            ],
            topic_authorized_operations=_operations(message),
        )

    def _response(
        self,
        message: MetadataRequest,
        topics: list[MetadataResponseTopic],
        listener: str,
    ) -> MetadataResponse:
        image = self._metadata_cache.image
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(
                    node_id=broker.id,
                    host=broker.addresses[listener].host,
                    port=broker.addresses[listener].port,
                    rack=broker.rack,
                )
                for broker in (*image.brokers.values(), *self._listed_lost())
                if listener in broker.addresses
            ],
            cluster_id=image.cluster_id,
            controller_id=image.controller,
            topics=topics,
            cluster_authorized_operations=CLUSTER_OPERATIONS
            if message.include_cluster_authorized_operations
            else NOT_ASKED,
        )


def _code_for_clients(error: RequestError) -> ErrorCode:
    """Return an error that clients understand: a forbidden name is final, like an invalid one.

    Clients do not expect POLICY_VIOLATION here and would retry until their timeout.
    """
    is_policy = error.code is ErrorCode.POLICY_VIOLATION
    return ErrorCode.INVALID_TOPIC_EXCEPTION if is_policy else error.code


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


def _partition(
    index: int, state: PartitionState, offline: list[BrokerId]
) -> MetadataResponsePartition:
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
