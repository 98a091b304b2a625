"""Who a producer is to the brokers: an id and an epoch, by which they drop what is sent twice.

Invariant: an identity is asked for until a broker gives one or says that it never will. A batch
leaves when the producer's papers admit it.
"""

from typing import Final, NamedTuple, Protocol

from ottla.client.lifecycle.backoff import Backoff
from ottla.client.network.metadata import Metadata
from ottla.clock import Clock
from ottla.errors import ErrorCode, RequestError
from ottla.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from ottla.protocol.apis import PRODUCE
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


class ProducerIdentity(Protocol):
    """What a producer has to show before a batch may leave."""

    @property
    def identity(self) -> Identity:
        """Under which batches are numbered."""
        ...

    @property
    def transactional_id(self) -> str | None:
        """Of the transactions that batches belong to; None without."""
        ...

    @property
    def produce_version_max(self) -> int:
        """The newest version of Produce that may be used."""
        ...

    @property
    def failure(self) -> RequestError | None:
        """Why nothing that waits may leave any more."""
        ...

    def admit(self, partition: TopicPartition, spent: int) -> bool:
        """Whether a batch of a partition may leave; what it lacks is asked for by `obtain`.

        The producer id that is `spent` has no more epochs there.
        """
        ...

    async def obtain(self) -> None:
        """Get what was lacking; RequestError when it is not to be had."""
        ...

    def lost(self, error: RequestError, *, numbered: bool) -> None:
        """A batch was given up; a numbered one may have come to the broker or may not."""
        ...


class NoProducerIdentity:
    """A producer that is nobody: what it sends twice is there twice."""

    identity: Identity = NOBODY
    transactional_id: str | None = None
    produce_version_max: int = PRODUCE.versions.high
    failure: RequestError | None = None

    def admit(self, partition: TopicPartition, spent: int) -> bool:
        """Whether a batch may leave."""
        return True

    async def obtain(self) -> None:
        """Nothing is lacking."""

    def lost(self, error: RequestError, *, numbered: bool) -> None:
        """Nobody counts."""


class IdempotentIdentity(NoProducerIdentity):
    """A producer with an identity, which any broker gives it."""

    def __init__(
        self, metadata: Metadata, clock: Clock, backoff: Backoff, timeout_s: float
    ) -> None:
        self._metadata = metadata
        self._clock = clock
        self._backoff = backoff
        self._timeout_s = timeout_s

    def admit(self, partition: TopicPartition, spent: int) -> bool:
        """Whether a batch may leave."""
        if self.identity.producer_id == spent:
            self.identity = NOBODY
        return self.identity != NOBODY

    async def obtain(self) -> None:
        """Ask any broker for an identity; RequestError when it will not give one."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        failures = 0
        while True:
            try:
                channel = await self._metadata.any_channel()
                answer = await channel.ask(request, InitProducerIdResponse, self._timeout_s)
                if not answer.error_code:
                    self.identity = Identity(answer.producer_id, answer.producer_epoch)
                    return
                raise RequestError(ErrorCode.of(answer.error_code))
            except RequestError as error:
                if not error.retriable:
                    raise
            failures += 1
            await self._clock.sleep(self._backoff.pause_s(failures))
