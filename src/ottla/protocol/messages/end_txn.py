"""EndTxn: commit or abort a transaction."""

from ottla.protocol.apis import END_TXN
from ottla.protocol.message import Message
from ottla.protocol.schema import boolean, int16, int32, int64, string


class EndTxnRequest(Message, api=END_TXN):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    committed: bool = boolean("0+")


class EndTxnResponse(Message, api=END_TXN):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)
