"""OffsetForLeaderEpoch: the end offset of a leader epoch, to detect log divergence."""

from collections.abc import Sequence

from ottla.protocol.apis import OFFSET_FOR_LEADER_EPOCH
from ottla.protocol.message import Message
from ottla.protocol.schema import Struct, array, int16, int32, int64, string


class OffsetForLeaderPartition(Struct):
    partition: int = int32("0+")
    current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    leader_epoch: int = int32("0+")


class OffsetForLeaderTopic(Struct):
    topic: str = string("0+")
    partitions: Sequence[OffsetForLeaderPartition] = array(OffsetForLeaderPartition, "0+")


class OffsetForLeaderEpochRequest(Message, api=OFFSET_FOR_LEADER_EPOCH):
    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: Sequence[OffsetForLeaderTopic] = array(OffsetForLeaderTopic, "0+")


class EpochEndOffset(Struct):
    error_code: int = int16("0+")
    partition: int = int32("0+")
    leader_epoch: int = int32("1+", default=-1, ignorable=True)
    end_offset: int = int64("0+", default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = string("0+")
    partitions: Sequence[EpochEndOffset] = array(EpochEndOffset, "0+")


class OffsetForLeaderEpochResponse(Message, api=OFFSET_FOR_LEADER_EPOCH):
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: Sequence[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult, "0+")
