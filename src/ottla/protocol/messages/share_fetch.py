"""ShareFetch: acquire records of a share group, and acknowledge earlier ones."""

from collections.abc import Sequence

from ottla.ids import Uuid
from ottla.protocol.apis import SHARE_FETCH
from ottla.protocol.message import Message
from ottla.protocol.primitives import Buffer
from ottla.protocol.schema import (
    INT8S,
    INT32S,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    nullable_records,
    nullable_string,
    string,
    struct,
    uuid,
)


class AcknowledgementBatch(Struct):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    acknowledge_types: Sequence[int] = array(INT8S, "0+")


class FetchPartition(Struct):
    partition_index: int = int32("0+")
    partition_max_bytes: int = int32("0", default=0)
    acknowledgement_batches: Sequence[AcknowledgementBatch] = array(AcknowledgementBatch, "0+")


class FetchTopic(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: Sequence[FetchPartition] = array(FetchPartition, "0+")


class ForgottenTopic(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: Sequence[int] = array(INT32S, "0+")


class ShareFetchRequest(Message, api=SHARE_FETCH):
    group_id: str | None = nullable_string("0+", default=None)
    member_id: str | None = nullable_string("0+")
    share_session_epoch: int = int32("0+")
    max_wait_ms: int = int32("0+")
    min_bytes: int = int32("0+")
    max_bytes: int = int32("0+", default=0x7FFF_FFFF)
    max_records: int = int32("1+")
    batch_size: int = int32("1+")
    share_acquire_mode: int = int8("2+", default=0, ignorable=True)
    is_renew_ack: bool = boolean("2+", default=False)
    topics: Sequence[FetchTopic] = array(FetchTopic, "0+")
    forgotten_topics_data: Sequence[ForgottenTopic] = array(ForgottenTopic, "0+")


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


class AcquiredRecords(Struct):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_count: int = int16("0+")


class PartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+", default=None)
    acknowledge_error_code: int = int16("0+")
    acknowledge_error_message: str | None = nullable_string("0+", default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "0+")
    records: Buffer | None = nullable_records("0+", nullable="0")
    acquired_records: Sequence[AcquiredRecords] = array(AcquiredRecords, "0+")


class ShareFetchableTopicResponse(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: Sequence[PartitionData] = array(PartitionData, "0+")


class NodeEndpoint(Struct):
    node_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = nullable_string("0+", default=None)


class ShareFetchResponse(Message, api=SHARE_FETCH):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+", default=None)
    acquisition_lock_timeout_ms: int = int32("1+")
    responses: Sequence[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse, "0+")
    node_endpoints: Sequence[NodeEndpoint] = array(NodeEndpoint, "0+")
