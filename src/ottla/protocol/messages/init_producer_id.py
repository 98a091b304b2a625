"""InitProducerId: get a producer id and epoch, and fence earlier producers."""

from ottla.protocol.apis import INIT_PRODUCER_ID
from ottla.protocol.message import Message
from ottla.protocol.schema import boolean, int16, int32, int64, nullable_string


class InitProducerIdRequest(Message, api=INIT_PRODUCER_ID):
    transactional_id: str | None = nullable_string("0+")
    transaction_timeout_ms: int = int32("0+")
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable2_pc: bool = boolean("6+", default=False)
    keep_prepared_txn: bool = boolean("6+", default=False)


class InitProducerIdResponse(Message, api=INIT_PRODUCER_ID):
    throttle_time_ms: int = int32("0+", ignorable=True)
    error_code: int = int16("0+")
    producer_id: int = int64("0+", default=-1)
    producer_epoch: int = int16("0+")
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)
