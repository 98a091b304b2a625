"""Who a producer is to the brokers: an id and an epoch, by which they drop what is sent twice.

Invariant: an identity is asked for until a broker gives one or says that it never will.
"""

from typing import Final, NamedTuple

from ottla.client.backoff import Backoff
from ottla.client.metadata import Metadata
from ottla.clock import Clock
from ottla.errors import ErrorCode, RequestError
from ottla.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

EPOCH_MAX: Final = 0x7FFF


class Identity(NamedTuple):
    """An id and an epoch."""

    producer_id: int
    epoch: int

    def next(self) -> "Identity":
        """The same producer with a new sequence; nobody when its epochs are used up."""
        return Identity(self.producer_id, self.epoch + 1) if self.epoch < EPOCH_MAX else NOBODY


NOBODY: Final = Identity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


async def new_identity(
    metadata: Metadata, clock: Clock, backoff: Backoff, timeout_s: float
) -> Identity:
    """Ask any broker for an identity; RequestError when it will not give one."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    failures = 0
    while True:
        try:
            channel = await metadata.any_channel()
            answer = await channel.ask(request, InitProducerIdResponse, timeout_s)
            if not answer.error_code:
                return Identity(answer.producer_id, answer.producer_epoch)
            raise RequestError(ErrorCode.of(answer.error_code))
        except RequestError as error:
            if not error.retriable:
                raise
        failures += 1
        await clock.sleep(backoff.pause_s(failures))
