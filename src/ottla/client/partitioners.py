"""Which partition a record goes to, when whoever sends it does not say.

Invariant: `choose` returns a partition that the topic has. Records of one key go to one partition
for as long as the topic has as many partitions, and to the same as with Java's producer. Those
without a key stay with one partition until batches of `batch.size` bytes were closed for it, so
that batches are full ones; the next partition is drawn, with less weight the more batches wait.
A partition that has lost its leader is left at once, where Java would first fill its batch.

A producer calls `choose` once for a record and nothing else. It tells the rest as it happens:
`batch_closed` for a batch that takes no more records, be it full or on its way, and `waiting` when
it has looked over its queues, if the partitioner `listens`. Only the default one is asked again for
a record that closes a batch because it does not fit: the record is the first of the next batch, and
that may be elsewhere.

The bytes of records without a key are so counted by batch: records with a key that went into the
same batches count too, which Java leaves out.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple, Protocol, TypeAlias

from ottla.errors import ErrorCode, RequestError
from ottla.records.kernel import murmur2

_POSITIVE: Final = 0x7FFF_FFFF


@dataclass(frozen=True, slots=True)
class Partitions:
    """The partitions of a topic: made once when metadata change, and handed to every call."""

    count: int
    available: tuple[int, ...]
    """Those that have a leader, in order."""


class Partitioner(Protocol):
    """Chooses partitions, and hears what becomes of the records."""

    def choose(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions
    ) -> int:
        """The partition of a record."""
        ...

    def batch_closed(self, topic: str, partition: int, size: int) -> None:
        """A batch of so many bytes takes no more records."""
        ...

    def listens(self, topic: str) -> bool:
        """Whether it wants to hear what waits for the partitions of a topic."""
        ...

    def waiting(self, topic: str, batches: Mapping[int, int], count: int) -> None:
        """How many batches wait for each partition that may be chosen, of all that there are.

        A partition without a leader, or whose broker is too slow, is left out; one for which
        nothing waits is there with 0.
        """
        ...


def partition_of_key(key: bytes, count: int) -> int:
    """Java's partition of a key."""
    return (murmur2(key) & _POSITIVE) % count


class Weights(NamedTuple):
    """Partitions, with the sums of their weights up to each."""

    partitions: tuple[int, ...]
    sums: tuple[int, ...]

    def at(self, random: float) -> int:
        """The partition that a chance from 0 up to 1 falls on."""
        return self.partitions[bisect_right(self.sums, int(random * self.sums[-1]))]


def weights(batches: Mapping[int, int], count: int) -> Weights | None:
    """The weights of partitions by the batches that wait; None when all there are weigh the same.

    One with the longest queue weighs 1, and one more for each batch by which another's is shorter.
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
    """Where the records of a topic that have no key go for now."""

    __slots__ = ("closed_bytes", "partition", "partitions", "weights")

    def __init__(self, partitions: Partitions, partition: int) -> None:
        self.partitions = partitions
        self.partition = partition
        self.closed_bytes = 0
        self.weights: Weights | None = None


class KeyPartitioner:
    """By key; records without one stick to a partition for a batch. Java's, and the default."""

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
        """Whether the key of a record says where it goes."""
        return not self._ignore_keys

    def choose(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions
    ) -> int:
        """The partition of a record."""
        if key is not None and not self._ignore_keys:
            return (murmur2(key) & _POSITIVE) % partitions.count
        sticky = self._sticky.get(topic)
        # The very same object: metadata did not change, so the partition is as good as it was.
        if sticky is not None and sticky.partitions is partitions:
            return sticky.partition
        return self._settle(topic, partitions, sticky)

    def batch_closed(self, topic: str, partition: int, size: int) -> None:
        """A batch of so many bytes takes no more records."""
        sticky = self._sticky.get(topic)
        if sticky is None or sticky.partition != partition:
            return
        sticky.closed_bytes += size
        if sticky.closed_bytes >= self._batch_size:
            self._switch(sticky)

    def listens(self, topic: str) -> bool:
        """Whether records without a key go to a topic, and by its load."""
        return self._adaptive and topic in self._sticky

    def waiting(self, topic: str, batches: Mapping[int, int], count: int) -> None:
        """How many batches wait for each partition that may be chosen."""
        sticky = self._sticky.get(topic)
        if sticky is not None and self._adaptive:
            sticky.weights = weights(batches, count)

    def _settle(self, topic: str, partitions: Partitions, known: _Sticky | None) -> int:
        """Begin with a topic, or go on with one whose metadata changed."""
        if known is not None and known.partition in _eligible(partitions):
            known.partitions = partitions
            known.weights = None  # it may name partitions that have no leader any more
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
    """Those with a leader; if there is none, one of the others may get it the soonest."""
    return partitions.available or range(partitions.count)


class _Deaf:
    """For those whose choice does not depend on what becomes of the records."""

    def batch_closed(self, topic: str, partition: int, size: int) -> None:
        """Changes nothing."""

    def listens(self, topic: str) -> bool:
        """No."""
        return False

    def waiting(self, topic: str, batches: Mapping[int, int], count: int) -> None:
        """Changes nothing."""


class RoundRobinPartitioner(_Deaf):
    """One partition after the other, whatever the key."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def choose(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions
    ) -> int:
        """The partition of a record."""
        turn = self._next.get(topic, 0)
        self._next[topic] = (turn + 1) & _POSITIVE  # as Java counts
        among = _eligible(partitions)
        return among[turn % len(among)]


Choice: TypeAlias = Callable[[str, bytes | None, bytes | None, Partitions], int]
"""From topic, key, value and the topic's partitions to one of them."""


def partitioner_of(given: Partitioner | Choice) -> Partitioner:
    """What a producer asks, of what it was given."""
    if callable(given):
        return OwnPartitioner(given)
    if not hasattr(given, "choose"):
        raise TypeError(
            f"a partitioner is a function of topic, key, value and partitions, or one of those in "
            f"ottla.client.partitioners, and not {given!r}; without one keys go where Java's go"
        )
    return given


class OwnPartitioner(_Deaf):
    """A function of one's own."""

    def __init__(self, choice: Choice) -> None:
        self._choice = choice

    def choose(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions
    ) -> int:
        """The partition of a record; RequestError when the topic has none of that number."""
        chosen = self._choice(topic, key, value, partitions)
        if type(chosen) is int and 0 <= chosen < partitions.count:
            return chosen
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"the partitioner chose {chosen!r} for topic {topic!r}, "
            f"which has partitions 0 to {partitions.count - 1}",
        )
