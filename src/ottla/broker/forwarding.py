"""Forwards the requests that only the controller can carry out.

Invariant: a client may send an administrative request to any broker. The response comes from the
controller, or says that it could not be reached, for each element of the request.
"""

from collections.abc import Callable
from typing import Any, Final, cast

from ottla.broker.handlers import (
    alter_partition_reassignments,
    elect_leaders,
    list_partition_reassignments,
)
from ottla.broker.large_requests import Handler
from ottla.broker.topics import TIMEOUT_SECONDS_MAX, Topics
from ottla.errors import ErrorCode, RequestError
from ottla.ids import ZERO_UUID
from ottla.protocol import apis
from ottla.protocol.conversation import Request, Response
from ottla.protocol.message import Api, Message
from ottla.protocol.messages import incremental_alter_configs
from ottla.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ottla.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from ottla.transport.broker_channels import ControllerChannel
from ottla.transport.connection import Connection, DeferredResponse, Served
from ottla.transport.failures import TimedOut

TIMEOUT_S: Final = 30.0  # if the request has no longer timeout
RETURN_S: Final = 1.0  # to return a response that the controller sends at the timeout

FORWARDED: Final = frozenset(
    (
        apis.ALTER_CONFIGS,
        apis.ALTER_PARTITION_REASSIGNMENTS,
        apis.CREATE_PARTITIONS,
        apis.CREATE_TOPICS,
        apis.DELETE_TOPICS,
        apis.ELECT_LEADERS,
        apis.INCREMENTAL_ALTER_CONFIGS,
        apis.LIST_PARTITION_REASSIGNMENTS,
    )
)
"""The APIs that only the controller carries out."""


def forwarding(api: Api, handle: Handler, topics: Topics, channel: ControllerChannel) -> Handler:
    """Return a handler that forwards requests while another broker is the controller."""
    if api not in FORWARDED:
        return handle

    def handle_or_forward(request: Request, connection: Connection) -> Served:
        if topics.is_controller:
            return handle(request, connection)
        return DeferredResponse(_forward(request, channel))

    return handle_or_forward


async def _forward(request: Request, channel: ControllerChannel) -> Response:
    message = request.message
    assert isinstance(message, Message)
    try:
        return await channel.ask(message, request.api.response, timeout_s=_timeout_s(message))
    except RequestError as error:
        code = ErrorCode.NOT_CONTROLLER
        if isinstance(error, TimedOut):  # the controller may have carried it out
            code = ErrorCode.REQUEST_TIMED_OUT
        return _REFUSED[type(message)](cast("Any", message), code, str(error))


def _timeout_s(message: Message) -> float:
    timeout_ms: int = getattr(message, "timeout_ms", 0)
    return max(TIMEOUT_S, min(timeout_ms / 1000, TIMEOUT_SECONDS_MAX) + RETURN_S)


def _topics_refused(message: CreateTopicsRequest, code: ErrorCode, why: str) -> Message:
    return CreateTopicsResponse(
        throttle_time_ms=0,
        topics=[
            CreatableTopicResult(name=one.name, error_code=int(code), error_message=why)
            for one in message.topics
        ],
    )


def _deletions_refused(message: DeleteTopicsRequest, code: ErrorCode, why: str) -> Message:
    named = [
        *((name, ZERO_UUID) for name in message.topic_names),
        *((one.name, one.topic_id) for one in message.topics),
    ]
    return DeleteTopicsResponse(
        throttle_time_ms=0,
        responses=[
            DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=int(code), error_message=why
            )
            for name, topic_id in named
        ],
    )


def _partitions_refused(message: CreatePartitionsRequest, code: ErrorCode, why: str) -> Message:
    return CreatePartitionsResponse(
        throttle_time_ms=0,
        results=[
            CreatePartitionsTopicResult(name=one.name, error_code=int(code), error_message=why)
            for one in message.topics
        ],
    )


def _elections_refused(message: ElectLeadersRequest, code: ErrorCode, why: str) -> Message:
    return elect_leaders.refused(message.topic_partitions, code, why)


def _reassignments_refused(
    message: AlterPartitionReassignmentsRequest, code: ErrorCode, why: str
) -> Message:
    return alter_partition_reassignments.refused(message, code, why)


def _list_refused(message: ListPartitionReassignmentsRequest, code: ErrorCode, why: str) -> Message:
    return list_partition_reassignments.refused(code, why)


def _configs_refused(message: AlterConfigsRequest, code: ErrorCode, why: str) -> Message:
    return AlterConfigsResponse(
        throttle_time_ms=0,
        responses=[
            AlterConfigsResourceResponse(
                error_code=int(code),
                error_message=why,
                resource_type=one.resource_type,
                resource_name=one.resource_name,
            )
            for one in message.resources
        ],
    )


def _changes_refused(message: IncrementalAlterConfigsRequest, code: ErrorCode, why: str) -> Message:
    return IncrementalAlterConfigsResponse(
        throttle_time_ms=0,
        responses=[
            incremental_alter_configs.AlterConfigsResourceResponse(
                error_code=int(code),
                error_message=why,
                resource_type=one.resource_type,
                resource_name=one.resource_name,
            )
            for one in message.resources
        ],
    )


_REFUSED: Final[dict[type[Message], Callable[[Any, ErrorCode, str], Message]]] = {
    AlterConfigsRequest: _configs_refused,
    AlterPartitionReassignmentsRequest: _reassignments_refused,
    CreatePartitionsRequest: _partitions_refused,
    CreateTopicsRequest: _topics_refused,
    DeleteTopicsRequest: _deletions_refused,
    ElectLeadersRequest: _elections_refused,
    IncrementalAlterConfigsRequest: _changes_refused,
    ListPartitionReassignmentsRequest: _list_refused,
}
