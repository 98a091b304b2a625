"""Dispatches requests to handlers.

Invariant: ApiVersions advertises exactly the APIs that have a handler. Those of BROKER_HANDLERS are
served, and advertised, only to brokers of the cluster.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from ottla.broker.broker_only import BROKER_ONLY, REFUSABLE, refuse
from ottla.broker.configs import ConfigAdminManager
from ottla.broker.consumer_fetch_path import ConsumerFetchPath
from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.effective_config import EffectiveConfig
from ottla.broker.fetch_sessions import FetchSessions
from ottla.broker.forwarding import forwarding
from ottla.broker.group_coordinator import GroupCoordinators
from ottla.broker.handlers import (
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    api_versions,
    assign_replicas_to_dirs,
    consumer_group_heartbeat,
    controlled_shutdown,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    describe_cluster,
    describe_groups,
    describe_log_dirs,
    describe_topic_partitions,
    elect_leaders,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leader_and_isr,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    offset_commit,
    offset_delete,
    offset_for_leader_epoch,
    sasl_authenticate,
    sasl_handshake,
    stop_replica,
    sync_group,
    update_metadata,
)
from ottla.broker.handlers.delete_topics import DeleteTopicsHandler
from ottla.broker.handlers.describe_configs import DescribeConfigsHandler
from ottla.broker.handlers.fetch import FetchHandler
from ottla.broker.handlers.find_coordinator import FindCoordinatorHandler
from ottla.broker.handlers.metadata import MetadataHandler
from ottla.broker.handlers.offset_fetch import OffsetFetchHandler
from ottla.broker.handlers.produce import ProduceHandler
from ottla.broker.large_requests import Handler, LargeRequests
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.produce_fast_path import ProduceFastPath
from ottla.broker.replica_fetch_path import ReplicaFetchPath
from ottla.broker.replica_manager import ReplicaManager
from ottla.broker.replica_roles import ReplicaRoles
from ottla.broker.request_metrics import RequestMetrics
from ottla.broker.response_backpressure import may_need_backpressure, response_with_backpressure
from ottla.broker.response_errors import ResponseErrors
from ottla.broker.self_balancer import SelfBalancer
from ottla.broker.shutdown import Shutdown
from ottla.broker.topics import Topics
from ottla.broker.traffic_window import TrafficWindow
from ottla.clock import Clock
from ottla.controller.credential import ClusterCredential
from ottla.controller.failure_detector import FailureDetector
from ottla.controller.producer_ids import ProducerIds
from ottla.ids import BrokerId, Uuid
from ottla.metrics import ApiCounts
from ottla.protocol import apis
from ottla.protocol.conversation import LargeRequest, Request, Response
from ottla.protocol.message import Api, Message
from ottla.protocol.schema import Versions
from ottla.transport.broker_channels import BrokerChannels, ControllerChannel
from ottla.transport.connection import Connection, DeferredResponse, Dispatch, Served
from ottla.transport.pending_acks import PendingAck


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerParts:
    """The parts of a broker, from which each handler gets the ones that it names.

    Only the table of handlers and the node that made the parts see all of them.
    """

    node_id: BrokerId
    clock: Clock
    new_id: Callable[[], Uuid]
    settings: EffectiveConfig
    metadata_cache: MetadataCache
    replica_manager: ReplicaManager
    groups: GroupCoordinators
    topics: Topics
    roles: ReplicaRoles
    channels: BrokerChannels
    forward_channel: ControllerChannel
    config_admin: ConfigAdminManager
    fetch_sessions: FetchSessions
    cluster_credential: ClusterCredential
    producer_ids: ProducerIds
    produce_fast_path: ProduceFastPath
    consumer_fetch_path: ConsumerFetchPath
    replica_fetch_path: ReplicaFetchPath
    traffic: TrafficWindow
    self_balancer: SelfBalancer
    request_metrics: RequestMetrics
    scheduler: CooperativeScheduler
    shutdown: Shutdown
    failure_detector: FailureDetector


HANDLERS: Final[dict[Api, Callable[[BrokerParts], Handler]]] = {
    apis.ALTER_CONFIGS: lambda parts: partial(
        alter_configs.handle, config_admin=parts.config_admin, scheduler=parts.scheduler
    ),
    apis.ALTER_PARTITION_REASSIGNMENTS: lambda parts: partial(
        alter_partition_reassignments.handle, topics=parts.topics
    ),
    apis.API_VERSIONS: lambda _: partial(
        api_versions.handle, served=served(), served_to_brokers=served_to_brokers()
    ),
    apis.CONSUMER_GROUP_HEARTBEAT: lambda _: consumer_group_heartbeat.handle,
    apis.CREATE_PARTITIONS: lambda parts: partial(
        create_partitions.handle,
        metadata_cache=parts.metadata_cache,
        topics=parts.topics,
        scheduler=parts.scheduler,
    ),
    apis.CREATE_TOPICS: lambda parts: partial(
        create_topics.handle,
        settings=parts.settings,
        topics=parts.topics,
        scheduler=parts.scheduler,
    ),
    apis.DELETE_GROUPS: lambda parts: partial(
        delete_groups.handle, groups=parts.groups, scheduler=parts.scheduler
    ),
    apis.DELETE_RECORDS: lambda parts: partial(
        delete_records.handle,
        replica_manager=parts.replica_manager,
        scheduler=parts.scheduler,
        shutdown=parts.shutdown,
    ),
    apis.DELETE_TOPICS: lambda parts: (
        DeleteTopicsHandler(
            settings=parts.settings,
            metadata_cache=parts.metadata_cache,
            topics=parts.topics,
            scheduler=parts.scheduler,
        ).handle
    ),
    apis.DESCRIBE_CLUSTER: lambda parts: partial(
        describe_cluster.handle, metadata_cache=parts.metadata_cache
    ),
    apis.DESCRIBE_CONFIGS: lambda parts: (
        DescribeConfigsHandler(
            node_id=parts.node_id,
            settings=parts.settings,
            metadata_cache=parts.metadata_cache,
            scheduler=parts.scheduler,
            channels=parts.channels,
            traffic=parts.traffic,
        ).handle
    ),
    apis.DESCRIBE_GROUPS: lambda parts: partial(
        describe_groups.handle, groups=parts.groups, scheduler=parts.scheduler
    ),
    apis.DESCRIBE_LOG_DIRS: lambda parts: partial(
        describe_log_dirs.handle, settings=parts.settings, replica_manager=parts.replica_manager
    ),
    apis.DESCRIBE_TOPIC_PARTITIONS: lambda parts: partial(
        describe_topic_partitions.handle,
        settings=parts.settings,
        metadata_cache=parts.metadata_cache,
        scheduler=parts.scheduler,
    ),
    apis.ELECT_LEADERS: lambda parts: partial(elect_leaders.handle, topics=parts.topics),
    apis.FETCH: lambda parts: (
        FetchHandler(
            clock=parts.clock,
            settings=parts.settings,
            metadata_cache=parts.metadata_cache,
            replica_manager=parts.replica_manager,
            fetch_sessions=parts.fetch_sessions,
            scheduler=parts.scheduler,
            shutdown=parts.shutdown,
            counts=parts.request_metrics.of(apis.FETCH),
        ).handle
    ),
    apis.FIND_COORDINATOR: lambda parts: (
        FindCoordinatorHandler(
            metadata_cache=parts.metadata_cache, topics=parts.topics, scheduler=parts.scheduler
        ).handle
    ),
    apis.HEARTBEAT: lambda parts: partial(heartbeat.handle, groups=parts.groups),
    apis.INCREMENTAL_ALTER_CONFIGS: lambda parts: partial(
        incremental_alter_configs.handle, config_admin=parts.config_admin, scheduler=parts.scheduler
    ),
    apis.INIT_PRODUCER_ID: lambda parts: partial(
        init_producer_id.handle, producer_ids=parts.producer_ids
    ),
    apis.JOIN_GROUP: lambda parts: partial(
        join_group.handle, groups=parts.groups, new_id=parts.new_id
    ),
    apis.LEAVE_GROUP: lambda parts: partial(leave_group.handle, groups=parts.groups),
    apis.LIST_GROUPS: lambda parts: partial(list_groups.handle, groups=parts.groups),
    apis.LIST_OFFSETS: lambda parts: partial(
        list_offsets.handle, replica_manager=parts.replica_manager, scheduler=parts.scheduler
    ),
    apis.LIST_PARTITION_REASSIGNMENTS: lambda parts: partial(
        list_partition_reassignments.handle, topics=parts.topics
    ),
    apis.METADATA: lambda parts: (
        MetadataHandler(
            settings=parts.settings,
            metadata_cache=parts.metadata_cache,
            topics=parts.topics,
            scheduler=parts.scheduler,
            clock=parts.clock,
            lost_brokers=parts.failure_detector.look,
        ).handle
    ),
    apis.OFFSET_COMMIT: lambda parts: partial(
        offset_commit.handle,
        metadata_cache=parts.metadata_cache,
        groups=parts.groups,
        scheduler=parts.scheduler,
    ),
    apis.OFFSET_DELETE: lambda parts: partial(
        offset_delete.handle,
        metadata_cache=parts.metadata_cache,
        groups=parts.groups,
        scheduler=parts.scheduler,
    ),
    apis.OFFSET_FETCH: lambda parts: (
        OffsetFetchHandler(
            metadata_cache=parts.metadata_cache, groups=parts.groups, scheduler=parts.scheduler
        ).handle
    ),
    apis.OFFSET_FOR_LEADER_EPOCH: lambda parts: partial(
        offset_for_leader_epoch.handle,
        replica_manager=parts.replica_manager,
        scheduler=parts.scheduler,
    ),
    apis.PRODUCE: lambda parts: (
        ProduceHandler(
            clock=parts.clock,
            metadata_cache=parts.metadata_cache,
            replica_manager=parts.replica_manager,
            scheduler=parts.scheduler,
            counts=parts.request_metrics.of(apis.PRODUCE),
            fast_path=parts.produce_fast_path,
        ).handle
    ),
    apis.SASL_AUTHENTICATE: lambda _: sasl_authenticate.handle,
    apis.SASL_HANDSHAKE: lambda parts: partial(
        sasl_handshake.handle, cluster_credential=parts.cluster_credential
    ),
    apis.SYNC_GROUP: lambda parts: partial(sync_group.handle, groups=parts.groups),
}
"""Makes the handler of each API from the parts that it needs, once, when the broker starts."""

BROKER_HANDLERS: Final[dict[Api, Callable[[BrokerParts], Handler]]] = {
    apis.ALTER_PARTITION: lambda parts: partial(alter_partition.handle, topics=parts.topics),
    apis.ASSIGN_REPLICAS_TO_DIRS: lambda parts: partial(
        assign_replicas_to_dirs.handle, topics=parts.topics
    ),
    apis.CONTROLLED_SHUTDOWN: lambda parts: partial(
        controlled_shutdown.handle, topics=parts.topics
    ),
    apis.LEADER_AND_ISR: lambda parts: partial(
        leader_and_isr.handle, roles=parts.roles, metadata_cache=parts.metadata_cache
    ),
    apis.STOP_REPLICA: lambda parts: partial(
        stop_replica.handle, roles=parts.roles, metadata_cache=parts.metadata_cache
    ),
    apis.UPDATE_METADATA: lambda parts: partial(
        update_metadata.handle, roles=parts.roles, metadata_cache=parts.metadata_cache
    ),
}
"""The same for the APIs between brokers; a client gets CLUSTER_AUTHORIZATION_FAILED."""


def served() -> dict[int, Versions]:
    """Return the versions that the broker serves to clients, by API key."""
    return _versions(HANDLERS)


def served_to_brokers() -> dict[int, Versions]:
    """Return the versions that the broker serves to brokers, by API key.

    It accepts these from everybody, so that it can refuse them with an error code.
    """
    return _versions((*HANDLERS, *BROKER_HANDLERS))


def _versions(listed: Iterable[Api]) -> dict[int, Versions]:
    return {
        api.key: Versions(api.versions.low, min(api.versions.high, api.advertised.high))
        for api in listed
    }


_COUNT_THEIR_ERRORS: Final = frozenset((apis.PRODUCE.key, apis.FETCH.key))
"""Frequent requests with many partitions; their handlers count errors as they set them."""


def dispatcher(parts: BrokerParts) -> Dispatch:
    """Return a function that dispatches requests to their handlers and counts them."""
    clock, shutdown, request_metrics = parts.clock, parts.shutdown, parts.request_metrics
    assert HANDLERS.keys().isdisjoint(BROKER_ONLY), "only brokers may send these"
    assert BROKER_HANDLERS.keys() <= BROKER_ONLY & REFUSABLE
    handlers = {
        api.key: (
            forwarding(api, make_handler(parts), parts.topics, parts.forward_channel),
            request_metrics.of(api),
        )
        for api, make_handler in (HANDLERS | BROKER_HANDLERS).items()
    }
    broker_only = frozenset(api.key for api in BROKER_ONLY)
    refuse_client = partial(refuse, scheduler=parts.scheduler)
    elapsed_s = clock.elapsed_s
    errors = ResponseErrors()

    def codes(request: Request, answer: Message) -> Iterable[int]:
        return () if request.api.key in _COUNT_THEIR_ERRORS else errors.of(answer)

    wide = LargeRequests(
        disk=parts.replica_manager.logs.disk, request_metrics=request_metrics, errors=codes
    )

    def note(key: int, counts: ApiCounts, began_s: float, answer: Response | None) -> None:
        counts.note(elapsed_s() - began_s)
        if key not in _COUNT_THEIR_ERRORS and isinstance(answer, Message):
            for code in errors.of(answer):
                counts.note_error(code)

    def made(handler: Handler, request: Request, connection: Connection) -> Served:
        if request.api.key in broker_only and not connection.is_broker:
            handler = refuse_client
        if isinstance(request, LargeRequest):
            return DeferredResponse(wide.answer(request, connection, handler))
        return handler(request, connection)

    def dispatch(request: Request, connection: Connection) -> Served:
        key = request.api.key
        handler, counts = handlers[key]
        began_s = elapsed_s()
        if key in _COUNT_THEIR_ERRORS and type(request) is Request:
            # The fast path of Produce and Fetch.
            answer = handler(request, connection)
            if type(answer) is not DeferredResponse and type(answer) is not PendingAck:
                counts.note(elapsed_s() - began_s)
                return answer
        elif may_need_backpressure(request, connection):
            make = partial(made, handler, request, connection)
            answer = DeferredResponse(
                response_with_backpressure(
                    request, connection, make, clock=clock, shutdown=shutdown
                )
            )
        else:
            answer = made(handler, request, connection)
        if isinstance(answer, DeferredResponse | PendingAck):
            answer.on_response = partial(note, key, counts, began_s)
        else:
            note(key, counts, began_s, answer)
        return answer

    return dispatch
