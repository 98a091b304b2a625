"""WriteTxnMarkers: a coordinator writes the end of transactions to their partitions."""

from collections.abc import Sequence

from ottla.protocol.apis import WRITE_TXN_MARKERS
from ottla.protocol.message import Message
from ottla.protocol.schema import INT32S, Struct, array, boolean, int8, int16, int32, int64, string


class WritableTxnMarkerTopic(Struct):
    name: str = string("0+")
    partition_indexes: Sequence[int] = array(INT32S, "0+")


class WritableTxnMarker(Struct):
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    transaction_result: bool = boolean("0+")
    topics: Sequence[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic, "0+")
    coordinator_epoch: int = int32("0+")
    transaction_version: int = int8("2+", default=0, ignorable=True)


class WriteTxnMarkersRequest(Message, api=WRITE_TXN_MARKERS):
    markers: Sequence[WritableTxnMarker] = array(WritableTxnMarker, "0+")


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class WritableTxnMarkerTopicResult(Struct):
    name: str = string("0+")
    partitions: Sequence[WritableTxnMarkerPartitionResult] = array(
        WritableTxnMarkerPartitionResult, "0+"
    )


class WritableTxnMarkerResult(Struct):
    producer_id: int = int64("0+")
    topics: Sequence[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult, "0+")


class WriteTxnMarkersResponse(Message, api=WRITE_TXN_MARKERS):
    markers: Sequence[WritableTxnMarkerResult] = array(WritableTxnMarkerResult, "0+")
