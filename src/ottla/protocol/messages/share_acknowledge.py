"""ShareAcknowledge: accept, release or reject records of a share group."""

from collections.abc import Sequence

from ottla.ids import Uuid
from ottla.protocol.apis import SHARE_ACKNOWLEDGE
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    INT8S,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    nullable_string,
    string,
    struct,
    uuid,
)


class AcknowledgementBatch(Struct):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    acknowledge_types: Sequence[int] = array(INT8S, "0+")


class AcknowledgePartition(Struct):
    partition_index: int = int32("0+")
    acknowledgement_batches: Sequence[AcknowledgementBatch] = array(AcknowledgementBatch, "0+")


class AcknowledgeTopic(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: Sequence[AcknowledgePartition] = array(AcknowledgePartition, "0+")


class ShareAcknowledgeRequest(Message, api=SHARE_ACKNOWLEDGE):
    group_id: str | None = nullable_string("0+", default=None)
    member_id: str | None = nullable_string("0+")
    share_session_epoch: int = int32("0+")
    is_renew_ack: bool = boolean("2+", default=False)
    topics: Sequence[AcknowledgeTopic] = array(AcknowledgeTopic, "0+")


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


class PartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+", default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "0+")


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: Sequence[PartitionData] = array(PartitionData, "0+")


class NodeEndpoint(Struct):
    node_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = nullable_string("0+", default=None)


class ShareAcknowledgeResponse(Message, api=SHARE_ACKNOWLEDGE):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+", default=None)
    acquisition_lock_timeout_ms: int = int32("2+", default=0, ignorable=True)
    responses: Sequence[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse, "0+")
    node_endpoints: Sequence[NodeEndpoint] = array(NodeEndpoint, "0+")
