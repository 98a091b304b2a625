"""The batches of one partition: waiting and in flight.

Invariant: batches are sent in the order in which they were opened, numbered without a gap. A
retried batch is sent alone: it may have been appended, so the next one waits for its result. So
does the very first batch of a producer: a broker without state for the producer would accept the
second as the first.
"""

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final

from ottla.client.producer.delivery import SenderConfig
from ottla.client.producer.identity import NOBODY, Identity
from ottla.client.producer.producer_batch import SEQUENCE_MASK, ProducerBatch
from ottla.ids import NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition
from ottla.records import BatchBuilder

PARTITION_IN_FLIGHT_MAX: Final = 5
"""A broker remembers this many batches of a producer to detect duplicates."""


class PartitionQueue:
    """The batches of one partition."""

    __slots__ = (
        "_begun",
        "_closed",
        "has_gap",
        "identity",
        "in_flight",
        "is_known",
        "next_sequence",
        "open",
        "partition",
        "spent",
        "waiting",
    )

    def __init__(self, partition: TopicPartition, closed: Callable[[ProducerBatch], None]) -> None:
        self.partition = partition
        self._closed = closed  # called for a batch that takes no more records
        self.waiting: deque[ProducerBatch] = deque()
        self.in_flight: list[ProducerBatch] = []
        self.open: ProducerBatch | None = None  # takes records; the last one that waits
        self.identity = NOBODY
        self.spent = NO_PRODUCER_ID  # a producer id whose epochs are used up here
        self.next_sequence = 0
        self.has_gap = False  # the broker misses a batch that will not arrive
        self.is_known = False  # the broker has state for this producer
        self._begun = 0

    def begin(self, builder: BatchBuilder, memory: int, now_s: float) -> ProducerBatch:
        """Open a batch."""
        assert self.open is None
        self.open = ProducerBatch(self.partition, (self._begun,), builder, memory, now_s)
        self._begun += 1
        self.waiting.append(self.open)
        return self.open

    def close(self) -> None:
        """Close the open batch."""
        batch, self.open = self.open, None
        if batch is not None:
            batch.builder.seal()
            self._closed(batch)

    # Sending.

    def due_s(self, linger_s: float) -> float:
        """Return when the first waiting batch has to be sent, with this linger time."""
        batch = self.waiting[0]
        if batch.tries:
            return batch.not_before_s
        return batch.began_s + linger_s if batch is self.open else 0.0

    def may_send(self, rules: SenderConfig) -> bool:
        """Whether the next batch can be sent without overtaking another."""
        on_their_way = self.in_flight
        if not on_their_way:
            # A batch that may have been appended is retried with its old number first. A
            # transaction with a gap has failed; the queue does not renumber it.
            if self.has_gap and not rules.is_transactional and not self.waiting[0].is_unsure:
                self.begin_anew()
            return not (self.has_gap and rules.is_transactional)
        if not rules.is_idempotent:
            return rules.in_flight_max > 1
        # A broker without state accepts any number as the first. If the first batch were refused
        # and the second accepted, they would have changed places.
        return (
            self.is_known
            and len(on_their_way) < PARTITION_IN_FLIGHT_MAX
            and not self.has_gap
            and not self.waiting[0].tries
            and not any(batch.tries > 1 for batch in on_their_way)
        )

    def take_first(self, identity: Identity) -> ProducerBatch:
        """Move the first waiting batch to in flight and number it.

        `identity` is used if the queue has none yet.
        """
        batch = self.waiting.popleft()
        if batch is self.open:
            self.close()
        if self.identity == NOBODY:
            self.identity = identity
        if batch.sequence == NO_SEQUENCE and self.identity != NOBODY:
            batch.identity, batch.sequence = self.identity, self.next_sequence
            self.next_sequence = (self.next_sequence + batch.builder.count) & SEQUENCE_MASK
        batch.tries += 1
        self.in_flight.append(batch)
        return batch

    # Retries.

    def put_back(self, *batches: ProducerBatch) -> None:
        """Let batches in flight wait again, before those that were opened later."""
        for batch in batches:
            if batch in self.in_flight:
                self.in_flight.remove(batch)
            place = sum(one.order < batch.order for one in self.waiting)
            self.waiting.insert(place, batch)

    def split(self, batch: ProducerBatch) -> None:
        """Replace a batch in flight by smaller ones."""
        self.in_flight.remove(batch)
        self.put_back(*batch.split())

    def remove(self, batch: ProducerBatch) -> None:
        """Remove a settled batch."""
        if batch in self.in_flight:
            self.in_flight.remove(batch)
            return
        self.waiting.remove(batch)
        if batch is self.open:
            self.open = None

    def is_first(self, batch: ProducerBatch) -> bool:
        """Whether no unsettled batch was opened before it."""
        return batch.order == min(one.order for one in (*self.in_flight, *self.waiting))

    @property
    def oldest(self) -> ProducerBatch | None:
        """The unsettled batch that was opened first."""
        batches = (*self.in_flight, *islice(self.waiting, 1))
        return min(batches, key=lambda one: one.order, default=None)

    # Sequence numbers.

    def begin_anew(self) -> None:
        """Start a new sequence under the next epoch: the old one has a gap.

        Only while nothing is in flight and the first waiting batch was certainly not appended. Then
        the others were not either, because a broker accepts nothing after a gap.
        """
        assert not self.in_flight
        before, self.identity = self.identity, self.identity.next()
        if self.identity == NOBODY:
            self.spent = before.producer_id
            self.is_known = False
        self.next_sequence = 0
        self.has_gap = False
        for batch in self.waiting:
            batch.sequence = int(NO_SEQUENCE)
            batch.is_unsure = False

    def forget_identity(self) -> None:
        """Number from 0 under another identity."""
        assert not self.in_flight
        self.begin_anew()
        self.identity = NOBODY
        self.is_known = False
