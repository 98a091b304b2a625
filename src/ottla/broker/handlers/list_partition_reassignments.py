"""ListPartitionReassignments: the reassignments in progress (KIP-455)."""

from collections.abc import Iterable

from ottla.broker.topics import Topics
from ottla.cluster.reassignment import is_reassigning
from ottla.errors import ErrorCode, RequestError
from ottla.ids import PartitionIndex, TopicPartition
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from ottla.transport.connection import Connection


def handle(request: Request, connection: Connection, *, topics: Topics) -> Response:
    """Return the reassignments in progress, all or of some partitions.

    As in Kafka, partitions that are not reassigned, or do not exist, are left out.
    """
    message = request.message
    assert isinstance(message, ListPartitionReassignmentsRequest)
    try:
        controller = topics.controller
    except RequestError as error:
        return refused(error.code, error.message)
    asked: Iterable[TopicPartition] = sorted(controller.reassigning)
    if message.topics is not None:
        asked = (
            TopicPartition(topic.name, PartitionIndex(index))
            for topic in message.topics
            for index in topic.partition_indexes
        )
    by_topic: dict[str, list[OngoingPartitionReassignment]] = {}
    for name, index in asked:
        state = controller.image.state(name, index)
        if state is not None and is_reassigning(state):
            by_topic.setdefault(name, []).append(
                OngoingPartitionReassignment(
                    partition_index=index,
                    replicas=state.replicas,
                    adding_replicas=state.adding,
                    removing_replicas=state.removing,
                )
            )
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        topics=[
            OngoingTopicReassignment(name=name, partitions=partitions)
            for name, partitions in by_topic.items()
        ],
    )


def refused(code: ErrorCode, why: str | None) -> ListPartitionReassignmentsResponse:
    """Return the response to a request that was not carried out."""
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=int(code), error_message=why or code.text, topics=()
    )
