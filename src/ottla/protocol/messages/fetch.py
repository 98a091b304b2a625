"""Fetch: read record batches from partitions."""

from collections.abc import Sequence

from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol.apis import FETCH
from ottla.protocol.message import Message
from ottla.protocol.primitives import Buffer
from ottla.protocol.schema import (
    INT32S,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    nullable_array,
    nullable_records,
    nullable_string,
    string,
    tagged_struct,
    uuid,
)


class ReplicaState(Struct):
    replica_id: int = int32("15+", default=-1)
    replica_epoch: int = int64("15+", default=-1)


class FetchPartition(Struct):
    partition: int = int32("0+")
    current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
    fetch_offset: int = int64("0+")
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    partition_max_bytes: int = int32("0+")
    replica_directory_id: Uuid = uuid("17+", default=ZERO_UUID, tag=0, ignorable=True)
    high_watermark: int = int64("18+", default=9223372036854775807, tag=1, ignorable=True)


class FetchTopic(Struct):
    topic: str = string("0-12", default="", ignorable=True)
    topic_id: Uuid = uuid("13+", default=ZERO_UUID, ignorable=True)
    partitions: Sequence[FetchPartition] = array(FetchPartition, "0+")


class ForgottenTopic(Struct):
    topic: str = string("7-12", default="", ignorable=True)
    topic_id: Uuid = uuid("13+", default=ZERO_UUID, ignorable=True)
    partitions: Sequence[int] = array(INT32S, "7+")


class FetchRequest(Message, api=FETCH):
    cluster_id: str | None = nullable_string("12+", default=None, tag=0, ignorable=True)
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState | None = tagged_struct(ReplicaState, "15+", default=None, tag=1)
    max_wait_ms: int = int32("0+")
    min_bytes: int = int32("0+")
    max_bytes: int = int32("3+", default=0x7FFF_FFFF, ignorable=True)
    isolation_level: int = int8("4+", default=0, ignorable=True)
    session_id: int = int32("7+", default=0, ignorable=True)
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    topics: Sequence[FetchTopic] = array(FetchTopic, "0+")
    forgotten_topics_data: Sequence[ForgottenTopic] = array(ForgottenTopic, "7+", default=())
    rack_id: str = string("11+", default="", ignorable=True)


class EpochEndOffset(Struct):
    epoch: int = int32("12+", default=-1)
    end_offset: int = int64("12+", default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("12+", default=-1)
    leader_epoch: int = int32("12+", default=-1)


class SnapshotId(Struct):
    end_offset: int = int64("0+", default=-1)
    epoch: int = int32("0+", default=-1)


class AbortedTransaction(Struct):
    producer_id: int = int64("4+")
    first_offset: int = int64("4+")


class PartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    high_watermark: int = int64("0+")
    last_stable_offset: int = int64("4+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset | None = tagged_struct(
        EpochEndOffset, "12+", default=None, tag=0
    )
    current_leader: LeaderIdAndEpoch | None = tagged_struct(
        LeaderIdAndEpoch, "12+", default=None, tag=1
    )
    snapshot_id: SnapshotId | None = tagged_struct(SnapshotId, "12+", default=None, tag=2)
    aborted_transactions: Sequence[AbortedTransaction] | None = nullable_array(
        AbortedTransaction, "4+", ignorable=True
    )
    preferred_read_replica: int = int32("11+", default=-1)
    records: Buffer | None = nullable_records("0+")


class FetchableTopicResponse(Struct):
    topic: str = string("0-12", default="", ignorable=True)
    topic_id: Uuid = uuid("13+", default=ZERO_UUID, ignorable=True)
    partitions: Sequence[PartitionData] = array(PartitionData, "0+")


class NodeEndpoint(Struct):
    node_id: int = int32("16+")
    host: str = string("16+")
    port: int = int32("16+")
    rack: str | None = nullable_string("16+", default=None)


class FetchResponse(Message, api=FETCH):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("7+", default=0, ignorable=True)
    session_id: int = int32("7+", default=0)
    responses: Sequence[FetchableTopicResponse] = array(FetchableTopicResponse, "0+")
    node_endpoints: Sequence[NodeEndpoint] = array(NodeEndpoint, "16+", default=(), tag=0)
