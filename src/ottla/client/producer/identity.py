"""Producer id and epoch, by which brokers detect duplicates.

Invariant: a producer id is requested until a broker returns one or a final error. A batch is sent
when the identity admits it.
"""

from typing import Final, NamedTuple, Protocol

from ottla.client.network.metadata import Metadata
from ottla.clock import Clock
from ottla.errors import ErrorCode, RequestError
from ottla.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from ottla.protocol.apis import PRODUCE
from ottla.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from ottla.transport.backoff import Backoff

EPOCH_MAX: Final = 0x7FFF


class Identity(NamedTuple):
    """A producer id and epoch."""

    producer_id: int
    epoch: int

    def next(self) -> "Identity":
        """Return the identity with the next epoch; none if the epochs are used up."""
        return Identity(self.producer_id, self.epoch + 1) if self.epoch < EPOCH_MAX else NOBODY


NOBODY: Final = Identity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class ProducerIdentity(Protocol):
    """What a producer needs before it may send a batch."""

    @property
    def identity(self) -> Identity:
        """The identity under which batches are numbered."""
        ...

    @property
    def transactional_id(self) -> str | None:
        """The transactional id of batches; None without transactions."""
        ...

    @property
    def produce_version_max(self) -> int:
        """The newest version of Produce that may be used."""
        ...

    @property
    def failure(self) -> RequestError | None:
        """The error that fails all waiting batches."""
        ...

    @property
    def refusal(self) -> RequestError | None:
        """The error of the last attempt of `obtain`, while it is retried."""
        ...

    def admit(self, partition: TopicPartition, spent: int) -> bool:
        """Whether a batch of a partition may be sent; otherwise `obtain` gets what is missing.

        The producer id `spent` has no more epochs in this partition.
        """
        ...

    async def obtain(self) -> None:
        """Get what is missing; raises RequestError."""
        ...

    def lost(self, error: RequestError, *, numbered: bool) -> None:
        """Note that a batch failed; the broker may or may not have a numbered one."""
        ...


class NoProducerIdentity:
    """A producer without an identity: a retry may write duplicates."""

    identity: Identity = NOBODY
    transactional_id: str | None = None
    produce_version_max: int = PRODUCE.versions.high
    failure: RequestError | None = None
    refusal: RequestError | None = None

    def admit(self, partition: TopicPartition, spent: int) -> bool:
        """Whether a batch may be sent."""
        return True

    async def obtain(self) -> None:
        """Do nothing: nothing is missing."""

    def lost(self, error: RequestError, *, numbered: bool) -> None:
        """Do nothing: batches are not numbered."""


class IdempotentIdentity(NoProducerIdentity):
    """An idempotent producer; any broker assigns its producer id."""

    def __init__(
        self, metadata: Metadata, clock: Clock, backoff: Backoff, timeout_s: float
    ) -> None:
        self._metadata = metadata
        self._clock = clock
        self._backoff = backoff
        self._timeout_s = timeout_s

    def admit(self, partition: TopicPartition, spent: int) -> bool:
        """Whether a batch may be sent."""
        if self.identity.producer_id == spent:
            self.identity = NOBODY
        return self.identity != NOBODY

    async def obtain(self) -> None:
        """Request a producer id from any broker; raises RequestError."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        failures = 0
        while True:
            try:
                channel = await self._metadata.any_channel()
                answer = await channel.ask(request, InitProducerIdResponse, self._timeout_s)
                if not answer.error_code:
                    self.identity = Identity(answer.producer_id, answer.producer_epoch)
                    self.refusal = None
                    return
                raise RequestError(ErrorCode.of(answer.error_code))
            except RequestError as error:
                if not error.retriable:
                    raise
                self.refusal = error
            failures += 1
            await self._clock.sleep(self._backoff.pause_s(failures))
