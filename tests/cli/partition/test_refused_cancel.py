"""`ottla partition cancel` when the controller refuses one of the partitions."""

import asyncio
import json

from cli.ottla_here import ottla_here
from client.scripted_broker import ScriptedBroker
from kafka_tools import Said
from ottla.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

COMPLETE = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def listed(_: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    """Partitions 0 and 1 of orders move from broker 1 to broker 2."""
    moving = [
        OngoingPartitionReassignment(
            partition_index=index, replicas=[2, 1], adding_replicas=[2], removing_replicas=[1]
        )
        for index in (0, 1)
    ]
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        topics=[OngoingTopicReassignment(name="orders", partitions=moving)],
    )


def altered(request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    """The reassignment of partition 1 has completed since it was listed."""
    (topic,) = request.topics
    assert [(one.partition_index, one.replicas) for one in topic.partitions] == [
        (0, None),
        (1, None),
    ]
    done = [
        ReassignablePartitionResponse(partition_index=0, error_code=0, error_message=None),
        ReassignablePartitionResponse(
            partition_index=1, error_code=COMPLETE, error_message=COMPLETE.text
        ),
    ]
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        responses=[ReassignableTopicResponse(name=topic.name, partitions=done)],
    )


async def cancelled(*words: str) -> Said:
    async with ScriptedBroker(
        {
            ListPartitionReassignmentsRequest: listed,
            AlterPartitionReassignmentsRequest: altered,
        }
    ) as broker:
        command = ("partition", "cancel", "--all", "-b", broker.bootstrap_servers, *words)
        return await asyncio.to_thread(ottla_here, *command)


def test_cancel_reports_the_partitions_that_are_refused() -> None:
    why = "orders-1: No reassignment of the partition is in progress. There is nothing to cancel."
    said = asyncio.run(cancelled())
    assert said == Said(1, "Cancelled the reassignment of orders-0.\n", f"ottla: {why}\n")
    said = asyncio.run(cancelled("-o", "json"))
    assert (said.code, said.err) == (1, "")
    assert json.loads(said.out) == {
        "cancelled": ["orders-0"],
        "errors": [{"about": "orders-1", "code": COMPLETE.name, "message": why}],
    }
