"""The batches of one partition: those that wait, and those that are on their way to its leader.

Invariant: batches leave in the order in which they were begun, numbered without a gap. What is sent
again leaves alone: nobody knows whether it is there already, so the next one waits for the word on
it. So does the first batch of a producer: a broker that knows nothing of it would take the second
for the first.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from ottla.client.produce.delivery import SenderConfig
from ottla.client.produce.identity import NOBODY, Identity
from ottla.client.produce.pending_batch import SEQUENCE_MASK, PendingBatch
from ottla.ids import NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition
from ottla.records import BatchBuilder

PARTITION_IN_FLIGHT_MAX: Final = 5
"""A broker remembers so many batches of a producer, and knows those again."""


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

    def __init__(self, partition: TopicPartition, closed: Callable[[PendingBatch], None]) -> None:
        self.partition = partition
        self._closed = closed  # hears of a batch that takes no more records
        self.waiting: deque[PendingBatch] = deque()
        self.in_flight: list[PendingBatch] = []
        self.open: PendingBatch | None = None  # takes more records; the last that waits
        self.identity = NOBODY
        self.spent = NO_PRODUCER_ID  # a producer whose epochs are used up here
        self.next_sequence = 0
        self.has_gap = False  # the broker misses a batch that is not to come
        self.is_known = False  # the broker has something of the producer
        self._begun = 0

    def begin(self, builder: BatchBuilder, memory: int, now_s: float) -> PendingBatch:
        """Open a batch."""
        assert self.open is None
        self.open = PendingBatch(self.partition, (self._begun,), builder, memory, now_s)
        self._begun += 1
        self.waiting.append(self.open)
        return self.open

    def close(self) -> None:
        """Let the open batch take no more records."""
        batch, self.open = self.open, None
        if batch is not None:
            self._closed(batch)

    # Leaving.

    def due_s(self, linger_s: float) -> float:
        """When the first that waits is to leave, if batches wait so long for more records."""
        batch = self.waiting[0]
        if batch.tries:
            return batch.not_before_s
        return batch.began_s + linger_s if batch is self.open else 0.0

    def may_send(self, rules: SenderConfig) -> bool:
        """Whether the next batch can leave without getting before another."""
        on_their_way = self.in_flight
        if not on_their_way:
            # Of what may have been appended the broker is asked first, under its old number.
            # A transaction with a gap has failed: it is not for the queue to number it anew.
            if self.has_gap and not rules.is_transactional and not self.waiting[0].is_unsure:
                self.begin_anew()
            return not (self.has_gap and rules.is_transactional)
        if not rules.is_idempotent:
            return rules.in_flight_max > 1
        # A broker that has nothing of a producer takes any number for its first: if the very first
        # batch is refused and the second is not, they have changed places.
        return (
            self.is_known
            and len(on_their_way) < PARTITION_IN_FLIGHT_MAX
            and not self.has_gap
            and not self.waiting[0].tries
            and not any(batch.tries > 1 for batch in on_their_way)
        )

    def take_first(self, identity: Identity) -> PendingBatch:
        """Let the first that waits be on its way, with its place in the sequence of its producer.

        The identity is that of the producer, for a queue that has none of its own yet.
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

    # Coming back.

    def put_back(self, *batches: PendingBatch) -> None:
        """Let what was on its way wait again, before all that were begun after it."""
        for batch in batches:
            if batch in self.in_flight:
                self.in_flight.remove(batch)
            place = sum(one.order < batch.order for one in self.waiting)
            self.waiting.insert(place, batch)

    def split(self, batch: PendingBatch) -> None:
        """Let smaller batches wait in the place of one that was on its way."""
        self.in_flight.remove(batch)
        self.put_back(*batch.split())

    def remove(self, batch: PendingBatch) -> None:
        """A batch is settled."""
        if batch in self.in_flight:
            self.in_flight.remove(batch)
            return
        self.waiting.remove(batch)
        if batch is self.open:
            self.open = None

    def is_first(self, batch: PendingBatch) -> bool:
        """Whether no batch that is not settled was begun before it."""
        return batch.order == min(one.order for one in (*self.in_flight, *self.waiting))

    # Numbers.

    def begin_anew(self) -> None:
        """Begin a new sequence, under the next epoch: in the old one there is a gap.

        Only while nothing is on its way, and the first that waits was surely not appended: nor
        were the others then, because a broker takes nothing that comes after a gap.
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
        """The producer has got another identity: number from 0 under that."""
        assert not self.in_flight
        self.begin_anew()
        self.identity = NOBODY
        self.is_known = False
