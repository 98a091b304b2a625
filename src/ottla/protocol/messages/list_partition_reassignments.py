"""ListPartitionReassignments: the reassignments in progress."""

from collections.abc import Sequence

from ottla.protocol.apis import LIST_PARTITION_REASSIGNMENTS
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    INT32S,
    Struct,
    array,
    int16,
    int32,
    nullable_array,
    nullable_string,
    string,
)


class ListPartitionReassignmentsTopics(Struct):
    name: str = string("0+")
    partition_indexes: Sequence[int] = array(INT32S, "0+")


class ListPartitionReassignmentsRequest(Message, api=LIST_PARTITION_REASSIGNMENTS):
    timeout_ms: int = int32("0+", default=60000)
    topics: Sequence[ListPartitionReassignmentsTopics] | None = nullable_array(
        ListPartitionReassignmentsTopics, "0+", default=None
    )


class OngoingPartitionReassignment(Struct):
    partition_index: int = int32("0+")
    replicas: Sequence[int] = array(INT32S, "0+")
    adding_replicas: Sequence[int] = array(INT32S, "0+")
    removing_replicas: Sequence[int] = array(INT32S, "0+")


class OngoingTopicReassignment(Struct):
    name: str = string("0+")
    partitions: Sequence[OngoingPartitionReassignment] = array(OngoingPartitionReassignment, "0+")


class ListPartitionReassignmentsResponse(Message, api=LIST_PARTITION_REASSIGNMENTS):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+")
    topics: Sequence[OngoingTopicReassignment] = array(OngoingTopicReassignment, "0+")
