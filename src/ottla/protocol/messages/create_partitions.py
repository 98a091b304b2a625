"""CreatePartitions: add partitions to topics."""

from collections.abc import Sequence

from ottla.protocol.apis import CREATE_PARTITIONS
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


class CreatePartitionsAssignment(Struct):
    broker_ids: Sequence[int] = array(INT32S, "0+")


class CreatePartitionsTopic(Struct):
    name: str = string("0+")
    count: int = int32("0+")
    assignments: Sequence[CreatePartitionsAssignment] | None = nullable_array(
        CreatePartitionsAssignment, "0+"
    )


class CreatePartitionsRequest(Message, api=CREATE_PARTITIONS):
    topics: Sequence[CreatePartitionsTopic] = array(CreatePartitionsTopic, "0+")
    timeout_ms: int = int32("0+")
    validate_only: bool = boolean("0+")


class CreatePartitionsTopicResult(Struct):
    name: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+", default=None)


class CreatePartitionsResponse(Message, api=CREATE_PARTITIONS):
    throttle_time_ms: int = int32("0+")
    results: Sequence[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult, "0+")
