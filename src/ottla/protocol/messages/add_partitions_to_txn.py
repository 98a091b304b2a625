"""AddPartitionsToTxn: add partitions to a transaction."""

from collections.abc import Sequence

from ottla.protocol.apis import ADD_PARTITIONS_TO_TXN
from ottla.protocol.message import Message
from ottla.protocol.schema import INT32S, Struct, array, boolean, int16, int32, int64, string


class AddPartitionsToTxnTopic(Struct):
    name: str = string("0+")
    partitions: Sequence[int] = array(INT32S, "0+")


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = string("4+")
    producer_id: int = int64("4+")
    producer_epoch: int = int16("4+")
    verify_only: bool = boolean("4+", default=False)
    topics: Sequence[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "4+")


class AddPartitionsToTxnRequest(Message, api=ADD_PARTITIONS_TO_TXN):
    transactions: Sequence[AddPartitionsToTxnTransaction] = array(
        AddPartitionsToTxnTransaction, "4+", default=()
    )
    v3_and_below_transactional_id: str = string("0-3", default="")
    v3_and_below_producer_id: int = int64("0-3", default=0)
    v3_and_below_producer_epoch: int = int16("0-3", default=0)
    v3_and_below_topics: Sequence[AddPartitionsToTxnTopic] = array(
        AddPartitionsToTxnTopic, "0-3", default=()
    )


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = int32("0+")
    partition_error_code: int = int16("0+")


class AddPartitionsToTxnTopicResult(Struct):
    name: str = string("0+")
    results_by_partition: Sequence[AddPartitionsToTxnPartitionResult] = array(
        AddPartitionsToTxnPartitionResult, "0+"
    )


class AddPartitionsToTxnResult(Struct):
    transactional_id: str = string("4+")
    topic_results: Sequence[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, "4+"
    )


class AddPartitionsToTxnResponse(Message, api=ADD_PARTITIONS_TO_TXN):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("4+", default=0, ignorable=True)
    results_by_transaction: Sequence[AddPartitionsToTxnResult] = array(
        AddPartitionsToTxnResult, "4+", default=()
    )
    results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, "0-3", default=()
    )
