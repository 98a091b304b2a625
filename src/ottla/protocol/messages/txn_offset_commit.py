"""TxnOffsetCommit: commit offsets of a group in a transaction."""

from collections.abc import Sequence

from ottla.protocol.apis import TXN_OFFSET_COMMIT
from ottla.protocol.message import Message
from ottla.protocol.schema import Struct, array, int16, int32, int64, nullable_string, string


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    committed_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    committed_metadata: str | None = nullable_string("0+")


class TxnOffsetCommitRequestTopic(Struct):
    name: str = string("0+")
    partitions: Sequence[TxnOffsetCommitRequestPartition] = array(
        TxnOffsetCommitRequestPartition, "0+"
    )


class TxnOffsetCommitRequest(Message, api=TXN_OFFSET_COMMIT):
    transactional_id: str = string("0+")
    group_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+", default="")
    group_instance_id: str | None = nullable_string("3+", default=None)
    topics: Sequence[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic, "0+")


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class TxnOffsetCommitResponseTopic(Struct):
    name: str = string("0+")
    partitions: Sequence[TxnOffsetCommitResponsePartition] = array(
        TxnOffsetCommitResponsePartition, "0+"
    )


class TxnOffsetCommitResponse(Message, api=TXN_OFFSET_COMMIT):
    throttle_time_ms: int = int32("0+")
    topics: Sequence[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic, "0+")
