"""ElectLeaders: elect the preferred or an unclean leader of partitions."""

from collections.abc import Sequence

from ottla.protocol.apis import ELECT_LEADERS
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    INT32S,
    Struct,
    array,
    int8,
    int16,
    int32,
    nullable_array,
    nullable_string,
    string,
)


class TopicPartitions(Struct):
    topic: str = string("0+")
    partitions: Sequence[int] = array(INT32S, "0+")


class ElectLeadersRequest(Message, api=ELECT_LEADERS):
    election_type: int = int8("1+", default=0)
    topic_partitions: Sequence[TopicPartitions] | None = nullable_array(TopicPartitions, "0+")
    timeout_ms: int = int32("0+", default=60000)


class PartitionResult(Struct):
    partition_id: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+")


class ReplicaElectionResult(Struct):
    topic: str = string("0+")
    partition_result: Sequence[PartitionResult] = array(PartitionResult, "0+")


class ElectLeadersResponse(Message, api=ELECT_LEADERS):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("1+", default=0)
    replica_election_results: Sequence[ReplicaElectionResult] = array(ReplicaElectionResult, "0+")
