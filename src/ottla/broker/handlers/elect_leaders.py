"""ElectLeaders: elect the preferred leaders, or leaders that may lack records."""

from collections.abc import Iterable, Sequence

from ottla.broker.topics import Topics
from ottla.controller.plan import ElectionOutcome, ElectionType
from ottla.errors import ErrorCode, RequestError
from ottla.ids import PartitionIndex, TopicPartition
from ottla.protocol.conversation import Request
from ottla.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from ottla.transport.connection import Connection, DeferredResponse


def handle(request: Request, connection: Connection, *, topics: Topics) -> DeferredResponse:
    """Elect leaders of the partitions of the request, or of all."""
    message = request.message
    assert isinstance(message, ElectLeadersRequest)
    return DeferredResponse(_answer(message, topics))


async def _answer(message: ElectLeadersRequest, topics: Topics) -> ElectLeadersResponse:
    asked = message.topic_partitions
    try:
        election = ElectionType(message.election_type)
    except ValueError:
        why = f"unknown election type {message.election_type}"
        return refused(asked, ErrorCode.INVALID_REQUEST, why)
    partitions = None if asked is None else [*_partitions(asked)]
    try:
        # As in Kafka, a request for all partitions lists all topics, also without a result. They
        # are read first: the controller may resign during the election.
        names = topics.controller.image.topics if asked is None else ()
        propagation = topics.propagation(message.timeout_ms)
        outcomes = await propagation.carry_out(
            topics.elect_leaders(election, partitions, propagation)
        )
    except RequestError as error:
        return refused(asked, error.code, error.message)
    return _response(outcomes, names)


def refused(
    asked: Sequence[TopicPartitions] | None, code: ErrorCode, why: str | None
) -> ElectLeadersResponse:
    """Return the response to a request that was not carried out."""
    response = _response(
        [ElectionOutcome(*key, code, why) for key in _partitions(asked or ())],
    )
    response.error_code = int(code)
    return response


def _partitions(asked: Iterable[TopicPartitions]) -> Iterable[TopicPartition]:
    return (
        TopicPartition(topic.topic, PartitionIndex(index))
        for topic in asked
        for index in topic.partitions
    )


def _response(
    outcomes: Sequence[ElectionOutcome], names: Iterable[str] = ()
) -> ElectLeadersResponse:
    by_topic: dict[str, list[PartitionResult]] = {name: [] for name in names}
    for one in outcomes:
        failed = one.error is not ErrorCode.NONE
        result = PartitionResult(
            partition_id=one.index,
            error_code=int(one.error),
            error_message=(one.message or one.error.text) if failed else None,
        )
        by_topic.setdefault(one.topic, []).append(result)
    return ElectLeadersResponse(
        throttle_time_ms=0,
        error_code=0,
        replica_election_results=[
            ReplicaElectionResult(topic=name, partition_result=results)
            for name, results in by_topic.items()
        ],
    )
