"""ListTransactions: the transactions that a broker coordinates."""

from collections.abc import Sequence

from ottla.protocol.apis import LIST_TRANSACTIONS
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    INT64S,
    STRINGS,
    Struct,
    array,
    int16,
    int32,
    int64,
    nullable_string,
    string,
)


class ListTransactionsRequest(Message, api=LIST_TRANSACTIONS):
    state_filters: Sequence[str] = array(STRINGS, "0+")
    producer_id_filters: Sequence[int] = array(INT64S, "0+")
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = nullable_string("2+", default=None)


class TransactionState(Struct):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    transaction_state: str = string("0+")


class ListTransactionsResponse(Message, api=LIST_TRANSACTIONS):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    unknown_state_filters: Sequence[str] = array(STRINGS, "0+")
    transaction_states: Sequence[TransactionState] = array(TransactionState, "0+")
