"""Partitioners: choose the partition of a record that names none.

Invariant: `choose` returns an existing partition. Records with the same key go to the same
partition while the partition count does not change, the same one as with Java's producer. Records
without a key stick to a partition until `batch.size` bytes were closed for it, so that batches are
full. The next partition is drawn at random, with less weight the more batches wait for it. A
partition without a leader is left at once; Java would fill its batch first.

The producer calls `choose` once per record. It reports events: `batch_closed` for a batch that
takes no more records, and `waiting` after it has looked over its queues, if the partitioner
`listens`. Only the default partitioner is asked again for a record that does not fit into the
current batch: the record opens the next batch, which may be in another partition.

Bytes of records without a key are counted per batch, so records with a key in the same batch count
too, unlike in Java.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple, Protocol, TypeAlias

from ottla.errors import ErrorCode, RequestError
from ottla.records import murmur2

_POSITIVE: Final = 0x7FFF_FFFF


@dataclass(frozen=True, slots=True)
class Partitions:
    """The partitions of a topic, made once per metadata change and passed to every call."""

    count: int
    available: tuple[int, ...]
    """Partitions with a leader, in order."""


class Partitioner(Protocol):
    """Chooses partitions and receives the producer's events."""

    def choose(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions
    ) -> int:
        """Return the partition of a record."""
        ...

    def batch_closed(self, topic: str, partition: int, size: int) -> None:
        """Note that a batch of this size takes no more records."""
        ...

    def listens(self, topic: str) -> bool:
        """Whether to call `waiting` for a topic."""
        ...

    def waiting(self, topic: str, batches: Mapping[int, int], count: int) -> None:
        """Note how many batches wait for each eligible partition, of `count` partitions in all.

        Partitions without a leader or with a slow broker are missing; a partition without waiting
        batches has 0.
        """
        ...


def partition_of_key(key: bytes, count: int) -> int:
    """Return the partition of a key as Java's producer computes it."""
    return (murmur2(key) & _POSITIVE) % count


class Weights(NamedTuple):
    """Partitions with cumulative weights."""

    partitions: tuple[int, ...]
    sums: tuple[int, ...]

    def at(self, random: float) -> int:
        """Return the partition for a random number in [0, 1)."""
        return self.partitions[bisect_right(self.sums, int(random * self.sums[-1]))]


def weights(batches: Mapping[int, int], count: int) -> Weights | None:
    """Return the weights of partitions by their waiting batches; None if all are equal.

    The longest queue weighs 1, and every other one more for each batch by which it is shorter.
    """
    if count < 2 or not batches:
        return None
    longest = max(batches.values())
    if len(batches) == count and min(batches.values()) == longest:
        return None
    return Weights(
        tuple(batches), tuple(accumulate(longest + 1 - size for size in batches.values()))
    )


class _Sticky:
    """The current partition for records of a topic without a key."""

    __slots__ = ("closed_bytes", "partition", "partitions", "weights")

    def __init__(self, partitions: Partitions, partition: int) -> None:
        self.partitions = partitions
        self.partition = partition
        self.closed_bytes = 0
        self.weights: Weights | None = None


class KeyPartitioner:
    """By key; records without a key are sticky per batch. Java's default partitioner."""

    def __init__(
        self,
        batch_size: int,
        random: Callable[[], float],
        *,
        ignore_keys: bool = False,
        adaptive: bool = True,
    ) -> None:
        self._batch_size = max(1, batch_size)
        self._random = random
        self._ignore_keys = ignore_keys
        self._adaptive = adaptive
        self._sticky: dict[str, _Sticky] = {}

    @property
    def heeds_keys(self) -> bool:
        """Whether the key determines the partition."""
        return not self._ignore_keys

    def choose(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions
    ) -> int:
        """Return the partition of a record."""
        if key is not None and not self._ignore_keys:
            return (murmur2(key) & _POSITIVE) % partitions.count
        sticky = self._sticky.get(topic)
        # The same object: metadata did not change, so the partition is still valid.
        if sticky is not None and sticky.partitions is partitions:
            return sticky.partition
        return self._settle(topic, partitions, sticky)

    def batch_closed(self, topic: str, partition: int, size: int) -> None:
        """Note that a batch of this size takes no more records."""
        sticky = self._sticky.get(topic)
        if sticky is None or sticky.partition != partition:
            return
        sticky.closed_bytes += size
        if sticky.closed_bytes >= self._batch_size:
            self._switch(sticky)

    def listens(self, topic: str) -> bool:
        """Whether records without a key are sent to the topic and its load matters."""
        return self._adaptive and topic in self._sticky

    def waiting(self, topic: str, batches: Mapping[int, int], count: int) -> None:
        """Note how many batches wait for each eligible partition."""
        sticky = self._sticky.get(topic)
        if sticky is not None and self._adaptive:
            sticky.weights = weights(batches, count)

    def _settle(self, topic: str, partitions: Partitions, known: _Sticky | None) -> int:
        """Start with a topic, or continue after its metadata changed."""
        if known is not None and known.partition in _eligible(partitions):
            known.partitions = partitions
            known.weights = None  # it may contain partitions without a leader now
            return known.partition
        sticky = self._sticky[topic] = _Sticky(partitions, -1)
        self._switch(sticky)
        return sticky.partition

    def _switch(self, sticky: _Sticky) -> None:
        random = self._random()
        sticky.closed_bytes = 0
        if sticky.weights is not None:
            sticky.partition = sticky.weights.at(random)
        else:
            among = _eligible(sticky.partitions)
            sticky.partition = among[int(random * len(among))]


def _eligible(partitions: Partitions) -> Sequence[int]:
    """Return the partitions with a leader, or all if there are none."""
    return partitions.available or range(partitions.count)


class _Deaf:
    """The base of partitioners that ignore the producer's events."""

    def batch_closed(self, topic: str, partition: int, size: int) -> None:
        """Do nothing."""

    def listens(self, topic: str) -> bool:
        """Return False."""
        return False

    def waiting(self, topic: str, batches: Mapping[int, int], count: int) -> None:
        """Do nothing."""


class RoundRobinPartitioner(_Deaf):
    """Cycles through the partitions and ignores keys."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def choose(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions
    ) -> int:
        """Return the partition of a record."""
        turn = self._next.get(topic, 0)
        self._next[topic] = (turn + 1) & _POSITIVE  # the counter wraps like Java's
        among = _eligible(partitions)
        return among[turn % len(among)]


Choice: TypeAlias = Callable[[str, bytes | None, bytes | None, Partitions], int]
"""A function of topic, key, value and partitions that returns a partition."""


def partitioner_of(given: Partitioner | Choice) -> Partitioner:
    """Wrap what the user gave as a Partitioner."""
    if callable(given):
        return OwnPartitioner(given)
    if not hasattr(given, "choose"):
        raise TypeError(
            "a partitioner must be a function of topic, key, value and partitions, or one of "
            f"ottla.client.partitioners, not {given!r}; without a partitioner, the producer "
            "chooses the same partitions as Java's"
        )
    return given


class OwnPartitioner(_Deaf):
    """A partitioner around a user's function."""

    def __init__(self, choice: Choice) -> None:
        self._choice = choice

    def choose(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions
    ) -> int:
        """Return the partition of a record; raises RequestError if it does not exist."""
        chosen = self._choice(topic, key, value, partitions)
        if type(chosen) is int and 0 <= chosen < partitions.count:
            return chosen
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"the partitioner returned {chosen!r} for topic {topic!r}, which has partitions 0 to "
            f"{partitions.count - 1}",
        )
