"""DeleteRecords: advance the log start offset of partitions."""

from collections.abc import Sequence

from ottla.protocol.apis import DELETE_RECORDS
from ottla.protocol.message import Message
from ottla.protocol.schema import Struct, array, int16, int32, int64, string


class DeleteRecordsPartition(Struct):
    partition_index: int = int32("0+")
    offset: int = int64("0+")


class DeleteRecordsTopic(Struct):
    name: str = string("0+")
    partitions: Sequence[DeleteRecordsPartition] = array(DeleteRecordsPartition, "0+")


class DeleteRecordsRequest(Message, api=DELETE_RECORDS):
    topics: Sequence[DeleteRecordsTopic] = array(DeleteRecordsTopic, "0+")
    timeout_ms: int = int32("0+")


class DeleteRecordsPartitionResult(Struct):
    partition_index: int = int32("0+")
    low_watermark: int = int64("0+")
    error_code: int = int16("0+")


class DeleteRecordsTopicResult(Struct):
    name: str = string("0+")
    partitions: Sequence[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult, "0+")


class DeleteRecordsResponse(Message, api=DELETE_RECORDS):
    throttle_time_ms: int = int32("0+")
    topics: Sequence[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult, "0+")
