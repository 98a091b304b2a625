"""DescribeTopicPartitions: topics and their partitions, page by page."""

from collections.abc import Sequence

from ottla.ids import Uuid
from ottla.protocol.apis import DESCRIBE_TOPIC_PARTITIONS
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
    nullable_struct,
    string,
    uuid,
)


class TopicRequest(Struct):
    name: str = string("0+")


class Cursor(Struct):
    topic_name: str = string("0+")
    partition_index: int = int32("0+")


class DescribeTopicPartitionsRequest(Message, api=DESCRIBE_TOPIC_PARTITIONS):
    topics: Sequence[TopicRequest] = array(TopicRequest, "0+")
    response_partition_limit: int = int32("0+", default=2000)
    cursor: Cursor | None = nullable_struct(Cursor, "0+", default=None)


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+", default=-1, ignorable=True)
    replica_nodes: Sequence[int] = array(INT32S, "0+")
    isr_nodes: Sequence[int] = array(INT32S, "0+")
    eligible_leader_replicas: Sequence[int] | None = nullable_array(INT32S, "0+", default=None)
    last_known_elr: Sequence[int] | None = nullable_array(INT32S, "0+", default=None)
    offline_replicas: Sequence[int] = array(INT32S, "0+", ignorable=True)


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = int16("0+")
    name: str | None = nullable_string("0+")
    topic_id: Uuid = uuid("0+", ignorable=True)
    is_internal: bool = boolean("0+", default=False, ignorable=True)
    partitions: Sequence[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition, "0+"
    )
    topic_authorized_operations: int = int32("0+", default=-2147483648)


class DescribeTopicPartitionsResponse(Message, api=DESCRIBE_TOPIC_PARTITIONS):
    throttle_time_ms: int = int32("0+", ignorable=True)
    topics: Sequence[DescribeTopicPartitionsResponseTopic] = array(
        DescribeTopicPartitionsResponseTopic, "0+"
    )
    next_cursor: Cursor | None = nullable_struct(Cursor, "0+", default=None)
