"""AssignReplicasToDirs: a broker tells the controller in which directories its replicas are.

As in Kafka, the directory id LOST stands for a failed directory. Ottla adds FULL: only brokers of
Ottla send this request to each other.
"""

from collections.abc import Sequence
from typing import Final

from ottla.ids import Uuid
from ottla.protocol.apis import ASSIGN_REPLICAS_TO_DIRS
from ottla.protocol.message import Message
from ottla.protocol.schema import Struct, array, int16, int32, int64, uuid

LOST: Final = Uuid((1).to_bytes(16, "big"))
"""The id of a directory that has failed; Kafka reserves the first 100 ids."""

FULL: Final = Uuid((99).to_bytes(16, "big"))
"""The id of a directory that is full."""


class PartitionData(Struct):
    partition_index: int = int32("0+")


class TopicData(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: Sequence[PartitionData] = array(PartitionData, "0+")


class DirectoryData(Struct):
    id: Uuid = uuid("0+")
    topics: Sequence[TopicData] = array(TopicData, "0+")


class AssignReplicasToDirsRequest(Message, api=ASSIGN_REPLICAS_TO_DIRS):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    directories: Sequence[DirectoryData] = array(DirectoryData, "0+")


class AssignReplicasToDirsResponsePartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class AssignReplicasToDirsResponseTopicData(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: Sequence[AssignReplicasToDirsResponsePartitionData] = array(
        AssignReplicasToDirsResponsePartitionData, "0+"
    )


class AssignReplicasToDirsResponseDirectoryData(Struct):
    id: Uuid = uuid("0+")
    topics: Sequence[AssignReplicasToDirsResponseTopicData] = array(
        AssignReplicasToDirsResponseTopicData, "0+"
    )


class AssignReplicasToDirsResponse(Message, api=ASSIGN_REPLICAS_TO_DIRS):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    directories: Sequence[AssignReplicasToDirsResponseDirectoryData] = array(
        AssignReplicasToDirsResponseDirectoryData, "0+"
    )
