"""DescribeTransactions: the state of transactions by transactional id."""

from collections.abc import Sequence

from ottla.protocol.apis import DESCRIBE_TRANSACTIONS
from ottla.protocol.message import Message
from ottla.protocol.schema import INT32S, STRINGS, Struct, array, int16, int32, int64, string


class DescribeTransactionsRequest(Message, api=DESCRIBE_TRANSACTIONS):
    transactional_ids: Sequence[str] = array(STRINGS, "0+")


class TopicData(Struct):
    topic: str = string("0+")
    partitions: Sequence[int] = array(INT32S, "0+")


class TransactionState(Struct):
    error_code: int = int16("0+")
    transactional_id: str = string("0+")
    transaction_state: str = string("0+")
    transaction_timeout_ms: int = int32("0+")
    transaction_start_time_ms: int = int64("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    topics: Sequence[TopicData] = array(TopicData, "0+")


class DescribeTransactionsResponse(Message, api=DESCRIBE_TRANSACTIONS):
    throttle_time_ms: int = int32("0+")
    transaction_states: Sequence[TransactionState] = array(TransactionState, "0+")
