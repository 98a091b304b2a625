"""AlterReplicaLogDirs: move replicas to another data directory of a broker."""

from collections.abc import Sequence

from ottla.protocol.apis import ALTER_REPLICA_LOG_DIRS
from ottla.protocol.message import Message
from ottla.protocol.schema import INT32S, Struct, array, int16, int32, string


class AlterReplicaLogDirTopic(Struct):
    name: str = string("0+")
    partitions: Sequence[int] = array(INT32S, "0+")


class AlterReplicaLogDir(Struct):
    path: str = string("0+")
    topics: Sequence[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic, "0+")


class AlterReplicaLogDirsRequest(Message, api=ALTER_REPLICA_LOG_DIRS):
    dirs: Sequence[AlterReplicaLogDir] = array(AlterReplicaLogDir, "0+")


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = string("0+")
    partitions: Sequence[AlterReplicaLogDirPartitionResult] = array(
        AlterReplicaLogDirPartitionResult, "0+"
    )


class AlterReplicaLogDirsResponse(Message, api=ALTER_REPLICA_LOG_DIRS):
    throttle_time_ms: int = int32("0+")
    results: Sequence[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult, "0+")
