"""AddOffsetsToTxn: add the offsets of a group to a transaction."""

from ottla.protocol.apis import ADD_OFFSETS_TO_TXN
from ottla.protocol.message import Message
from ottla.protocol.schema import int16, int32, int64, string


class AddOffsetsToTxnRequest(Message, api=ADD_OFFSETS_TO_TXN):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    group_id: str = string("0+")


class AddOffsetsToTxnResponse(Message, api=ADD_OFFSETS_TO_TXN):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
