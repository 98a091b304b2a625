"""Dispatches requests to handlers.

Invariant: ApiVersions advertises exactly the APIs that have a handler.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from ottla.broker.handlers import (
    alter_configs,
    api_versions,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)
from ottla.broker.large_requests import LargeRequests
from ottla.broker.response_backpressure import may_need_backpressure, response_with_backpressure
from ottla.broker.response_errors import ResponseErrors
from ottla.broker.state import BrokerState
from ottla.metrics import ApiCounts
from ottla.protocol import apis
from ottla.protocol.conversation import LargeRequest, Request, Response
from ottla.protocol.message import Api, Message
from ottla.protocol.schema import Versions
from ottla.transport.connection import Connection, DeferredResponse, Dispatch

Handler = Callable[[BrokerState, Request, Connection], Response | DeferredResponse | None]

HANDLERS: Final[Mapping[Api, Handler]] = {
    apis.ALTER_CONFIGS: alter_configs.handle,
    apis.API_VERSIONS: api_versions.handle,
    apis.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat.handle,
    apis.CREATE_PARTITIONS: create_partitions.handle,
    apis.CREATE_TOPICS: create_topics.handle,
    apis.DELETE_GROUPS: delete_groups.handle,
    apis.DELETE_RECORDS: delete_records.handle,
    apis.DELETE_TOPICS: delete_topics.handle,
    apis.DESCRIBE_CLUSTER: describe_cluster.handle,
    apis.DESCRIBE_CONFIGS: describe_configs.handle,
    apis.DESCRIBE_GROUPS: describe_groups.handle,
    apis.DESCRIBE_LOG_DIRS: describe_log_dirs.handle,
    apis.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions.handle,
    apis.FETCH: fetch.handle,
    apis.FIND_COORDINATOR: find_coordinator.handle,
    apis.HEARTBEAT: heartbeat.handle,
    apis.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs.handle,
    apis.INIT_PRODUCER_ID: init_producer_id.handle,
    apis.JOIN_GROUP: join_group.handle,
    apis.LEAVE_GROUP: leave_group.handle,
    apis.LIST_GROUPS: list_groups.handle,
    apis.LIST_OFFSETS: list_offsets.handle,
    apis.METADATA: metadata.handle,
    apis.OFFSET_COMMIT: offset_commit.handle,
    apis.OFFSET_DELETE: offset_delete.handle,
    apis.OFFSET_FETCH: offset_fetch.handle,
    apis.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.handle,
    apis.PRODUCE: produce.handle,
    apis.SYNC_GROUP: sync_group.handle,
}


def served() -> dict[int, Versions]:
    """Return the versions that the broker accepts, by API key."""
    return {
        api.key: Versions(api.versions.low, min(api.versions.high, api.advertised.high))
        for api in HANDLERS
    }


_COUNT_THEIR_ERRORS: Final = frozenset((apis.PRODUCE.key, apis.FETCH.key))
"""Frequent requests with many partitions; their handlers count errors as they set them."""


def dispatcher(state: BrokerState) -> Dispatch:
    """Return a function that dispatches requests to their handlers and counts them."""
    handlers = {api.key: (handler, state.requests[api.key]) for api, handler in HANDLERS.items()}
    elapsed_s = state.clock.elapsed_s
    errors = ResponseErrors()

    def codes(request: Request, answer: Message) -> Iterable[int]:
        return () if request.api.key in _COUNT_THEIR_ERRORS else errors.of(answer)

    wide = LargeRequests(state, codes)

    def note(key: int, counts: ApiCounts, began_s: float, answer: Response | None) -> None:
        counts.note(elapsed_s() - began_s)
        if key not in _COUNT_THEIR_ERRORS and isinstance(answer, Message):
            for code in errors.of(answer):
                counts.note_error(code)

    def made(
        handler: Handler, request: Request, connection: Connection
    ) -> Response | DeferredResponse | None:
        if isinstance(request, LargeRequest):
            return DeferredResponse(wide.answer(request, connection, handler))
        return handler(state, request, connection)

    def dispatch(request: Request, connection: Connection) -> Response | DeferredResponse | None:
        key = request.api.key
        handler, counts = handlers[key]
        began_s = elapsed_s()
        if key in _COUNT_THEIR_ERRORS and type(request) is Request:
            # The fast path of Produce and Fetch.
            answer = handler(state, request, connection)
            if type(answer) is not DeferredResponse:
                counts.note(elapsed_s() - began_s)
                return answer
        elif may_need_backpressure(request, connection):
            make = partial(made, handler, request, connection)
            answer = DeferredResponse(response_with_backpressure(state, request, connection, make))
        else:
            answer = made(handler, request, connection)
        if isinstance(answer, DeferredResponse):
            answer.on_response = partial(note, key, counts, began_s)
        else:
            note(key, counts, began_s, answer)
        return answer

    return dispatch
