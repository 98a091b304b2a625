"""AlterPartitionReassignments: move partitions to other brokers, or cancel this (KIP-455)."""

from collections.abc import Iterator, Mapping, Sequence

from ottla.broker.topics import Topics
from ottla.controller.plan import ReassignmentOutcome
from ottla.errors import ErrorCode, RequestError
from ottla.ids import PartitionIndex, TopicPartition
from ottla.protocol.conversation import Request
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.transport.connection import Connection, DeferredResponse


def handle(request: Request, connection: Connection, *, topics: Topics) -> DeferredResponse:
    """Begin or cancel reassignments, and answer when that is stored."""
    message = request.message
    assert isinstance(message, AlterPartitionReassignmentsRequest)
    return DeferredResponse(_answer(message, topics))


async def _answer(
    message: AlterPartitionReassignmentsRequest, topics: Topics
) -> AlterPartitionReassignmentsResponse:
    try:
        outcomes = await topics.alter_reassignments(
            dict(_targets(message)), can_change_factor=message.allow_replication_factor_change
        )
    except RequestError as error:
        return refused(message, error.code, error.message)
    return _response(message, outcomes)


def refused(
    message: AlterPartitionReassignmentsRequest, code: ErrorCode, why: str | None
) -> AlterPartitionReassignmentsResponse:
    """Return the response to a request that was not carried out."""
    response = _response(
        message, {key: ReassignmentOutcome(*key, code, why) for key, _ in _targets(message)}
    )
    response.error_code, response.error_message = int(code), why or code.text
    return response


def _targets(
    message: AlterPartitionReassignmentsRequest,
) -> Iterator[tuple[TopicPartition, Sequence[int] | None]]:
    for topic in message.topics:
        for one in topic.partitions:
            yield TopicPartition(topic.name, PartitionIndex(one.partition_index)), one.replicas


def _response(
    message: AlterPartitionReassignmentsRequest,
    outcomes: Mapping[TopicPartition, ReassignmentOutcome],
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=message.allow_replication_factor_change,
        error_code=0,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _partition(outcomes[TopicPartition(topic.name, one.partition_index)])
                    for one in topic.partitions
                ],
            )
            for topic in message.topics
        ],
    )


def _partition(outcome: ReassignmentOutcome) -> ReassignablePartitionResponse:
    failed = outcome.error is not ErrorCode.NONE
    return ReassignablePartitionResponse(
        partition_index=outcome.index,
        error_code=int(outcome.error),
        error_message=(outcome.message or outcome.error.text) if failed else None,
    )
