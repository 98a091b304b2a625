"""The records of __transaction_state.

The first two bytes of a key are the record type (TYPES), those of a value its version.
"""

from collections.abc import Sequence
from typing import Final

from ottla.protocol.coordinator_records import CoordinatorRecordType, CoordinatorRecordTypes
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    INT32S,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    nullable_array,
    string,
)


class TransactionLogKey(Message, versions="0"):
    transactional_id: str = string("0")


class PartitionsSchema(Struct):
    topic: str = string("0+")
    partition_ids: Sequence[int] = array(INT32S, "0+")


class TransactionLogValue(Message, versions="0-1", flexible="1+"):
    producer_id: int = int64("0+")
    previous_producer_id: int = int64("1+", default=-1, tag=0)
    next_producer_id: int = int64("1+", default=-1, tag=1)
    producer_epoch: int = int16("0+")
    next_producer_epoch: int = int16("1+", default=-1, tag=3)
    transaction_timeout_ms: int = int32("0+")
    transaction_status: int = int8("0+")
    transaction_partitions: Sequence[PartitionsSchema] | None = nullable_array(
        PartitionsSchema, "0+"
    )
    transaction_last_update_timestamp_ms: int = int64("0+")
    transaction_start_timestamp_ms: int = int64("0+")
    client_transaction_version: int = int16("1+", default=0, tag=2)


TYPES: Final = CoordinatorRecordTypes(
    {0: CoordinatorRecordType(TransactionLogKey, TransactionLogValue)}
)
