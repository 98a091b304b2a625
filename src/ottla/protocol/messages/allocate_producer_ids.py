"""AllocateProducerIds: a broker gets a block of producer ids from the controller."""

from ottla.protocol.apis import ALLOCATE_PRODUCER_IDS
from ottla.protocol.message import Message
from ottla.protocol.schema import int16, int32, int64


class AllocateProducerIdsRequest(Message, api=ALLOCATE_PRODUCER_IDS):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)


class AllocateProducerIdsResponse(Message, api=ALLOCATE_PRODUCER_IDS):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id_start: int = int64("0+")
    producer_id_len: int = int32("0+")
