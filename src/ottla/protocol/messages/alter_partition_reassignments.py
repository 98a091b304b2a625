"""AlterPartitionReassignments: start or cancel reassignments of replicas."""

from collections.abc import Sequence

from ottla.protocol.apis import ALTER_PARTITION_REASSIGNMENTS
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    INT32S,
    Struct,
    array,
    boolean,
    int16,
    int32,
    nullable_array,
    nullable_string,
    string,
)


class ReassignablePartition(Struct):
    partition_index: int = int32("0+")
    replicas: Sequence[int] | None = nullable_array(INT32S, "0+", default=None)


class ReassignableTopic(Struct):
    name: str = string("0+")
    partitions: Sequence[ReassignablePartition] = array(ReassignablePartition, "0+")


class AlterPartitionReassignmentsRequest(Message, api=ALTER_PARTITION_REASSIGNMENTS):
    timeout_ms: int = int32("0+", default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: Sequence[ReassignableTopic] = array(ReassignableTopic, "0+")


class ReassignablePartitionResponse(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+")


class ReassignableTopicResponse(Struct):
    name: str = string("0+")
    partitions: Sequence[ReassignablePartitionResponse] = array(ReassignablePartitionResponse, "0+")


class AlterPartitionReassignmentsResponse(Message, api=ALTER_PARTITION_REASSIGNMENTS):
    throttle_time_ms: int = int32("0+")
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+")
    responses: Sequence[ReassignableTopicResponse] = array(ReassignableTopicResponse, "0+")
